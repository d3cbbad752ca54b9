// The best settings of each task: harness/analysis/summary.py for one run, compared.py for two.

import { logsByBlock } from "./compare_blocks.js";
import { halfWidth, moments, welch } from "./compare_stats.js";

// An axis of a cell, at its frozen default where it does not apply.
const filled = ({ axes }, { name, default: standard }) => axes[name] ?? standard;

// What a cell is measured for, settings left out.
function taskOf(cell, rules) {
  const conditions = rules.axes.filter(({ name }) => rules.conditions.includes(name));
  return JSON.stringify([cell.device, ...conditions.map((axis) => filled(cell, axis))]);
}

// Whole numbers as numpy.rint has them: halves go to the even neighbour.
function rounded(value) {
  const low = Math.floor(value);
  if (value - low !== 0.5) return Math.round(value);
  return low % 2 === 0 ? low : low + 1;
}

// Numbers ascending, what is not known last.
const ascending = (a, b) => (Number.isNaN(a) ? (Number.isNaN(b) ? 0 : 1) : Number.isNaN(b) ? -1 : a - b);

// B ÷ A within one run, block by block.
function paired(logs, a, b, rules) {
  const [ofA, ofB] = [logs.get(a), logs.get(b)];
  const { mean, sd, n } = moments(ofB.map((log, block) => log - ofA[block]));
  const half = halfWidth(sd, n, rules.confidence);
  return { ratio: Math.exp(mean), lo: Math.exp(mean - half), hi: Math.exp(mean + half), pairs: n };
}

// What a cell costs, dearest reason first: workers, memory, knobs off their default; then how slow it is.
function cost(cell, rules) {
  const knobs = rules.axes.filter(({ name }) => !rules.conditions.includes(name));
  const changed = knobs.filter((axis) => filled(cell, axis) !== axis.default).length;
  return [cell.axes.num_workers ?? 0, rounded(cell.pss_peak_bytes / rules.memory_step), changed, -cell.samples_per_s];
}

function bestOf(task, group, logs, rules) {
  const top = group.reduce((first, cell) => (cell.samples_per_s > first.samples_per_s ? cell : first));
  const members = group
    .map((cell) => ({ ...cell, is_best: cell === top, to_best: paired(logs, top.cell_id, cell.cell_id, rules) }))
    .filter((cell) => cell.is_best || cell.to_best.hi >= 1)
    .map((cell) => ({ cell, costs: cost(cell, rules) }))
    .sort((a, b) => a.costs.reduce((order, value, at) => order || ascending(value, b.costs[at]), 0));
  return { task, members: members.map(({ cell }) => cell), candidates: group.length };
}

// Each task of a run with the cells that cannot be told from its best, cheapest first. `cells` are those of judged(); what
// only serves other cells is no candidate.
export function best(table, cells, rules) {
  const replica = rules.axes.find(({ name }) => name === "replica");
  const [logs, tasks] = [logsByBlock(table), new Map()];
  for (const cell of cells) {
    if (!cell.asked || rules.apart.includes(cell.suite) || filled(cell, replica) !== 0 || Number.isNaN(cell.samples_per_s)) continue;
    const task = taskOf(cell, rules);
    if (!tasks.has(task)) tasks.set(task, []);
    tasks.get(task).push(cell);
  }
  return [...tasks].map(([task, group]) => bestOf(task, group, logs, rules));
}

// The tasks of which both runs have a cell in common: the cheapest of either's best set, B's ÷ A's with its interval, and
// what either's setting reaches of the other's best there (NaN where it was not measured there).
export function bestOfBoth(tableA, tableB, cellsA, cellsB, compared, rules) {
  const common = new Set(compared.map((cell) => taskOf(cell, rules)));
  const [a, b] = [[tableA, cellsA], [tableB, cellsB]].map(([table, cells]) => ({
    logs: logsByBlock(table), tasks: new Map(best(table, cells, rules).map((each) => [each.task, each])),
  }));
  const there = ({ logs }, id, top) => (logs.has(id) ? paired(logs, top.cell_id, id, rules).ratio : NaN);
  return [...a.tasks].filter(([task]) => b.tasks.has(task) && common.has(task)).map(([task, mine]) => {
    const others = b.tasks.get(task);
    const [first, second] = [mine.members[0], others.members[0]];
    const [ofA, ofB] = [moments(a.logs.get(first.cell_id)), moments(b.logs.get(second.cell_id))];
    const ids = new Set(others.members.map(({ cell_id }) => cell_id));
    return {
      task, a: first, b: second, ...welch(ofA, ofB, rules), n_a: ofA.n, n_b: ofB.n,
      candidates_a: mine.candidates, candidates_b: others.candidates,
      in_both: mine.members.filter(({ cell_id }) => ids.has(cell_id)).length,
      a_on_b: there(b, first.cell_id, second), b_on_a: there(a, second.cell_id, first),
    };
  });
}
