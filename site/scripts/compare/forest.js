// Every cell that both runs have measured: a forest plot of those that differ most, and a table of all.

import { make } from "../dom.js";
import { Picture, resized } from "../explore/charts.js";
import { number } from "../explore/data.js";
import { PAGE, Table } from "../explore/table.js";
import { between, blocks, interval, times } from "./views.js";

// The forest plot: a specification without data, so that another comparison need not draw it anew, and its rows.

const GRID = "var(--fr-line)";
const ROW = 22;
// Room beside labels and plot: padding, and half of the last tick's label.
const BESIDE = 36;
export const MOST = 40;
const many = (count) => count.toLocaleString("en");

const across = (field, title) => ({ field, type: "quantitative", title, scale: { type: "log", nice: false, padding: 12 },
  axis: { tickCount: 6, format: ",.2~r", labelOverlap: true } });

export function forest(width) {
  const limit = Math.max(110, Math.round(width * 0.42));
  const y = { field: "label", type: "ordinal", sort: { field: "at", op: "min" }, title: null,
    axis: { labelLimit: limit, domain: false, ticks: false } };
  const title = "how many times as fast B is (logarithmic)";
  const colour = { field: "colour", type: "nominal", scale: null, legend: null };
  return {
    data: { name: "marks" }, params: [{ name: "hot", value: -1 }], width: width - limit - BESIDE, height: { step: ROW },
    layer: [
      { data: { values: [{ one: 1 }] }, mark: { type: "rule", color: GRID, strokeWidth: 1.5 }, encoding: { x: across("one", title) } },
      { transform: [{ filter: "datum.lo > 0" }], mark: { type: "rule", strokeWidth: 1.5 },
        encoding: { y, x: across("lo", title), x2: { field: "hi" }, color: colour } },
      { mark: { type: "point", filled: true, opacity: 1, strokeWidth: 1 }, encoding: {
        y, x: across("ratio", title), fill: colour, shape: { field: "shape", type: "nominal", scale: null, legend: null },
        size: { condition: { test: "datum.id === hot", value: 200 }, value: 75 },
        stroke: { condition: { test: "datum.id === hot", value: "var(--fr-ink)" }, value: "var(--fr-paper)" },
        tooltip: { field: "tip", type: "nominal" } } },
    ],
  };
}

// The cells that differ most, the fastest first, and all of them together at the end.
export function rows({ count, ratio, lo, hi, label, verdict, overall, n_a, n_b }, tones) {
  const shown = Array.from({ length: Math.min(count, MOST) }, (_, place) => place).sort((a, b) => ratio[b] - ratio[a]);
  const taken = new Map();
  // Two cells whose words are cut to the same are two marks all the same.
  const own = (text) => {
    taken.set(text, (taken.get(text) ?? 0) + 1);
    return taken.get(text) > 1 ? `${text} (${taken.get(text)})` : text;
  };
  const mark = (id, at, words, held, tone) => ({ id, at, label: own(words), ratio: held.ratio, lo: held.lo, hi: held.hi, ...tone,
    tip: { cell: words, "B ÷ A": times(held.ratio), "95 % interval": between(held.lo, held.hi), n: held.n } });
  const cells = shown.map((place, at) => mark(place, at, label[place],
    { ratio: ratio[place], lo: lo[place], hi: hi[place], n: `${n_a[place]} and ${n_b[place]} blocks` }, tones[verdict[place]]));
  return count > 1 ? [...cells, mark(-2, cells.length, `all ${many(count)} cells`, { ...overall, n: `${many(count)} cells` }, tones.overall)] : cells;
}

// Marks that nobody sees, from which the picture is compiled.
const SAMPLE = [0, 1].map((at) => ({
  id: at, at, label: `${at}`, ratio: 1 + at, lo: 1, hi: 3,
  colour: "var(--fr-ink)", shape: "circle", tip: {},
}));
const UNSORTED = ["interval", "blocks"];

export class Cells {
  // `root` is as wide as what is drawn, and wide before anything is shown.
  constructor(given, root) {
    this.given = given;
    this.root = root;
    this.from = 0;
    this.sort = { by: "ratio", descending: true };
    this.found = null;
    this.hot = -1;
    const [place, title] = [make("div", { class: "fr-explore-place" }), make("h2", { id: "fr-compare-ratios" }, "Cell by cell")];
    this.about = make("p", { class: "fr-explore-about" });
    this.legend = make("ul", { class: "fr-legend" });
    this.chart = make("div", { class: "fr-explore-chart", role: "img", tabindex: "0",
      keydown: (event) => this.walk(event), blur: () => this.point(-1) }, place);
    this.said = make("p", { class: "fr-message" });
    this.readout = make("p", { class: "fr-explore-readout", "aria-live": "polite" });
    const pointed = (id) => this.point(id);
    this.picture = new Picture(place, { pointed, pressed: (id) => this.reveal(id) });
    this.table = new Table({ pointed, sorted: (name) => this.sorted(name), turned: (from) => { this.from = from; this.list(); } });
    this.box = make("section", { class: "fr-compare-cells", "aria-labelledby": "fr-compare-ratios" },
      title, this.about, this.legend, this.chart, this.said, this.readout, this.table.pages, this.table.scroll);
    resized(root, () => this.draw());
  }

