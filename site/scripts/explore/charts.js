// Vega-Lite specifications of the two pictures. They hold no data, and nothing that comes from a record: rows are given
// to the drawn view, so that a filter need not draw the picture anew. Colour and shape are values of the rows.

import { NONE, fine, held, interval, number, setting, text, withUnit } from "./data.js";

// A picture that is drawn once for its shape and given new rows as often as they change. It says which mark is pointed
// at, and shows which one is looked at elsewhere.

const WAIT_MS = 120;

export class Picture {
  // `pointed` is told the id of the mark under the pointer, or -1; `pressed` that of one that was clicked.
  constructor(place, { pointed, pressed }) {
    this.place = place;
    this.pointed = pointed;
    this.pressed = pressed;
    this.shape = "";
    this.result = null;
    this.turn = 0;
    this.hot = -1;
    this.over = -1;
  }

  // Draw rows in the shape of a specification; resolves when they are to be seen.
  async draw(spec, rows) {
    const turn = this.turn += 1;
    const shape = JSON.stringify(spec);
    if (shape === this.shape) {
      this.result.view.signal("hot", this.hot);
      await this.result.view.data("marks", rows).runAsync();
      return;
    }
    const live = document.createElement("div");
    live.className = "fr-explore-next";
    live.setAttribute("aria-hidden", "true");
    this.place.append(live);
    const result = await window.feedrate.embed(live, { ...spec, data: { ...spec.data, values: rows } });
    if (turn !== this.turn) {
      result.finalize();
      live.remove();
      return;
    }
    this.result?.finalize();
    for (const before of [...this.place.children]) if (before !== live) before.remove();
    live.className = "fr-explore-live";
    this.shape = shape;
    this.result = result;
    this.listen(result.view);
  }

  listen(view) {
    const id = (item) => (item?.datum && item.mark?.marktype !== "line" ? item.datum.id ?? -1 : -1);
    view.addEventListener("mouseover", (_, item) => {
      this.over = id(item);
      if (this.over >= 0) this.pointed(this.over);
    });
    // A pointer that leaves a mark takes back what it said, and not what the keyboard says meanwhile.
    view.addEventListener("mouseout", () => {
      if (this.over >= 0 && this.over === this.hot) this.pointed(-1);
      this.over = -1;
    });
    view.addEventListener("click", (_, item) => { if (id(item) >= 0) this.pressed(id(item)); });
  }

  show(id) {
    if (id === this.hot) return;
    this.hot = id;
    if (this.result) this.result.view.signal("hot", id).runAsync();
  }

  clear() {
    this.turn += 1;
    this.result?.finalize();
    this.place.replaceChildren();
    this.shape = "";
    this.result = null;
  }
}

// Tell when the width of a place has changed and come to rest.
export function resized(place, then) {
  let before = place.clientWidth;
  let timer = 0;
  new ResizeObserver(() => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (Math.abs(place.clientWidth - before) < 2) return;
      before = place.clientWidth;
      then();
    }, WAIT_MS);
  }).observe(place);
}

// From chosen cells to the rows that pictures draw and to the columns of the table.

export const MOST_MARKS = 1000;
const OTHER = { colour: "var(--fr-muted)", shape: "circle" };

// The order of rows: by one column, what is not known last; or as they stand along x, series by series.
export function sorted(cells, rows, state) {
  const { by, descending } = state.sort;
  const column = cells.dims.get(by);
  const codes = (name) => cells.dims.get(name)?.codes;
  const measure = /^(.*?)(_low|_high|_n)?$/.exec(by);
  const known = cells.measures.get(by) ?? cells.measures.get(measure[1]);
  const turn = descending ? -1 : 1;
  if (known) {
    const end = cells.measures.has(by) ? "mean" : (measure[2] ?? "_mean").slice(1);
    const values = known[end];
    return rows.slice().sort((a, b) => (Number.isNaN(values[a]) ? (Number.isNaN(values[b]) ? a - b : 1)
      : Number.isNaN(values[b]) ? -1 : turn * (values[a] - values[b]) || a - b));
  }
  const keys = (column ? [column.codes] : [state.facet, state.colour, state.x].map(codes)).filter(Boolean);
  const sign = column ? turn : 1;
  return rows.slice().sort((a, b) => {
    for (const key of keys) if (key[a] !== key[b]) return sign * (key[a] - key[b]);
    return a - b;
  });
}

