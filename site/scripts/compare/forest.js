// Every cell that both runs have measured: a forest plot of those that differ most, and a table of all.

import { make, many, number } from "../dom.js";
import { View, labelled, point, resized, rule, walk } from "../picture.js";
import { Table } from "../table.js";
import { between, times } from "./views.js";

// The forest plot: a specification without data, so that another comparison need not draw it anew, and its rows.

const ROW = 22;
// Room beside labels and plot: padding, and half of the last tick's label.
const BESIDE = 36;
const MOST = 40;

const across = (field) => ({ field, type: "quantitative", title: "how many times as fast B is (logarithmic)",
  scale: { type: "log", nice: false, padding: 12 }, axis: { tickCount: 6, format: ",.2~r", labelOverlap: true } });

function forest(width) {
  const limit = Math.max(110, Math.round(width * 0.42));
  const y = labelled(limit);
  return {
    width: width - limit - BESIDE, height: { step: ROW },
    layer: [
      { data: { values: [{ one: 1 }] }, mark: { type: "rule", color: "var(--fr-line)", strokeWidth: 1.5 }, encoding: { x: across("one") } },
      { transform: [{ filter: "datum.lo > 0" }], ...rule({ y, x: across("lo"), x2: { field: "hi" } }) },
      point({ y, x: across("ratio") }, 200),
    ],
  };
}

const places = (count) => Array.from({ length: count }, (_, place) => place);

// The cells that differ most, the fastest first, and all of them together at the end.
function rows({ count, ratio, lo, hi, label, verdict, overall, n_a, n_b }, tones) {
  const shown = places(Math.min(count, MOST)).sort((a, b) => ratio[b] - ratio[a]);
  const taken = new Map();
  // Two cells whose words are cut to the same are two marks all the same.
  const own = (text) => {
    taken.set(text, (taken.get(text) ?? 0) + 1);
    return taken.get(text) > 1 ? `${text} (${taken.get(text)})` : text;
  };
  const mark = (id, at, words, { ratio: value, lo: low, hi: high }, n, tone) => ({
    id, at, label: own(words), ratio: value, lo: low, hi: high, ...tone,
    tip: { cell: words, "B ÷ A": times(value), "95 % interval": between(low, high), n },
  });
  const cells = shown.map((place, at) => mark(place, at, label[place], { ratio: ratio[place], lo: lo[place], hi: hi[place] },
    `${n_a[place]} and ${n_b[place]} blocks`, tones[verdict[place]]));
  return count > 1 ? [...cells, mark(-2, cells.length, `all ${many(count)} cells`, overall, `${many(count)} cells`, tones.overall)] : cells;
}

// Columns of the table, those by which it can be sorted with their values.
function columns({ label, ratio, lo, hi, samples_per_s_a: a, samples_per_s_b: b, n_a, n_b, verdict }) {
  return [
    { name: "cell", title: "Cell", values: label, text: (id) => label[id] },
    { numeric: true, name: "ratio", title: "B ÷ A", values: ratio, text: (id) => times(ratio[id]) },
    { numeric: true, name: "interval", title: "95 % interval", text: (id) => between(lo[id], hi[id]) },
    { numeric: true, name: "a", title: "A", unit: "samples/s", values: a, text: (id) => number(a[id]) },
    { numeric: true, name: "b", title: "B", unit: "samples/s", values: b, text: (id) => number(b[id]) },
    { numeric: true, name: "blocks", title: "n", unit: "blocks", text: (id) => `${n_a[id]} and ${n_b[id]}` },
    { name: "verdict", title: "B is", values: verdict, text: (id) => verdict[id] },
  ];
}

// Marks that nobody sees, from which the picture is compiled.
const SAMPLE = [0, 1].map((at) => ({
  id: at, at, label: `${at}`, ratio: 1 + at, lo: 1, hi: 3,
  colour: "var(--fr-ink)", shape: "circle", tip: {},
}));

