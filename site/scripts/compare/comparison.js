// Two runs compared as analysis/machines.py compares them (a test holds the two together): which settings can be compared,
// and how many times as fast B is in each. Pure functions of run files; `rules` are those of questions/compare/page.py.

import jStat from "jstat";
import { moments, rowsOf } from "../cells.js";

const finite = Number.isFinite;
const critical = (confidence, df) => (df > 0 ? jStat.studentt.inv(0.5 + confidence / 2, df) : NaN);
const ends = (log, half) => ({ ratio: Math.exp(log), lo: Math.exp(log - half), hi: Math.exp(log + half) });

// How many times as much B is as A, from the moments of their logs: nothing pairs two runs, so each has its own spread
// (B. L. Welch, Biometrika 34, 1947).
export function welch(a, b, { confidence, rounding }) {
  const [ofA, ofB] = [a, b].map(({ sd, n }) => (sd <= rounding ? 0 : sd) ** 2 / n);
  const df = ofA + ofB === 0 ? a.n + b.n - 2 : (ofA + ofB) ** 2 / (ofA ** 2 / (a.n - 1) + ofB ** 2 / (b.n - 1));
  return { ...ends(b.mean - a.mean, critical(confidence, df) * Math.sqrt(ofA + ofB)), df };
}

// The geometric mean over many settings, with Student's interval over their logs.
export function overall(cells, { confidence }) {
  const { mean: middle, sd, n } = moments(cells.map(({ ratio }) => Math.log(ratio)));
  return { ...ends(middle, (critical(confidence, n - 1) * sd) / Math.sqrt(n)), cells: n };
}

export function verdict({ ratio, lo, hi }, rules) {
  if (![ratio, lo, hi].every(finite)) return rules.once;
  if (lo >= rules.same[0] && hi <= rules.same[1]) return "no difference";
  return lo > rules.confirmed_over ? "faster" : hi < rules.refuted_under ? "slower" : "inconclusive";
}

// The settings of a run with the moments of their logs. Runs of one script are compared whatever is set there: the only loop
// of its kind has the script's name for a setting, unless the other run has several such loops, as a search has.
function side(file, other) {
  const rows = rowsOf(file);
  const script = (row) => (row.script ? `${row.script}, ${row.mode}` : "");
  const [own, theirs] = [rows, rowsOf(other)].map((all) => Map.groupBy(all, script));
  return new Map(rows.map((row, at) => {
    const loop = script(row);
    const alone = loop && own.get(loop).length === 1 && (theirs.get(loop)?.length ?? 1) === 1;
    const id = alone ? loop : row.cell_id;
    const [log, sd] = [file.logs.mean[at], file.logs.sd[at] ?? NaN];
    return [`${row.device} ${id}`, { ...row, id, mean: log, sd, n: log === null ? 0 : file.measures.samples_per_s.n[at] }];
  }));
}

// Why a setting of either side cannot be compared; null where it can.
function reason(key, a, b, rules) {
  for (const [name, mine, others] of [["A", a, b], ["B", b, a]]) {
    const cell = mine.get(key);
    if (!others.has(key)) {
      const other = [...others.values()].find(({ id }) => id === cell.id);
      return other ? `different device: ${cell.device} in ${name}, ${other.device} in the other` : `only in ${name}`;
    }
    if (cell && !cell.n) return `no trial ended well in ${name}`;
  }
  const differs = rules.same_in_both.find((column) => String(a.get(key)[column] ?? "none") !== String(b.get(key)[column] ?? "none"));
  return differs ? `different ${differs}: ${[a, b].map((of, at) => `${of.get(key)[differs] ?? "none"} in ${"AB"[at]}`).join(", ")}` : null;
}

const COUNTED = { faster: "faster", slower: "slower", same: "no difference", open: "inconclusive", once: "measured once" };
const tally = (cells) => Object.fromEntries(Object.entries(COUNTED).map(([name, word]) =>
  [name, cells.filter((cell) => cell.verdict === word).length]));

// How well two runs of one machine agree: what half of the settings agree within, and how many of the intervals hold one.
function repeated(cells) {
  const [off, bounded] = [cells.map(({ ratio }) => Math.abs(Math.log(ratio))), cells.filter(({ lo }) => finite(lo))];
  return { half_within_pct: 100 * Math.expm1(jStat.median(off)), hold: bounded.filter(({ lo, hi }) => lo <= 1 && hi >= 1).length,
    cells: bounded.length };
}

// How the options of a script's loop differ, as [option, A's value, B's]; null where no loop is compared whatever is set.
function changed(pairs, { axes }) {
  const loop = pairs.find(({ a }) => a.script && a.id === `${a.script}, train`);
  return loop ? Object.entries(axes).filter(([name, usual]) => (loop.a[name] ?? usual) !== (loop.b[name] ?? usual))
    .map(([name]) => [name, loop.a[name] ?? null, loop.b[name] ?? null]) : null;
}

export function compare(fileA, fileB, rules) {
  const [a, b] = [side(fileA, fileB), side(fileB, fileA)];
  const keys = [...new Set([...a.keys(), ...b.keys()])].map((key) => ({ key, reason: reason(key, a, b, rules) }));
  const pairs = keys.filter((each) => each.reason === null).map(({ key }) => ({ a: a.get(key), b: b.get(key) }));
  const cells = pairs.map(({ a: one, b: other }) => {
    const ratio = welch(one, other, rules);
    return { ...one, ...ratio, samples_per_s_a: Math.exp(one.mean), samples_per_s_b: Math.exp(other.mean),
      n_a: one.n, n_b: other.n, verdict: verdict(ratio, rules) };
  });
  return {
    cells, overall: { ...overall(cells, rules), ...tally(cells) }, repeated: repeated(cells), changed: changed(pairs, rules),
    kinds: [...Map.groupBy(cells, ({ ran }) => ran)].map(([kind, some]) => ({ kind, ...overall(some, rules), ...tally(some) })),
    unmatched: keys.filter((each) => each.reason !== null).map(({ key, reason: why }) => ({ ...(a.get(key) ?? b.get(key)), reason: why })),
  };
}
