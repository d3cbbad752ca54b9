// One picture with its title, what its marks have in common, its legend and its message.

import { make } from "../dom.js";
import { Picture, beside, besides, main, marks, phases, segments, telling } from "./charts.js";
import { NONE, held, message, withUnit } from "./data.js";

// The table of what is drawn: sorted by any column, in pages, each row tied to its mark.

export const PAGE = 25;

export class Table {
  // `sorted` gets a column's name, `pointed` the id of the row that has the pointer or the focus, `turned` the first row.
  constructor({ sorted, pointed, turned }) {
    this.sorted = sorted;
    this.pointed = pointed;
    this.head = make("tr");
    this.body = make("tbody", { keydown: (event) => this.move(event), focusin: (event) => this.point(event),
      mouseover: (event) => this.point(event), mouseleave: () => pointed(-1) });
    this.caption = make("caption", { class: "fr-hidden" });
    const table = make("table", { class: "fr-table fr-explore-table" }, this.caption, make("thead", {}, this.head), this.body);
    this.scroll = make("div", { class: "fr-scroll", tabindex: "0", role: "region", "aria-label": "Table of the marks" }, table);
    this.said = make("span", { role: "status" });
    this.back = make("button", { type: "button", click: () => turned(this.from - PAGE) }, "Back");
    this.next = make("button", { type: "button", click: () => turned(this.from + PAGE) }, "Next");
    this.pages = make("p", { class: "fr-explore-pages" }, this.said, this.back, this.next);
  }

