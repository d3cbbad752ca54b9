// Two runs compared, in the order in which a reader is shown it. Tables as of compare_blocks.js; `rules` as of
// harness/compare_rules.py, which also says which columns either part reads.

import { believed } from "./compare_blocks.js";
import { bestOfBoth } from "./compare_best.js";
import { judged } from "./compare_cells.js";
import { compare, matching } from "./compare_match.js";
import { heldBack, stages } from "./compare_stages.js";
import { overall, repeated } from "./compare_stats.js";

// What a cell runs: a stage alone, a real training step, or an emulated one.
export const kindOf = ({ axes }) => (axes.mode === "train" && axes.step === "emulated" ? "emulated" : axes.mode);

const COUNTED = { faster: "faster", slower: "slower", same: "no difference", open: "inconclusive" };
const tally = (cells) => Object.fromEntries(Object.entries(COUNTED).map(([name, word]) =>
  [name, cells.filter(({ verdict }) => verdict === word).length]));

// What can be compared and what cannot, and how many times as fast B is: reads rules.columns.first.
export function first(tableA, tableB, rules) {
  const [a, b] = [tableA, tableB].map((table) => believed(table, rules));
  const matched = matching(a, b, rules);
  const cells = compare(a, b, rules, matched);
  const kinds = rules.kinds.flatMap((kind) => {
    const own = cells.filter((cell) => kindOf(cell) === kind);
    return own.length ? [{ kind, ...overall(own.map(({ ratio }) => ratio), rules), ...tally(own) }] : [];
  });
  return {
    cells, unmatched: matched.filter(({ reason }) => reason !== null), kinds, repeated: repeated(cells),
    overall: { ...overall(cells.map(({ ratio }) => ratio), rules), ...tally(cells) },
  };
}

// Why, and which settings are best: reads rules.columns.more too. `cells` are those of first().
export function more(tableA, tableB, cells, rules) {
  const [a, b] = [tableA, tableB].map((table) => believed(table, rules));
  const [cellsA, cellsB] = [a, b].map((table) => judged(table, rules));
  return {
    stages: stages(a, b, cells, rules), held: heldBack(cellsA, cellsB, cells),
    best: bestOfBoth(a, b, cellsA, cellsB, cells, rules),
  };
}
