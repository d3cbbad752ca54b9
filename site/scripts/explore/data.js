// The numbers: an index, and shards of cells that are read when their machine is chosen and joined into typed arrays.
// An axis is a column of codes into its sorted values (-1: it does not apply); a measure is mean, low, high and n.

import { plural, read } from "../dom.js";

export const NONE = "n/a";

export class Library {
  constructor(index) {
    this.index = index;
    this.places = new Map(index.machines.id.map((id, place) => [id, place]));
    this.ran = new Map(index.ran.map(({ name, label }) => [name, label]));
    this.measures = new Map(index.measures.map((measure) => [measure.name, measure]));
    this.shards = new Map();
  }

  // What is known of a machine before its cells are read.
  machine(id) {
    const place = this.places.get(id);
    const held = this.index.machines;
    const word = ({ values, codes }) => values[typeof codes === "number" ? codes : codes[place]];
    return { id, name: word(held.name), workloads: word(held.workloads), cells: held.cells[place] };
  }

  // A measure by its name; the forward phase of an emulated step is a sleep and is called so.
  measure(name, ran) {
    const found = this.measures.get(name);
    const sleep = this.index.phases.find((phase) => phase.name === "emulated");
    return ran === "emulated" && name === sleep.measure ? { ...found, label: `${sleep.label[0].toUpperCase()}${sleep.label.slice(1)}` } : found;
  }

  shard(place) {
    if (!this.shards.has(place)) {
      const reading = read(this.index.shards[place]);
      reading.catch(() => this.shards.delete(place));
      this.shards.set(place, reading);
    }
    return this.shards.get(place);
  }

  // All cells of some machines.
  async cells(machines) {
    const places = new Set(machines.flatMap((id) => this.index.machines.shards[this.places.get(id)]));
    const shards = await Promise.all([...places].sort((a, b) => a - b).map((place) => this.shard(place)));
    return join(this.index, shards, new Set(machines));
  }
}

const codeOf = ({ codes }, row) => (typeof codes === "number" ? codes : codes[row]);

function join(index, shards, machines) {
  const parts = shards.map((shard) => {
    const held = shard.dims.machine;
    return { shard, rows: Int32Array.from(shard.cell.keys()).filter((row) => machines.has(held.values[codeOf(held, row)])) };
  });
  const count = parts.reduce((sum, { rows }) => sum + rows.length, 0);
  const pairs = (list, made) => list.map((each) => [each.name, made(parts, each, count)]).filter(([, column]) => column);
  return {
    count,
    id: parts.flatMap(({ shard, rows }) => Array.from(rows, (row) => shard.cell[row])),
    runs: new Map(shards.flatMap((shard) => Object.entries(shard.runs))),
    dims: new Map(pairs(index.dims, axis)),
    measures: new Map(pairs(index.measures, measure)),
  };
}

// The codes of shards are of their own values: those of all are sorted, and every code is moved to its value's place.
function axis(parts, { name, default: standard }, count) {
  const all = new Map();
  for (const { shard } of parts) for (const value of shard.dims[name]?.values ?? []) all.set(String(value), value);
  const less = (a, b) => (typeof a === "number" ? a - b : String(a) < String(b) ? -1 : 1);
  const texts = [...all.keys()].sort((a, b) => less(all.get(a), all.get(b)));
  const places = new Map(texts.map((text, place) => [text, place]));
  const codes = new Int32Array(count).fill(-1);
  let at = 0;
  for (const { shard, rows } of parts) {
    const held = shard.dims[name];
    const moved = held?.values.map((value) => places.get(String(value)));
    for (const row of rows) {
      const code = held ? codeOf(held, row) : -1;
      if (code >= 0) codes[at] = moved[code];
      at += 1;
    }
  }
  return texts.length ? { codes, values: texts.map((text) => all.get(text)), texts, standard: String(standard) } : null;
}