  // Columns: name, title, numeric, and the text of a row; rows: ids of all, of which a page from `from` is shown.
  draw({ columns, rows, from, sort, caption }) {
    this.from = from;
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
    this.said.textContent = rows.length ? `Rows ${(from + 1).toLocaleString("en")} to ${last.toLocaleString("en")} of ${
      rows.length.toLocaleString("en")}` : "No rows";
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

  focus(id) {
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

const GLYPHS = {
  circle: "●", square: "■", "triangle-up": "▲", diamond: "◆", cross: "✚", "triangle-down": "▼", "triangle-right": "▶",
};
const OTHER = { colour: "var(--fr-muted)", shape: "circle" };
// What is said of all marks even where no cell of the runs differs in it.
const ALWAYS = ["workload", "patch_size", "model", "step_ms"];
const WIDE = 900;
const NARROW = 560;
// Width of a letter of a tick's label, in pixels.
const LETTER = 7;
const WALK = "Arrow keys go from mark to mark.";

export class View {
  // `walked` gets a key press on the picture; `pointed` and `pressed` as for a Picture.
  constructor(name, { walked, pointed, pressed }) {
    const id = `fr-explore-${name}`;
    const [place, title] = [make("div", { class: "fr-explore-place" }), make("h2", { id })];
    this.wide = 0;
    this.title = title;
    this.about = make("p", { class: "fr-explore-about" });
    this.legend = make("ul", { class: "fr-legend" });
    this.chart = make("div", { class: "fr-explore-chart", role: "img", tabindex: "0", keydown: walked, blur: () => pointed(-1) }, place);
    this.said = make("p", { class: "fr-message" });
    this.box = make("section", { class: `fr-explore-view fr-explore-${name}`, "aria-labelledby": id },
      title, this.about, this.legend, this.chart, this.said);
    this.picture = new Picture(place, { pointed, pressed });
  }

  tell(title, about, entries, said, more = "") {
    this.title.textContent = title;
    this.about.textContent = about;
    this.said.textContent = `${said} ${more}`.trim();
    this.chart.setAttribute("aria-label", `${title}, ${about}. ${said} ${WALK}`);
    this.legend.hidden = !entries || entries.length < 2;
    this.legend.replaceChildren(...(entries ?? []).map(({ label, colour, shape = "square", sleeps = false }) => {
      const sign = make("span", { "aria-hidden": "true", class: sleeps ? "fr-explore-sleep" : "" }, GLYPHS[shape]);
      sign.style.color = colour;
      return make("li", {}, sign, label);
    }));
  }

  // Asked for once: asking makes the browser lay the page out.
  get width() {
    return (this.wide ||= this.box.clientWidth);
  }

  // The chosen measure of all cells against the chosen axis. A scene holds what is chosen and what it leaves.
  drawMain(scene, measure) {
    const { state, cells, drawn, names, tones } = scene;
    const some = telling(cells, drawn, names);
    const facets = state.facet ? held(cells, drawn, state.facet).length : 1;
    const columns = Math.min(facets, this.width >= WIDE ? 3 : this.width >= NARROW ? 2 : 1);
    const width = facets > 1 ? Math.floor((this.width - 64 - 22 * (columns - 1)) / columns) : this.width;
    const numeric = typeof cells.dims.get(state.x)?.values[0] === "number";
    const lines = numeric && held(cells, drawn, state.x).length > 1;
    const entries = tones && held(cells, drawn, state.colour).map(([name]) => ({
      label: `${state.colour} ${name}`, ...(tones.get(name) ?? OTHER),
    }));
    const said = message(cells, drawn, measure, cells.measures.get(measure.name), some);
    this.tell(`${measure.label} by ${state.x}`, common(scene), entries, said,
      lines ? `Lines join cells that differ in ${state.x} alone.` : "");
    const ticks = held(cells, drawn, state.x).map(([text]) => text);
    const tilted = ticks.length * LETTER * Math.max(...ticks.map((text) => text.length)) > width;
    const log = state.log && measure.logs;
    const spec = main({ width, columns, x: state.x, y: withUnit(measure), log, faceted: facets > 1, lines, tilted });
    return this.picture.draw(spec, marks(cells, drawn, state, measure, tones, some.length ? some : names));
  }

  // The phases, or another measure, of the rows of the table that are shown.
  drawBeside(scene) {
    const { state, cells, page, names, tones, order, from, library } = scene;
    const some = telling(cells, page, names);
    const shape = { width: this.width, limit: Math.max(90, Math.round(this.width * 0.42)), count: page.length };
    const rows = order.length > PAGE ? `, rows ${from + 1} to ${from + page.length} of the table` : "";
    const about = `The cells${some.length ? ` by ${some.join(" · ")}` : ""}${rows}`;
    if (state.beside === "phases") {
      const { rows: drawn, unit, used } = segments(cells, page, state, library.index, some);
      const said = "Bars are means over blocks; the thin line is the 95 % interval of the whole.";
      this.tell("Where a sample’s time goes", about, used, drawn.length ? said : "Phases were not observed here.");
      return this.drawRows(drawn, phases({ ...shape, x: `time per sample (${unit})`, edge: library.index.edge }));
    }
    const measure = library.measure(state.beside, state.ran);
    const drawn = besides(cells, page, state, measure, tones, some);
    this.tell(measure.label, about, null, drawn.length
      ? message(cells, drawn.map(({ id }) => id), measure, cells.measures.get(measure.name), some)
      : `None of these cells has ${measure.label}.`);
    return this.drawRows(drawn, beside({ ...shape, x: withUnit(measure) }));
  }

  drawRows(drawn, spec) {
    this.chart.hidden = !drawn.length;
    return drawn.length ? this.picture.draw(spec, drawn) : this.picture.clear();
  }
}

// What all marks have in common, so that nobody takes a sleep for a model or a cold cache for a warm one.
function common({ state, cells, drawn, names, library }) {
  const still = [...ALWAYS, ...names.filter((name) => !ALWAYS.includes(name))].map((name) => [name, held(cells, drawn, name)]);
  const one = still.filter(([, there]) => there.length === 1 && there[0][0] !== NONE);
  const said = one.map(([name, [[text]]]) => (name === "workload" ? text : `${name} ${text}`));
  return [library.ran.get(state.ran), ...said].join(", ");
}
