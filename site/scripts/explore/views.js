// The two pictures of the page: their specifications, what is said beside them, and the rows that they draw; the columns of
// the table and the lines of files. A scene is the page's Explorer: what is chosen and what that leaves.

import { fine, number, plural } from "../dom.js";
import { INK, PAPER, colour, labelled, point, rule, tooltip } from "../picture.js";
import { PAGE } from "../table.js";
import { NONE, proper, text, texts, valueCounts } from "./data.js";

// What is said of all marks even where no cell of the runs differs in it.
const ALWAYS = ["workload", "script", "patch_size", "model", "step_ms"];
const [WIDE, NARROW] = [900, 560];
// Width of a letter of a tick's label, in pixels.
const LETTER = 7;
const ACROSS = { type: "quantitative", axis: { tickCount: 4, format: ",.3~r" } };
const FIT = { type: "fit", contains: "padding" };

// Asked for once, until the window's width changes: asking makes the browser lay the page out.
const widthOf = (view) => (view.wide ||= view.box.clientWidth);

// The chosen measure of all cells against the chosen axis.
export function drawMain(view, scene, measure) {
  const { state, cells, drawn, names, tones } = scene;
  const whole = widthOf(view);
  const some = distinguishing(cells, drawn, names);
  const values = (name) => texts(cells, drawn, name);
  const ticks = values(state.x);
  const facets = state.facet ? values(state.facet).length : 1;
  const columns = Math.min(facets, whole >= WIDE ? 3 : whole >= NARROW ? 2 : 1);
  const width = facets > 1 ? Math.floor((whole - 64 - 22 * (columns - 1)) / columns) : whole;
  const lines = typeof cells.dims.get(state.x)?.values[0] === "number" && ticks.length > 1;
  const entries = tones ? values(state.colour).map((name) => ({ label: `${state.colour} ${name}`, ...(tones.get(name) ?? OTHER) })) : [];
  const [title, about] = [`${measure.label} by ${state.x}`, common(scene)];
  const said = message(cells, drawn, measure, some);
  const more = lines ? ` Lines join cells that differ in ${state.x} alone.` : "";
  view.tell({ title, about, said: said + more, label: `${title}, ${about}. ${said}`, entries: entries.length > 1 ? entries : [] });
  const tilted = ticks.length * LETTER * Math.max(...ticks.map((text) => text.length)) > width;
  const spec = against({ width, columns, x: state.x, y: withUnit(measure), log: state.log && measure.logs, faceted: facets > 1, lines, tilted });
  return view.picture.draw(spec, marks(scene, measure, some.length ? some : names));
}

// A measure against an axis; lines join cells that differ in that axis alone.
function against({ width, columns, x, y, log, faceted, lines, tilted }) {
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
    ...(lines ? [line] : []), rule({ ...across, y: up("low"), y2: { field: "high" } }), point({ ...across, y: up("value") }),
  ];
  if (!faceted) return { width, height: 340, autosize: FIT, layer };
  return {
    columns, spacing: { row: 18, column: 20 },
    facet: { field: "facet", type: "nominal", sort: { field: "part", op: "min" }, title: null,
      header: { labelColor: INK, labelFontSize: 12, labelFontWeight: "bold", labelAnchor: "start", labelLimit: width } },
    spec: { width, height: columns > 1 ? 220 : 200, layer },
  };
}

// What all marks have in common, so that nobody takes a sleep for a model or a cold cache for a warm one.
function common({ state, cells, drawn, names, library }) {
  const still = [...new Set([...ALWAYS, ...names])].map((name) => [name, ...texts(cells, drawn, name)]);
  const said = still.filter(([, one, other]) => one !== NONE && other === undefined)
    .map(([name, text]) => (name === "workload" ? text : `${name} ${text}`));
  return [library.ran.get(state.ran), ...said].join(", ");
}