// Colour and shape of each value of an axis: the ordered ramp for numbers (zero in grey), else colours by name.
export function series(cells, rows, name, index) {
  const there = held(cells, rows, name).map(([each]) => each).filter((each) => each !== NONE);
  const values = cells.dims.get(name)?.values ?? [];
  const { ordered, named, shapes } = index;
  const zero = there[0] === "0" ? 1 : 0;
  const step = (at) => (zero && !at ? 0 : there.length - zero < 2 ? 4
    : 1 + Math.round(((at - zero) * (ordered.length - 2)) / (there.length - zero - 1)));
  const tone = (at) => (typeof values[0] === "number" ? ordered[step(at)] : named[at % named.length]);
  return new Map(there.map((each, at) => [each, {
    colour: tone(at), shape: shapes[(at + Math.floor(at / shapes.length)) % shapes.length], place: at,
  }]));
}

// What a pointed-at mark says: its axes, its number, the interval and n.
const cell = (cells, row, names) => Object.fromEntries(names.map((name) => [name, text(cells.dims.get(name), row)]));
const spread = ({ low, high, n }, row, scale = 1) => ({
  "95 % interval": Number.isFinite(low[row]) ? `${number(low[row] * scale)} to ${number(high[row] * scale)}` : "one block: none",
  blocks: String(n[row]),
});

const told = (cells, column, row, { label, unit }, names) => ({
  value: column.mean[row],
  low: Number.isFinite(column.low[row]) ? column.low[row] : column.mean[row],
  high: Number.isFinite(column.high[row]) ? column.high[row] : column.mean[row],
  tip: { ...cell(cells, row, names), [label]: `${number(column.mean[row])} ${unit}`, ...spread(column, row) },
});

const look = (cells, row, state, tones) => tones?.get(text(cells.dims.get(state.colour), row)) ?? OTHER;

// Rows of the main picture.
export function marks(cells, drawn, state, measure, tones, names) {
  const column = cells.measures.get(measure.name);
  const [x, facet] = [state.x, state.facet].map((name) => cells.dims.get(name));
  const others = names.filter((name) => name !== state.x).map((name) => cells.dims.get(name).codes);
  return Array.from(drawn, (row) => {
    const { colour, shape, place = -1 } = look(cells, row, state, tones);
    return {
      id: row, x: text(x, row), at: x?.codes[row] ?? -1, shift: place, colour, shape,
      facet: state.facet ? `${state.facet} ${text(facet, row)}` : "", part: facet?.codes[row] ?? -1,
      line: others.map((codes) => codes[row]).join(), ...told(cells, column, row, measure, names),
    };
  });
}

// The axes that tell some rows apart: those of several values, and where that is not enough those that do not always apply.
export function telling(cells, rows, names) {
  const proper = names.filter((name) => held(cells, rows, name).filter(([each]) => each !== NONE).length > 1);
  const columns = proper.map((name) => cells.dims.get(name));
  const seen = new Set();
  for (const row of rows) seen.add(columns.reduce((key, { codes, texts }) => key * (texts.length + 1) + codes[row] + 1, 0));
  return seen.size === rows.length ? proper : names.filter((name) => held(cells, rows, name).length > 1);
}

// A row of the pictures' table by what tells it apart.
const label = (cells, row, names) => names.map((name) => text(cells.dims.get(name), row)).join(" · ") || "the cell";

// Rows of the picture beside it: another measure of the rows of the table.
export function besides(cells, page, state, measure, tones, names) {
  const column = cells.measures.get(measure.name);
  return Array.from(page).map((row, at) => ({ row, at })).filter(({ row }) => !Number.isNaN(column.mean[row])).map(({ row, at }) => ({
    id: row, at, label: label(cells, row, names), ...look(cells, row, state, tones), ...told(cells, column, row, measure, names),
  }));
}

