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
  let c = 1;
  let d = 1 / nonzero(1 - ((a + b) * x) / (a + 1));
  let found = d;
  for (let m = 1; m <= MOST_TERMS; m += 1) {
    const even = (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / nonzero(1 + even * d);
    c = nonzero(1 + even / c);
    found *= d * c;
    const odd = (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / nonzero(1 + odd * d);
    c = nonzero(1 + odd / c);
    found *= d * c;
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

// The probability of a value under t.
export function cdf(t, df) {
  if (!(df > 0) || Number.isNaN(t)) return NaN;
  if (t === 0) return 0.5;
  return t < 0 ? tails(-t, df) / 2 : 1 - tails(t, df) / 2;
}

// The value with probability p under it. Newton's method on logs: the log of the tail is concave in the log of t, so that
// after the first step it only comes nearer.
export function quantile(p, df) {
  if (!(df > 0) || !(p > 0) || !(p < 1)) return NaN;
  if (p === 0.5) return 0;
  if (p < 0.5) return -quantile(1 - p, df);
  const wanted = 2 * (1 - p);
  let t = 2;
  for (let step = 0; step < MOST_STEPS; step += 1) {
    const tail = tails(t, df);
    const move = (Math.log(tail / wanted) * tail) / (2 * density(t, df) * t);
    t *= Math.exp(move);
    if (Math.abs(move) < 1e-12) break;
  }
  return t;
}
