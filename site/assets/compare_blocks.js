// The rows of one run as a comparison reads them. A table is an object of columns, all equally long: arrays, typed arrays
// or what is the same in all rows of a cell, in which null, undefined and NaN are null; a column that is missing is null
// throughout.

export const isNull = (value) => value === null || value === undefined || Number.isNaN(value);

// A value as others can hold and compare it: 64-bit integers come as BigInt.
export const plain = (value) => (isNull(value) ? null : typeof value === "bigint" ? Number(value) : value);

// A column that holds one value a cell: `own` those values, `of` for each row the place of its cell.
export class PerCell {
  constructor(own, of) {
    Object.assign(this, { own, of });
  }
}

export const at = (column, row) => (column instanceof PerCell ? column.own[column.of[row]] : column?.[row]);

export const rowsOf = (table) => table.cell_id.length;

// A column row by row, as values or as numbers.
export const values = (table, name) => (row) => at(table[name], row);
export const numbers = (table, name) => (row) => {
  const value = at(table[name], row);
  return isNull(value) ? NaN : Number(value);
};

// Blocks of several runs are no repetitions of each other.
export function only(table) {
  const runs = new Set(table.run_id);
  if (runs.size > 1) throw new Error(`${runs.size} runs on one side (${[...runs].sort().join(", ")}); expected one: compare them two at a time`);
}

const positive = (value) => value > 0 && Number.isFinite(value);

// Whether a trial ended well and its throughput is a positive number.
export function good(table) {
  const [outcome, rate] = [values(table, "outcome"), numbers(table, "samples_per_s")];
  return (row) => outcome(row) === "ok" && positive(rate(row));
}

// The same rows without the throughput of loading trials that ended well although the page cache was not as their cell
// says: cold reads that were warm. A warm trial that recorded no share is taken at its word, a cold one is not.
export function believed(table, rules) {
  const [outcome, format, state] = ["outcome", "storage_format", "page_cache"].map((name) => values(table, name));
  const [share, rate] = ["cached_before_pct", "samples_per_s"].map((name) => numbers(table, name));
  const wrong = (row) => (state(row) === "cold" ? !(share(row) <= 100 * rules.cold) : share(row) < 100 * rules.warm);
  const doubted = (row) => !isNull(format(row)) && outcome(row) === "ok" && wrong(row);
  return { ...table, samples_per_s: Float64Array.from({ length: rowsOf(table) }, (_, row) => (doubted(row) ? NaN : rate(row))) };
}

// Where each row's cell and block stand; worked out once for the columns of a table.
const layouts = new WeakMap();

function layout(table) {
  if (!layouts.has(table.cell_id)) {
    const block = numbers(table, "block");
    const own = Float64Array.from({ length: rowsOf(table) }, (_, row) => block(row));
    const [cells, blocks] = [new Map(), new Map([...new Set(own)].sort((a, b) => a - b).map((each, place) => [each, place]))];
    const cell = Int32Array.from(own, (_, row) => {
      const id = table.cell_id[row];
      if (!cells.has(id)) cells.set(id, cells.size);
      return cells.get(id);
    });
    layouts.set(table.cell_id, { ids: [...cells.keys()], cell, block: Int32Array.from(own, (each) => blocks.get(each)), blocks: blocks.size });
  }
  return layouts.get(table.cell_id);
}

// Means of a value of each cell in each block in which it is known: cell_id to an array by block, NaN where it is not (a
// control cell runs several times in a block).
export function byBlock(table, value) {
  const { ids, cell, block, blocks } = layout(table);
  const [means, counts] = [new Float64Array(ids.length * blocks), new Int32Array(ids.length * blocks)];
  for (let row = 0; row < cell.length; row += 1) {
    const known = value(row);
    if (!Number.isNaN(known)) {
      means[cell[row] * blocks + block[row]] += known;
      counts[cell[row] * blocks + block[row]] += 1;
    }
  }
  for (let at = 0; at < means.length; at += 1) means[at] = counts[at] ? means[at] / counts[at] : NaN;
  return new Map(ids.map((id, place) => [id, means.subarray(place * blocks, (place + 1) * blocks)]));
}

// The same of the log of a rate, samples/s by default; of trials that ended well and where it is a positive number.
export function logsByBlock(table, rate = numbers(table, "samples_per_s")) {
  const well = good(table);
  return byBlock(table, (row) => (well(row) && positive(rate(row)) ? Math.log(rate(row)) : NaN));
}