// The phases, or another measure, of the rows of the table that are shown.
export function drawBeside(view, scene) {
  const { state, cells, page, names, order, table: { from }, library } = scene;
  const width = widthOf(view);
  const some = distinguishing(cells, page, names);
  const rows = order.length > PAGE ? `, rows ${from + 1} to ${from + page.length} of the table` : "";
  const about = `The cells${some.length ? ` by ${some.join(" · ")}` : ""}${rows}`;
  const y = labelled(Math.max(90, Math.round(width * 0.42)));
  const shape = { width, height: 56 + 20 * page.length, autosize: FIT };
  let [title, said, entries, drawn, layer] = ["", "", [], [], []];
  if (state.beside === "phases") {
    const { rows: found, unit, used } = segments(scene, some);
    drawn = found;
    title = "Where a sample’s time goes";
    said = drawn.length ? "Bars are means over blocks; the thin line is the 95 % interval of the whole." : "Phases were not observed here.";
    entries = used.length > 1 ? used : [];
    layer = stacked(y, `time per sample (${unit})`, library.index.edge);
  } else {
    const measure = library.measure(state.beside, state.ran);
    const across = (field) => ({ ...ACROSS, field, title: withUnit(measure) });
    drawn = besides(scene, measure, some);
    title = measure.label;
    said = drawn.length ? message(cells, drawn.map(({ id }) => id), measure, some) : `None of these cells has ${measure.label}.`;
    layer = [rule({ y, x: across("low"), x2: { field: "high" } }), point({ y, x: across("value") })];
  }
  view.tell({ title, about, said, label: `${title}, ${about}. ${said}`, entries });
  view.chart.hidden = !drawn.length;
  return drawn.length ? view.picture.draw({ ...shape, layer }, drawn) : view.picture.clear();
}

// Phases, stacked; a sleep has an edge of its own.
function stacked(y, title, edge) {
  const sleeps = { test: "datum.sleeps" };
  const across = { ...ACROSS, field: "value", stack: "zero", title };
  return [
    { mark: { type: "bar", strokeWidth: 0.5 }, encoding: {
      y, x: across, color: colour, order: { field: "order", type: "quantitative" },
      opacity: { condition: { test: "hot === -1 || datum.id === hot", value: 1 }, value: 0.4 },
      stroke: { condition: { ...sleeps, value: edge }, value: PAPER },
      strokeDash: { condition: { ...sleeps, value: [3, 2] }, value: [1, 0] }, tooltip } },
    { mark: { type: "rule", strokeWidth: 1.5, color: INK }, encoding: {
      y, x: { field: "low", type: "quantitative", title }, x2: { field: "high" } } },
  ];
}

// From chosen cells to rows, columns and sentences.

export const MOST_MARKS = 1000;
export const OTHER = { colour: "var(--fr-muted)", shape: "circle" };

// The order of rows: by one column, what is not known last; or as they stand along x, series by series.
export function sorted(cells, rows, { by, descending, along }) {
  const turn = descending ? -1 : 1;
  const [, name, end] = /^(.*?)(?:_(low|high|n))?$/.exec(by);
  const values = cells.measures.get(by)?.mean ?? cells.measures.get(name)?.[end];
  if (values) {
    return rows.slice().sort((a, b) => (Number.isNaN(values[a]) ? (Number.isNaN(values[b]) ? a - b : 1)
      : Number.isNaN(values[b]) ? -1 : turn * (values[a] - values[b]) || a - b));
  }
  const column = cells.dims.get(by);
  const keys = (column ? [column] : along.map((each) => cells.dims.get(each))).filter(Boolean).map(({ codes }) => codes);
  const sign = column ? turn : 1;
  return rows.slice().sort((a, b) => {
    for (const key of keys) if (key[a] !== key[b]) return sign * (key[a] - key[b]);
    return a - b;
  });
}

