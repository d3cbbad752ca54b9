// The statistics of a comparison: what harness/analysis/blocks.py, machines.py and contrasts.py compute, to 1e-9. Pure
// functions of numbers; NaN is not known. `rules` are those of harness/compare_rules.py: the margins come from Python.

import { quantile } from "./compare_student.js";

export { cdf, quantile } from "./compare_student.js";

// Mean, spread (n - 1 in the denominator) and number of the values that are known.
export function moments(values) {
  let n = 0;
  let total = 0;
  for (const value of values) {
    if (Number.isFinite(value)) {
      n += 1;
      total += value;
    }
  }
  const mean = n ? total / n : NaN;
  let squares = 0;
  for (const value of values) if (Number.isFinite(value)) squares += (value - mean) ** 2;
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

// Half-width of a Student-t interval around an estimate with this standard error.
export const reach = (error, df, level) => quantile(0.5 + level / 2, df) * error;

// The same for the mean of n values of this spread; one value has none.
export const halfWidth = (sd, n, level) => (n >= 2 ? reach(sd / Math.sqrt(n), n - 1, level) : NaN);

// A mean of logs as a ratio with its interval.
const ends = (log, half) => ({ ratio: Math.exp(log), lo: Math.exp(log - half), hi: Math.exp(log + half) });

// How many times as much B is as A, from the moments of their logs: nothing pairs two runs, so each has its own spread
// (B. L. Welch, Biometrika 34, 1947).
export function welch(a, b, rules) {
  const [ofA, ofB] = [a, b].map(({ sd, n }) => (sd <= rules.rounding ? 0 : sd) ** 2 / n);
  const error = ofA + ofB;
  const df = error === 0 ? a.n + b.n - 2 : error ** 2 / (ofA ** 2 / (a.n - 1) + ofB ** 2 / (b.n - 1));
  return { ...ends(b.mean - a.mean, reach(Math.sqrt(error), df, rules.confidence)), df };
}

// How many times as much B is over many cells: geometric mean of their ratios, Student's t over their logs.
export function overall(ratios, rules) {
  const { mean, sd, n } = moments(ratios.map(Math.log));
  return { ...ends(mean, halfWidth(sd, n, rules.confidence)), cells: n };
}

// What is said of B against A: the first rule that holds.
export function verdict({ ratio, lo, hi }, rules) {
  if (![ratio, lo, hi].every(Number.isFinite)) return "inconclusive";
  if (lo >= rules.same[0] && hi <= rules.same[1]) return "no difference";
  if (lo > rules.confirmed_over) return "faster";
  return hi < rules.refuted_under ? "slower" : "inconclusive";
}
