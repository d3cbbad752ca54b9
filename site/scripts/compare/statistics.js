// The rows of one run as a comparison reads them. A table is an object of columns, all equally long: arrays, typed arrays
// or what is the same in all rows of a cell, in which null, undefined and NaN are null; a column that is missing is null
// throughout.

// Student's t distribution, to the last few digits of a double: every interval of a few blocks rests on it. Its tail is a
// regularized incomplete beta function, computed by its continued fraction (DLMF 8.17.22) after Lentz.

const ENOUGH = 4e-16;
const MOST_TERMS = 20000;
const MOST_STEPS = 60;
const FROM_SERIES = 20;

// Γ(a + ½) ÷ Γ(a): by its asymptotic series (DLMF 5.11.8) where a is large, which smaller ones are brought to. Two values
// of the gamma function itself would cancel where there are many degrees of freedom.
function gammaRatio(a) {
  let factor = 1;
  let at = a;
  for (; at < FROM_SERIES; at += 1) factor *= at / (at + 0.5);
  const z = 1 / (at * at);
  const series = (-1 / 8 + z * (1 / 192 + z * (-1 / 640 + z * (17 / 14336 - z * 31 / 18432)))) / at;
  return factor * Math.sqrt(at) * Math.exp(series);
}

const nonzero = (value) => (Math.abs(value) < 1e-300 ? 1e-300 : value);

function fraction(a, b, x) {
  let d = 1 / nonzero(1 - ((a + b) * x) / (a + 1));
  let [c, found] = [1, d];
  for (let m = 1; m <= MOST_TERMS; m += 1) {
    const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
    for (const term of [even, odd]) {
      d = 1 / nonzero(1 + term * d);
      c = nonzero(1 + term / c);
      found *= d * c;
    }
    if (Math.abs(d * c - 1) < ENOUGH) break;
  }
  return found;
}

// The probability of lying farther from 0 than t > 0, on either side.
function tails(t, df) {
  const a = df / 2;
  const [x, rest] = [df / (df + t * t), (t * t) / (df + t * t)];
  const front = Math.exp(-a * Math.log1p((t * t) / df)) * Math.sqrt(rest / Math.PI) * gammaRatio(a);
  return x < (a + 1) / (a + 2.5) ? (front * fraction(a, 0.5, x)) / a : 1 - 2 * front * fraction(0.5, a, rest);
}

const density = (t, df) =>
  (gammaRatio(df / 2) / Math.sqrt(Math.PI * df)) * Math.exp((-(df + 1) / 2) * Math.log1p((t * t) / df));

// The t within which, on either side of 0, a value lies with this probability. Newton's method on logs: the log of the
// tail is concave in the log of t, so that after the first step it only comes nearer.
export function critical(level, df) {
  if (!(df > 0)) return NaN;
  let t = 2;
  for (let step = 0; step < MOST_STEPS; step += 1) {
    const tail = tails(t, df);
    const move = (Math.log(tail / (1 - level)) * tail) / (2 * density(t, df) * t);
    t *= Math.exp(move);
    if (Math.abs(move) < 1e-12) break;
  }
  return t;
}

// The statistics of a comparison: what analysis/blocks.py, machines.py and contrasts.py compute, to 1e-9. Pure
// functions of numbers; NaN is not known. `rules` are those of questions/compare/page.py: the margins come from Python.

// Mean, spread (n - 1 in the denominator) and number of the values that are known.
export function moments(values) {
  const known = values.filter(Number.isFinite);
  const n = known.length;
  const mean = n ? known.reduce((sum, value) => sum + value, 0) / n : NaN;
  const squares = known.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, sd: n > 1 ? Math.sqrt(squares / (n - 1)) : NaN, n };
}

export function median(list) {
  const known = Array.from(list).filter((value) => !Number.isNaN(value)).sort((a, b) => a - b);
  const middle = known.length >> 1;
  if (!known.length) return NaN;
  return known.length % 2 ? known[middle] : (known[middle - 1] + known[middle]) / 2;
}