// Colour and shape of each value of an axis: the ordered ramp for numbers (zero in grey), else colours by name.
export function series(cells, rows, name, { ordered, named, shapes }) {
  const there = proper(cells, rows, name);
  const numeric = typeof cells.dims.get(name)?.values[0] === "number";
  const zero = there[0] === "0" ? 1 : 0;
  const step = (at) => (zero && !at ? 0 : there.length - zero < 2 ? 4
    : 1 + Math.round(((at - zero) * (ordered.length - 2)) / (there.length - zero - 1)));
  return new Map(there.map((each, at) => [each, {
    colour: numeric ? ordered[step(at)] : named[at % named.length],
    shape: shapes[(at + Math.floor(at / shapes.length)) % shapes.length], place: at,
  }]));
}

// What a pointed-at mark says: its axes, its number, the interval and n.
const cell = (cells, row, names) => Object.fromEntries(names.map((name) => [name, text(cells.dims.get(name), row)]));
const spread = ({ low, high, n }, row, scale = 1) => ({
  "95 % interval": Number.isFinite(low[row]) ? `${number(low[row] * scale)}–${number(high[row] * scale)}` : "no interval",
  blocks: String(n[row]),
});

// What every mark of a measure has.
function mark({ cells, state, tones }, column, row, { label, unit }, names) {
  const [value, low, high] = [column.mean[row], column.low[row], column.high[row]];
  const { colour, shape, place = -1 } = tones?.get(text(cells.dims.get(state.colour), row)) ?? OTHER;
  return {
    id: row, colour, shape, shift: place, value, low: Number.isFinite(low) ? low : value, high: Number.isFinite(high) ? high : value,
    tip: { ...cell(cells, row, names), [label]: `${number(value)} ${unit}`, ...spread(column, row) },
  };
}

// Rows of the main picture.
export function marks(scene, measure, names) {
  const { cells, state } = scene;
  const column = cells.measures.get(measure.name);
  const [x, facet] = [state.x, state.facet].map((name) => cells.dims.get(name));
  const others = names.filter((name) => name !== state.x).map((name) => cells.dims.get(name).codes);
  return Array.from(scene.drawn, (row) => ({
    ...mark(scene, column, row, measure, names), x: text(x, row), at: x?.codes[row] ?? -1,
    facet: state.facet ? `${state.facet} ${text(facet, row)}` : "", part: facet?.codes[row] ?? -1,
    line: others.map((codes) => codes[row]).join(),
  }));
}

// The axes that tell some rows apart: those of several values, and where that is not enough those that do not always apply.
export function distinguishing(cells, rows, names) {
  const varied = names.filter((name) => proper(cells, rows, name).length > 1);
  const columns = varied.map((name) => cells.dims.get(name));
  const seen = new Set();
  for (const row of rows) seen.add(columns.reduce((key, { codes, texts }) => key * (texts.length + 1) + codes[row] + 1, 0));
  return seen.size === rows.length ? varied : names.filter((name) => valueCounts(cells, rows, name).length > 1);
}

const label = (cells, row, names) => names.map((name) => text(cells.dims.get(name), row)).join(" · ") || "the cell";

// Rows of the picture beside: another measure of the rows of the table.
export function besides(scene, measure, names) {
  const { cells } = scene;
  const column = cells.measures.get(measure.name);
  return Array.from(scene.page, (row, at) => ({ row, at })).filter(({ row }) => !Number.isNaN(column.mean[row])).map(({ row, at }) => ({
    ...mark(scene, column, row, measure, names), at, label: label(cells, row, names),
  }));
}