function measure(parts, { name, logs, most = Infinity }, count) {
  const [mean, low, high] = [0, 1, 2].map(() => new Float64Array(count).fill(NaN));
  const n = new Int32Array(count);
  let at = 0;
  let known = false;
  for (const { shard, rows } of parts) {
    const held = shard.measures[name];
    for (const row of rows) {
      const value = held?.mean[row] ?? null;
      if (value !== null) {
        known = true;
        mean[at] = value;
        n[at] = (held.n ?? shard.measures.samples_per_s.n)[row];
        const reach = held.reach[row];
        if (reach !== null) {
          low[at] = logs ? value / reach : Math.max(0, value - reach);
          high[at] = logs ? value * reach : Math.min(most, value + reach);
        }
      }
      at += 1;
    }
  }
  return known ? { mean, low, high, n } : null;
}

export const text = (column, row) => (column && column.codes[row] >= 0 ? column.texts[column.codes[row]] : NONE);

// The rows whose values are among those that are wanted, axis by axis.
export function filtered(cells, filters, within = null) {
  const tests = [...filters].map(([name, texts]) => {
    const column = cells.dims.get(name);
    const names = column ? column.texts : [];
    return { codes: column?.codes, allowed: Uint8Array.from([NONE, ...names], (each) => Number(texts.has(each))) };
  });
  const some = within ?? Int32Array.from({ length: cells.count }, (_, row) => row);
  return some.filter((row) => tests.every(({ codes, allowed }) => allowed[codes ? codes[row] + 1 : 0]));
}

// The values that an axis has in some rows, in order, each with its number of rows; "n/a" last.
export function valueCounts(cells, rows, name) {
  const column = cells.dims.get(name);
  const counts = new Int32Array((column?.texts.length ?? 0) + 1);
  for (const row of rows) counts[column ? column.codes[row] + 1 : 0] += 1;
  const found = (column?.texts ?? []).map((each, place) => [each, counts[place + 1]]).filter(([, count]) => count);
  return counts[0] ? [...found, [NONE, counts[0]]] : found;
}

// The same without numbers, and without "n/a".
export const texts = (cells, rows, name) => valueCounts(cells, rows, name).map(([each]) => each);
export const proper = (cells, rows, name) => texts(cells, rows, name).filter((each) => each !== NONE);

// The axes that have more than one value in some rows; whether they apply is no value.
export function varying(cells, rows) {
  const found = [];
  for (const [name, { codes }] of cells.dims) {
    let seen = -1;
    for (const row of rows) {
      if (codes[row] < 0 || codes[row] === seen) continue;
      if (seen >= 0) {
        found.push(name);
        break;
      }
      seen = codes[row];
    }
  }
  return found;
}

// Which filter leaves nothing: one alone where there is one, else all of them.
export function explainEmpty(filters, count) {
  const said = ([name, texts]) => `${name} = ${[...texts].filter((each) => each !== NONE).join(" or ") || "none of its values"}`;
  const guilty = [...filters].flatMap((filter) => {
    const left = count(new Map([...filters].filter(([name]) => name !== filter[0])));
    return left ? [`The filter ${said(filter)} leaves nothing; without it there ${left === 1 ? "is" : "are"} ${plural(left, "cell")}.`] : [];
  });
  if (guilty.length) return guilty.join(" ");
  return filters.size ? `No cell passes these filters together: ${[...filters].map(said).join("; ")}.` : "";
}

// Versions that were measured in different ways are not to be compared.
const CAUTIONS = {
  protocol_version: "They were measured by different versions of the protocol: do not compare them.",
  workload_version: "Their workloads are of different versions: compare only cells of one.",
  device: "Some ran on a GPU and some on a CPU.",
};

export const warnings = (cells, rows) =>
  Object.keys(CAUTIONS).filter((name) => proper(cells, rows, name).length > 1).map((name) => CAUTIONS[name]).join(" ");