// Segments of the stacked phases of the rows of the table, and the unit that suits them.
export function segments(cells, page, state, index, names) {
  const emulated = state.ran === "emulated";
  const there = index.phases.filter(({ name, measure }) => cells.measures.has(measure) && name !== (emulated ? "forward" : "emulated"));
  const total = (row) => there.reduce((sum, { measure }) => sum + (cells.measures.get(measure).mean[row] || 0), 0);
  const large = Array.from(page).some((row) => total(row) >= 2000);
  const [scale, unit] = large ? [1e-3, "ms"] : [1, "µs"];
  const rate = cells.measures.get("samples_per_s");
  const found = [];
  const used = new Map();
  Array.from(page).forEach((row, at) => {
    const whole = total(row) * scale;
    let first = true;
    there.forEach(({ name, measure, label: phase, colour }, order) => {
      const column = cells.measures.get(measure);
      const value = column.mean[row] * scale;
      if (!(value > 0)) return;
      const ends = first && Number.isFinite(rate.low[row])
        ? { low: 1e6 * scale / rate.high[row], high: 1e6 * scale / rate.low[row] } : { low: whole, high: whole };
      found.push({ id: row, at, label: label(cells, row, names), phase, colour, order, value, ...ends,
        tip: { ...cell(cells, row, names), [phase]: `${number(value)} ${unit} a sample (${number((100 * value) / whole)} %)`,
          ...spread(column, row, scale) },
        sleeps: name === "emulated" });
      used.set(name, { label: phase, colour, sleeps: name === "emulated" });
      first = false;
    });
  });
  return { rows: found, unit, used: [...used.values()], count: new Set(found.map(({ id }) => id)).size };
}

// Columns of the table and of the files: what tells cells apart, then every measure that a picture shows.
export function columns(cells, measures, names) {
  const axes = names.map((name) => {
    const column = cells.dims.get(name);
    return { name, title: name, numeric: typeof column.values[0] === "number", text: (row) => text(column, row) };
  });
  const shown = measures.flatMap((measure, at) => {
    const column = cells.measures.get(measure.name);
    const main = at === 0;
    return [
      { name: measure.name, title: measure.label, unit: measure.unit, numeric: true, text: (row) => fine(column.mean[row]) },
      ...(main ? [
        { name: `${measure.name}_low`, title: "low", numeric: true, text: (row) => fine(column.low[row]) },
        { name: `${measure.name}_high`, title: "high", numeric: true, text: (row) => fine(column.high[row]) },
        { name: `${measure.name}_n`, title: "n", numeric: true, text: (row) => String(column.n[row]) },
      ] : []),
    ];
  });
  return [...axes, ...shown];
}

// The same for files: whole identity, every axis that applies somewhere, and every measure shown with its interval.
export function records(cells, rows, measures) {
  const known = (value) => (Number.isFinite(value) ? Number(value.toPrecision(6)) : null);
  return Array.from(rows, (row) => {
    const line = { cell_id: cells.id[row] };
    for (const [name, { codes, values }] of cells.dims) line[name] = codes[row] < 0 ? null : values[codes[row]];
    for (const { name } of measures) {
      const { mean, low, high, n } = cells.measures.get(name);
      Object.assign(line, { [name]: known(mean[row]), [`${name}_low`]: known(low[row]), [`${name}_high`]: known(high[row]), [`${name}_n`]: n[row] });
    }
    return line;
  });
}

export const readout = (cells, row, measures, names) => `${setting(cells, row, names)}: ${measures.map((measure) => {
  const column = cells.measures.get(measure.name);
  return `${withUnit(measure)} ${number(column.mean[row])}, ${interval(column, row)}`;
}).join("; ")}`;

const HOT = { test: "datum.id === hot" };
const INK = "var(--fr-ink)";
const PAPER = "var(--fr-paper)";
const params = [{ name: "hot", value: -1 }];
const colour = { field: "colour", type: "nominal", scale: null, legend: null };
const shape = { field: "shape", type: "nominal", scale: null, legend: null };
const size = { condition: { ...HOT, value: 230 }, value: 75 };
const stroke = { condition: { ...HOT, value: INK }, value: PAPER };