// How well two runs of one machine agree: what half of the cells agree within, and how many of the intervals hold one.
export function repeated(cells) {
  const bounded = cells.filter(({ lo }) => Number.isFinite(lo));
  return {
    half_within_pct: 100 * Math.expm1(median(cells.map(({ ratio }) => Math.abs(Math.log(ratio))))),
    hold: bounded.filter(({ lo, hi }) => lo <= 1 && hi >= 1).length, cells: bounded.length,
  };
}

// A mean of logs as a ratio with its interval.
const ends = (log, half) => ({ ratio: Math.exp(log), lo: Math.exp(log - half), hi: Math.exp(log + half) });

// The geometric mean of the logs that are known, with its Student-t interval; one value has none.
export function geometric(logs, { confidence }) {
  const { mean, sd, n } = moments(logs);
  return { ...ends(mean, n >= 2 ? (critical(confidence, n - 1) * sd) / Math.sqrt(n) : NaN), n };
}

// How many times as much B is as A, from the moments of their logs: nothing pairs two runs, so each has its own spread
// (B. L. Welch, Biometrika 34, 1947).
export function welch(a, b, rules) {
  const [ofA, ofB] = [a, b].map(({ sd, n }) => (sd <= rules.rounding ? 0 : sd) ** 2 / n);
  const error = ofA + ofB;
  const df = error === 0 ? a.n + b.n - 2 : error ** 2 / (ofA ** 2 / (a.n - 1) + ofB ** 2 / (b.n - 1));
  return { ...ends(b.mean - a.mean, critical(rules.confidence, df) * Math.sqrt(error)), df };
}

// How many times as much B is over many cells: geometric mean of their ratios, Student's t over their logs.
export function overall(ratios, rules) {
  const { n, ...whole } = geometric(ratios.map(Math.log), rules);
  return { ...whole, cells: n };
}

// What is said of B against A: the first rule that holds.
export function verdict({ ratio, lo, hi }, rules) {
  if (![ratio, lo, hi].every(Number.isFinite)) return "inconclusive";
  if (lo >= rules.same[0] && hi <= rules.same[1]) return "no difference";
  if (lo > rules.confirmed_over) return "faster";
  return hi < rules.refuted_under ? "slower" : "inconclusive";
}

export const isNull = (value) => value === null || value === undefined || Number.isNaN(value);

// A column that holds one value a cell: `own` those values, `of` for each row the place of its cell.
export class PerCell {
  constructor(own, of) {
    this.own = own;
    this.of = of;
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

const positive = (value) => value > 0 && Number.isFinite(value);

// Whether a trial ended well and its throughput is a positive number.
export function succeeded(table) {
  const [outcome, rate] = [values(table, "outcome"), numbers(table, "samples_per_s")];
  return (row) => outcome(row) === "ok" && positive(rate(row));
}

// The same rows without the throughput of loading trials that ended well although the page cache was not as their cell
// says: cold reads that were warm, at first or by what was read ahead. A warm trial that recorded no share is taken at its
// word, a cold one is not.
export function believable(table, rules) {
  const [outcome, format, state] = ["outcome", "storage_format", "page_cache"].map((name) => values(table, name));
  const [share, rate, read, stored, cached, samples, size] = [
    "cached_before_pct", "samples_per_s", "read_bytes", "stored_bytes", "cache_bytes", "samples", "n_samples",
  ].map((name) => numbers(table, name));
  const needed = (row) => ((Number.isNaN(cached(row)) ? stored(row) : cached(row)) * samples(row)) / size(row);
  const cold = (row) => share(row) <= 100 * rules.cold && read(row) >= rules.read_least * needed(row);
  const wrong = (row) => state(row) !== "full" && (state(row) === "cold" ? !cold(row) : share(row) < 100 * rules.warm);
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
  const well = succeeded(table);
  return byBlock(table, (row) => (well(row) && positive(rate(row)) ? Math.log(rate(row)) : NaN));
}
