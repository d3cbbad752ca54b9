// The table of what is drawn: sorted by any column, in pages, each row tied to its mark.

import { make, many } from "./dom.js";

export const PAGE = 25;

export class Table {
  // `sorted` gets a column's name, `pointed` the id of the row that has the pointer or the focus; `turned` draws another page.
  constructor({ sorted, pointed, turned }) {
    this.sorted = sorted;
    this.pointed = pointed;
    this.turned = turned;
    this.from = 0;
    this.head = make("tr");
    this.body = make("tbody", { keydown: (event) => this.move(event), focusin: (event) => this.point(event),
      mouseover: (event) => this.point(event), mouseleave: () => pointed(-1) });
    this.caption = make("caption", { class: "fr-hidden" });
    const table = make("table", { class: "fr-table fr-explore-table" }, this.caption, make("thead", {}, this.head), this.body);
    this.scroll = make("div", { class: "fr-scroll", tabindex: "0", role: "region", "aria-label": "Table of the marks" }, table);
    this.said = make("span", { role: "status" });
    this.back = make("button", { type: "button", click: () => this.turn(this.from - PAGE) }, "Back");
    this.next = make("button", { type: "button", click: () => this.turn(this.from + PAGE) }, "Next");
    this.pages = make("p", { class: "fr-explore-pages" }, this.said, this.back, this.next);
  }

  // Columns: name, title, numeric, and the text of a row; rows: ids of all, of which a page is shown.
  draw({ columns, rows, sort, caption }) {
    const { from } = this;
    this.rows = rows;
    const page = rows.slice(from, from + PAGE);
    this.caption.textContent = caption;
    const heads = columns.map(({ name, title, unit }) => `${name}\n${title}\n${unit ?? ""}`).join("\n");
    if (this.heads !== heads) this.head.replaceChildren(...columns.map((column) => this.heading(column)));
    this.heads = heads;
    columns.forEach(({ name }, at) => {
      const order = sort.by === name ? (sort.descending ? "descending" : "ascending") : "none";
      this.head.children[at].setAttribute("aria-sort", order);
    });
    this.body.replaceChildren(...Array.from(page, (row, at) => make("tr", { "data-id": row, tabindex: at ? "-1" : "0" },
      columns.map(({ numeric, text }) => make("td", numeric ? { class: "fr-n" } : {}, text(row))))));
    const last = from + page.length;
    this.said.textContent = rows.length ? `Rows ${many(from + 1)} to ${many(last)} of ${many(rows.length)}` : "No rows";
    this.back.disabled = from <= 0;
    this.next.disabled = last >= rows.length;
    this.back.hidden = this.next.hidden = rows.length <= PAGE;
  }

  heading({ name, title, unit, numeric }) {
    const press = make("button", { type: "button", click: () => this.sorted(name) }, title);
    return make("th", { scope: "col", ...(numeric ? { class: "fr-n" } : {}) }, press, unit ? make("small", {}, unit) : null);
  }

  show(id) {
    for (const row of this.body.rows) row.classList.toggle("fr-hot", Number(row.dataset.id) === id);
  }

  turn(from) {
    this.from = from;
    return this.turned();
  }

  // Show the page that has a row, and give that row the focus.
  async reveal(id) {
    await this.turn(PAGE * Math.floor(this.rows.indexOf(id) / PAGE));
    [...this.body.rows].find((row) => Number(row.dataset.id) === id)?.focus();
  }

  point({ target }) {
    const row = target.closest("tr");
    if (row) this.pointed(Number(row.dataset.id));
  }

  move(event) {
    const rows = [...this.body.rows];
    const at = rows.indexOf(event.target.closest("tr"));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to === undefined || !rows[to]) return;
    event.preventDefault();
    rows[at].tabIndex = -1;
    rows[to].tabIndex = 0;
    rows[to].focus();
  }
}