  // Vega is loaded and the picture's shape compiled before there is anything to draw, so that a file is shown at once.
  warm() {
    return this.found ? null : this.picture.draw(forest(this.root.clientWidth), SAMPLE);
  }

  show(found) {
    this.found = found;
    this.from = 0;
    this.hot = -1;
    const { tones } = this.given;
    this.shown = rows(found, tones);
    this.marks = this.shown.filter(({ id }) => id >= 0).map(({ id }) => id);
    const most = found.count > MOST ? `The ${MOST} cells that differ most; the table has all ${found.count.toLocaleString("en")}.` : "";
    this.about.textContent = [found.common && `In common: ${found.common}.`, most].filter(Boolean).join(" ");
    const seen = Object.entries(tones).filter(([verdict]) => found.verdict.includes(verdict));
    this.legend.replaceChildren(...seen.map(([, tone]) => {
      const sign = make("span", { "aria-hidden": "true" }, tone.glyph);
      sign.style.color = tone.colour;
      return make("li", {}, sign, tone.says);
    }));
    this.said.textContent = extremes(found);
    this.chart.setAttribute("aria-label", `How many times as fast B is, cell by cell. ${extremes(found)} Arrow keys go from mark to mark.`);
    this.readout.textContent = "";
    this.list();
    return this.draw();
  }

  draw() {
    return this.found ? this.picture.draw(forest(this.root.clientWidth), this.shown) : null;
  }

  order() {
    const { found, sort } = this;
    const columns = { cell: found.label, ratio: found.ratio, a: found.samples_per_s_a, b: found.samples_per_s_b, verdict: found.verdict };
    const column = columns[sort.by];
    const less = (one, other) => (column[one] < column[other] ? -1 : column[one] > column[other] ? 1 : 0);
    const ids = Array.from({ length: found.count }, (_, place) => place).sort((one, other) => less(one, other) || one - other);
    return sort.descending ? ids.reverse() : ids;
  }

  list() {
    const { found } = this;
    this.ids = this.order();
    const text = (name, title, cell) => ({ name, title, text: cell });
    const figure = (name, title, cell, unit) => ({ name, title, unit, numeric: true, text: cell });
    const columns = [
      text("cell", "Cell", (id) => found.label[id]),
      figure("ratio", "B ÷ A", (id) => times(found.ratio[id])),
      figure("interval", "95 % interval", (id) => between(found.lo[id], found.hi[id])),
      figure("a", "A", (id) => number(found.samples_per_s_a[id]), "samples/s"),
      figure("b", "B", (id) => number(found.samples_per_s_b[id]), "samples/s"),
      figure("blocks", "n", (id) => `${found.n_a[id]} and ${found.n_b[id]}`, "blocks"),
      text("verdict", "B is", (id) => found.verdict[id]),
    ];
    this.table.draw({ columns, rows: this.ids, from: this.from, sort: this.sort, caption: "Every cell that both runs have measured" });
  }

  sorted(name) {
    if (UNSORTED.includes(name)) return;
    this.sort = { by: name, descending: this.sort.by === name ? !this.sort.descending : true };
    this.from = 0;
    this.list();
  }

  point(id) {
    if (id === this.hot || !this.found) return;
    this.hot = id;
    this.picture.show(id);
    this.table.show(id);
    const { label, ratio, lo, hi, samples_per_s_a: a, samples_per_s_b: b, n_a, n_b } = this.found;
    this.readout.textContent = id < 0 ? ""
      : `${label[id]}: ${times(ratio[id])} (${interval({ lo: lo[id], hi: hi[id] })}; ${blocks(n_a[id], n_b[id])}), A ${number(a[id])}, B ${number(b[id])} samples/s.`;
  }

  reveal(id) {
    this.from = PAGE * Math.floor(this.ids.indexOf(id) / PAGE);
    this.list();
    this.table.focus(id);
  }

  walk(event) {
    const [at, last] = [this.marks?.indexOf(this.hot) ?? -1, (this.marks?.length ?? 0) - 1];
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.point(-1);
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.point(this.marks[Math.max(0, Math.min(last, to))]);
  }
}

// Where B gains most and where it loses most, in a sentence made from the numbers.
function extremes({ count, ratio, lo, hi, label, n_a, n_b }) {
  if (!count) return "";
  const ids = Array.from({ length: count }, (_, place) => place);
  const [most, least] = [1, -1].map((sign) => ids.reduce((best, id) => (sign * (ratio[id] - ratio[best]) > 0 ? id : best), 0));
  const told = (id) => `${times(ratio[id])} (${interval({ lo: lo[id], hi: hi[id] })}; ${blocks(n_a[id], n_b[id])}) at ${label[id]}`;
  return count === 1 ? `${told(0)}.` : `Highest ${told(most)}; lowest ${told(least)}.`;
}