// Segments of the stacked phases of the rows of the table, and the unit that suits them.
export function segments({ cells, page, state, library: { index } }, names) {
  const emulated = state.ran === "emulated";
  const there = index.phases.filter(({ name, measure }) => cells.measures.has(measure) && name !== (emulated ? "forward" : "emulated"));
  const total = (row) => there.reduce((sum, { measure }) => sum + (cells.measures.get(measure).mean[row] || 0), 0);
  const [scale, unit] = Array.from(page).some((row) => total(row) >= 2000) ? [1e-3, "ms"] : [1, "µs"];
  const rate = cells.measures.get("samples_per_s");
  const [rows, used] = [[], new Map()];
  Array.from(page).forEach((row, at) => {
    const whole = total(row) * scale;
    // The first segment has the interval of the whole.
    let ends = Number.isFinite(rate.low[row]) ? { low: 1e6 * scale / rate.high[row], high: 1e6 * scale / rate.low[row] } : { low: whole, high: whole };
    there.forEach(({ name, measure, label: phase, colour }, order) => {
      const column = cells.measures.get(measure);
      const value = column.mean[row] * scale;
      if (!(value > 0)) return;
      const sleeps = name === "emulated";
      rows.push({ id: row, at, label: label(cells, row, names), phase, colour, order, value, ...ends, sleeps,
        tip: { ...cell(cells, row, names), [phase]: `${number(value)} ${unit} a sample (${number((100 * value) / whole)} %)`,
          ...spread(column, row, scale) } });
      used.set(name, { label: phase, colour, sleeps });
      ends = { low: whole, high: whole };
    });
  });
  return { rows, unit, used: [...used.values()] };
}

// Columns of the table: what tells cells apart, then every measure that a picture shows, the main one with its interval.
export function columns(cells, measures, names) {
  const axes = names.map((name) => {
    const column = cells.dims.get(name);
    return { name, title: name, numeric: typeof column.values[0] === "number", text: (row) => text(column, row) };
  });
  return [...axes, ...measures.flatMap(({ name, label: title, unit }, at) => {
    const { mean, low, high, n } = cells.measures.get(name);
    const ends = at ? [] : [["low", (row) => fine(low[row])], ["high", (row) => fine(high[row])], ["n", (row) => String(n[row])]];
    return [{ name, title, unit, numeric: true, text: (row) => fine(mean[row]) },
      ...ends.map(([end, said]) => ({ name: `${name}_${end}`, title: end, numeric: true, text: said }))];
  })];
}

// Lines of files: whole identity, every axis that applies somewhere, and every measure shown with its interval.
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

// Text that a spreadsheet would run as a formula gets an apostrophe.
function field(value) {
  if (value === null) return "";
  const said = typeof value === "string" && /^[=+\-@]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(said) ? `"${said.replaceAll('"', '""')}"` : said;
}

export function csv(lines) {
  if (!lines.length) return "";
  return `${[Object.keys(lines[0]), ...lines.map(Object.values)].map((line) => line.map(field).join(",")).join("\n")}\n`;
}

const interval = ({ low, high, n }, row) =>
  `${Number.isFinite(low[row]) ? `${number(low[row])}–${number(high[row])}` : "no interval"}, n = ${n[row]}`;

// A cell by some of its axes: "batch_size 8, num_workers 2".
function setting(cells, row, names) {
  const parts = names.map((name) => [name, text(cells.dims.get(name), row)]).filter(([, value]) => value !== NONE);
  return parts.map((part) => part.join(" ")).join(", ");
}

export const withUnit = ({ label: name, unit }) => (unit ? `${name} (${unit})` : name);

export const readout = (cells, row, measures, names) => `${setting(cells, row, names)}: ${measures.map((measure) => {
  const column = cells.measures.get(measure.name);
  return `${withUnit(measure)} ${number(column.mean[row])} (${interval(column, row)})`;
}).join("; ")}`;

// What a picture shows, in a sentence made from its numbers: its text alternative.
export function message(cells, drawn, measure, names) {
  if (!drawn.length) return "";
  const column = cells.measures.get(measure.name);
  const [most, least] = [1, -1].map((sign) =>
    drawn.reduce((best, row) => (sign * (column.mean[row] - column.mean[best]) > 0 ? row : best)));
  const told = (row) => `${number(column.mean[row])} ${measure.unit} (${interval(column, row)})${names.length ? ` at ${setting(cells, row, names)}` : ""}`;
  if (drawn.length === 1) return `${measure.label}: ${told(most)}.`;
  return `${measure.label} of ${plural(drawn.length, "cell")}: highest ${told(most)}; lowest ${told(least)}.`;
}
