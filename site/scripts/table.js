// A table that is sorted by the headings of its columns, in pages.

import { make, many } from "./dom.js";

const PAGE = 25;
const unknown = (value) => value === null || value === undefined || Number.isNaN(value);

export class Table {
  // `sort`: the column's name (empty: rows as they are given) and whether it descends; `turned` is told that it changed.
  constructor(caption, sort, turned = () => {}) {
    this.sort = sort;
    this.turned = turned;
    this.from = 0;
    this.columns = [];
    this.rows = [];
    this.head = make("tr");
    this.body = make("tbody");
    const table = make("table", { class: "fr-table fr-explore-table" }, make("caption", { class: "fr-hidden" }, caption), make("thead", {}, this.head), this.body);
    this.scroll = make("div", { class: "fr-scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
    this.said = make("span", { role: "status" });
    const turn = (pages) => () => { this.from += pages * PAGE; this.draw(); };
    this.back = make("button", { type: "button", click: turn(-1) }, "Back");
    this.next = make("button", { type: "button", click: turn(1) }, "Next");
    this.pages = make("p", { class: "fr-explore-pages" }, this.said, this.back, this.next);
  }

  // Columns: name, title, unit, whether numbers, `text` of a row, and `of` it what the column sorts by, if it does.
  show(columns, rows) {
    Object.assign(this, { columns, rows, from: 0 });
    this.draw();
  }

  draw() {
    const { columns, sort, from } = this;
    const rows = this.sorted();
    this.head.replaceChildren(...columns.map((column) => this.heading(column)));
    this.body.replaceChildren(...rows.slice(from, from + PAGE).map((row) =>
      make("tr", {}, columns.map(({ numeric, text }) => make("td", numeric ? { class: "fr-n" } : {}, text(row))))));
    this.said.textContent = rows.length ? `Rows ${many(from + 1)} to ${many(Math.min(from + PAGE, rows.length))} of ${many(rows.length)}` : "No rows";
    this.back.disabled = from <= 0;
    this.next.disabled = from + PAGE >= rows.length;
    this.back.hidden = this.next.hidden = rows.length <= PAGE;
    [...this.head.children].forEach((cell, at) => cell.setAttribute("aria-sort",
      columns[at].name !== sort.by ? "none" : sort.descending ? "descending" : "ascending"));
  }

  heading({ name, title, unit, numeric, of }) {
    const press = of ? make("button", { type: "button", click: () => this.turn(name) }, title) : title;
    return make("th", { scope: "col", ...(numeric ? { class: "fr-n" } : {}) }, press, unit ? make("small", {}, unit) : null);
  }

  // All rows in the order that is chosen, what is not known last.
  sorted() {
    const of = this.columns.find(({ name }) => name === this.sort.by)?.of;
    if (!of) return this.rows;
    const less = (a, b) => (a < b ? -1 : Number(a > b));
    return [...this.rows].sort((one, other) => {
      const [a, b] = [of(one), of(other)];
      return Number(unknown(a)) - Number(unknown(b)) || (this.sort.descending ? less(b, a) : less(a, b));
    });
  }

  // Down, up, and as the rows are.
  turn(name) {
    const { by, descending } = this.sort;
    Object.assign(this.sort, by === name && !descending ? { by: "", descending: true } : { by: name, descending: by !== name });
    this.from = 0;
    this.draw();
    [...this.head.children].find((_, at) => this.columns[at].name === name).querySelector("button").focus();
    this.turned();
  }
}