export class Cells {
  // `root` is as wide as what is drawn, and wide before anything is shown.
  constructor(given, root) {
    this.given = given;
    this.root = root;
    this.sort = { by: "ratio", descending: true };
    this.found = null;
    this.hot = -1;
    this.readout = make("p", { class: "fr-explore-readout", "aria-live": "polite" });
    const pointed = (id) => this.point(id);
    this.view = new View("fr-compare-ratios", "fr-compare-cells", { pointed, pressed: (id) => this.table.reveal(id),
      walked: (event) => walk(event, this.marks ?? [], this.hot, pointed) });
    this.table = new Table({ pointed, sorted: (name) => this.sorted(name), turned: () => this.list() });
    this.box = this.view.box;
    this.box.append(this.readout, this.table.pages, this.table.scroll);
    resized(root, () => this.draw());
  }

  // Vega is loaded and the picture's shape compiled before there is anything to draw, so that a file is shown at once.
  warm() {
    return this.found ? null : this.view.picture.draw(forest(this.root.clientWidth), SAMPLE);
  }

  show(found) {
    this.found = found;
    this.table.from = 0;
    this.hot = -1;
    const { tones } = this.given;
    this.shown = rows(found, tones);
    this.marks = this.shown.filter(({ id }) => id >= 0).map(({ id }) => id);
    const most = found.count > MOST ? `The ${MOST} cells that differ most; the table has all ${many(found.count)}.` : "";
    const said = extremes(found);
    const seen = Object.entries(tones).filter(([verdict]) => found.verdict.includes(verdict));
    this.view.tell({
      title: "Cell by cell", about: [found.common && `In common: ${found.common}.`, most].filter(Boolean).join(" "), said,
      label: `How many times as fast B is, cell by cell. ${said}`, entries: seen.map(([, { says, colour, shape }]) => ({ label: says, colour, shape })),
    });
    this.readout.textContent = "";
    this.columns = columns(found);
    this.list();
    return this.draw();
  }

  draw() {
    return this.found ? this.view.picture.draw(forest(this.root.clientWidth), this.shown) : null;
  }

  list() {
    const { values } = this.columns.find(({ name }) => name === this.sort.by);
    const less = (one, other) => (values[one] < values[other] ? -1 : values[one] > values[other] ? 1 : one - other);
    const ids = places(this.found.count).sort(less);
    if (this.sort.descending) ids.reverse();
    this.table.draw({ columns: this.columns, rows: ids, sort: this.sort, caption: "Every cell that both runs have measured" });
  }

  sorted(name) {
    if (!this.columns.some((column) => column.name === name && column.values)) return;
    this.sort = { by: name, descending: this.sort.by === name ? !this.sort.descending : true };
    this.table.from = 0;
    this.list();
  }

  point(id) {
    if (id === this.hot || !this.found) return;
    this.hot = id;
    this.view.picture.show(id);
    this.table.show(id);
    const { label, samples_per_s_a: a, samples_per_s_b: b } = this.found;
    this.readout.textContent = id < 0 ? "" : `${label[id]}: ${figure(this.found, id)}, A ${number(a[id])}, B ${number(b[id])} samples/s.`;
  }
}

const figure = ({ ratio, lo, hi, n_a, n_b }, id) =>
  `${times(ratio[id])} (${between(lo[id], hi[id])}, n = ${n_a[id]} and ${n_b[id]})`;

// Where B gains most and where it loses most, in a sentence made from the numbers.
function extremes(found) {
  const { count, ratio, label } = found;
  const [most, least] = [1, -1].map((sign) => places(count).reduce((best, id) => (sign * (ratio[id] - ratio[best]) > 0 ? id : best), 0));
  const told = (id) => `${figure(found, id)} at ${label[id]}`;
  return count === 1 ? `${told(0)}.` : `Highest ${told(most)}; lowest ${told(least)}.`;
}
