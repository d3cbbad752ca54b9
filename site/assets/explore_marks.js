// From chosen cells to the rows that pictures draw and to the columns of the table.

import { NONE, held, text } from "./explore_data.js";
import { fine, interval, number, setting, withUnit } from "./explore_words.js";

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