// What the pointer reads stands in each row as names and texts.
const tooltip = { field: "tip", type: "nominal" };
const FIT = { type: "fit", contains: "padding" };
const POINT = { type: "point", filled: true, opacity: 1, strokeWidth: 1 };

// A measure against an axis; lines join cells that differ in that axis alone.
export function main({ width, columns, x, y, log, faceted, lines, tilted }) {
  const across = {
    x: { field: "x", type: "ordinal", sort: { field: "at", op: "min" }, title: x,
      axis: { labelAngle: tilted ? -40 : 0, labelOverlap: !tilted, labelLimit: 110, labelSeparation: 4 }, scale: { paddingInner: 0.1 } },
    xOffset: { field: "shift", type: "nominal", scale: { paddingOuter: 1 } },
  };
  const up = (field) => ({ field, type: "quantitative", title: y,
    scale: log ? { type: "log", nice: true } : { zero: true, nice: 5 }, axis: { tickCount: 5, format: ",.3~r" } });
  const line = { mark: { type: "line", strokeWidth: 1.5, opacity: 0.7 }, encoding: {
    ...across, y: up("value"), color: colour, detail: { field: "line", type: "nominal" },
    order: { field: "at", type: "quantitative" } } };
  const layer = [
    ...(lines ? [line] : []),
    { mark: { type: "rule", strokeWidth: 1.5 }, encoding: { ...across, y: up("low"), y2: { field: "high" }, color: colour } },
    { mark: POINT, encoding: { ...across, y: up("value"), fill: colour, shape, size, stroke, tooltip } },
  ];
  const data = { name: "marks" };
  if (!faceted) return { data, params, width, height: 340, autosize: FIT, layer };
  return {
    data, params, columns, spacing: { row: 18, column: 20 },
    facet: { field: "facet", type: "nominal", sort: { field: "part", op: "min" }, title: null,
      header: { labelColor: INK, labelFontSize: 12, labelFontWeight: "bold", labelAnchor: "start", labelLimit: width } },
    spec: { width, height: columns > 1 ? 220 : 200, layer },
  };
}

const tall = (count) => 56 + 20 * count;
const rowed = (limit) => ({ field: "label", type: "ordinal", sort: { field: "at", op: "min" }, title: null,
  axis: { labelLimit: limit, domain: false, ticks: false } });

// Phases of the rows of the table, stacked.
export function phases({ width, limit, count, x, edge }) {
  const y = rowed(limit);
  const sleeps = { test: "datum.sleeps" };
  const across = { field: "value", type: "quantitative", stack: "zero", title: x, axis: { tickCount: 4, format: ",.3~r" } };
  const dim = { condition: { test: "hot === -1 || datum.id === hot", value: 1 }, value: 0.4 };
  const bar = { mark: { type: "bar", strokeWidth: 0.5 }, encoding: {
    y, x: across, color: colour, order: { field: "order", type: "quantitative" }, opacity: dim,
    stroke: { condition: { ...sleeps, value: edge }, value: PAPER },
    strokeDash: { condition: { ...sleeps, value: [3, 2] }, value: [1, 0] }, tooltip } };
  const rule = { mark: { type: "rule", strokeWidth: 1.5, color: INK }, encoding: {
    y, x: { field: "low", type: "quantitative", title: x }, x2: { field: "high" } } };
  return { data: { name: "marks" }, params, width, height: tall(count), autosize: FIT, layer: [bar, rule] };
}

// Another measure of the same rows.
export function beside({ width, limit, count, x }) {
  const y = rowed(limit);
  const across = (field) => ({ field, type: "quantitative", title: x, axis: { tickCount: 4, format: ",.3~r" } });
  return { data: { name: "marks" }, params, width, height: tall(count), autosize: FIT,
    layer: [
      { mark: { type: "rule", strokeWidth: 1.5 }, encoding: { y, x: across("low"), x2: { field: "high" }, color: colour } },
      { mark: POINT, encoding: { y, x: across("value"), fill: colour, shape, size, stroke, tooltip } },
    ] };
}
