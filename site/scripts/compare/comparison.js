// Two runs compared, in the order in which a reader is shown it. Tables as of statistics.js; `rules` as of
// questions/compare/page.py, which also says which columns either part reads.

import {
  at, believable, byBlock, geometric, isNull, logsByBlock, median, moments, numbers, overall, repeated, rowsOf, succeeded, values,
  verdict, welch,
} from "./statistics.js";

// Which cells of two runs can be compared, and how many times as fast B is in those: analysis/machines.py.

const SERVING = new Set(["ceiling", "control"]);
const EMULATED = ["emulated", "spin"];  // schema/axes.py: EMULATED_STEPS
const known = (value) => (isNull(value) ? null : value);

// Lets runs of a script be compared whatever their loader's settings are: a cell of a script that is the only one of its mode
// gets the same id in every run. Not where the other run has several of them: then the same settings are compared.
function oneSetting(table, other) {
  const [own, theirs] = [table, other].map(loops);
  if (!own.size) return table;
  const [counts, others] = [own, theirs].map((each) => Map.groupBy(each.values(), (name) => name));
  const alone = (name) => counts.get(name).length === 1 && (others.get(name)?.length ?? 1) === 1;
  const named = new Map([...own].filter(([, name]) => alone(name)));
  return { ...table, cell_id: Array.from(table.cell_id, (id) => named.get(id) ?? id) };
}

// Cells of scripts, each with the script's name and what it runs.
function loops(table) {
  const [workload, script, mode] = ["workload", "script", "mode"].map((name) => values(table, name));
  const found = new Map();
  for (let row = 0; row < rowsOf(table); row += 1) {
    if (workload(row) === "script") found.set(table.cell_id[row], `${script(row)}, ${mode(row)}`);
  }
  return found;
}

function bothAlike(tableA, tableB, rules) {
  const [a, b] = [tableA, tableB].map((table) => believable(table, rules));
  return [oneSetting(a, b), oneSetting(b, a)];
}

// The cells of one run, by device and id: their axes, whether a trial ended well, whether the matrix asked for them, what
// must agree; and the first device of each id.
function cellsOf(table, rules) {
  const [device, suite, role] = ["device", "suite", "role"].map((name) => values(table, name));
  const same = rules.same_in_both.map((name) => [name, values(table, name)]);
  const well = succeeded(table);
  const [cells, devices] = [new Map(), new Map()];
  for (let row = 0; row < rowsOf(table); row += 1) {
    const [id, on] = [table.cell_id[row], device(row)];
    const key = `${on}\u0000${id}`;
    if (!cells.has(key)) {
      const axes = Object.fromEntries(rules.axes.map(({ name }) => [name, known(at(table[name], row))]));
      cells.set(key, { cell_id: id, device: on, suite: suite(row), axes, ended: false, asked: false, same: {} });
      if (!devices.has(id)) devices.set(id, on);
    }
    const cell = cells.get(key);
    cell.ended ||= well(row);
    cell.asked ||= !SERVING.has(role(row));
    for (const [name, column] of same) if (isNull(cell.same[name]) && !isNull(column(row))) cell.same[name] = column(row);
  }
  return { cells, devices };
}

// Why a cell of either side cannot be compared; null where it can.
function reason(key, a, b, rules) {
  for (const [name, mine, others] of [["A", a, b], ["B", b, a]]) {
    const cell = mine.cells.get(key);
    if (!others.cells.has(key)) {
      const other = others.devices.get(cell.cell_id);
      return other === undefined ? `only in ${name}` : `different device: ${cell.device} in ${name}, ${other} in the other`;
    }
    if (cell?.axes.mode === "check") return "a check, which times nothing";
    if (cell && !cell.ended) return `no trial ended well in ${name}`;
  }
  for (const column of rules.same_in_both) {
    const [inA, inB] = [a, b].map(({ cells }) => String(cells.get(key).same[column] ?? "none"));
    if (inA !== inB) return `different ${column}: ${inA} in A, ${inB} in B`;
  }
  return null;
}

// Of every cell of two runs whether it can be compared, and if not, why: A's first. `reason` is null where it can.
function matchCells(tableA, tableB, rules) {
  const [a, b] = [tableA, tableB].map((table) => cellsOf(table, rules));
  const onlyB = [...b.cells].filter(([key]) => !a.cells.has(key));
  return [...a.cells, ...onlyB].map(([key, { cell_id, device, axes }]) =>
    ({ cell_id, device, axes, axes_b: b.cells.get(key)?.axes, reason: reason(key, a, b, rules) }));
}

// Some cells by any rate of both sides' rows, B ÷ A with its interval; a cell in which either side has none is left out.
function ratios(tableA, tableB, cells, rules, rateA, rateB) {
  const [logsA, logsB] = [logsByBlock(tableA, rateA), logsByBlock(tableB, rateB)];
  return cells.flatMap((cell) => {
    const [a, b] = [logsA, logsB].map((logs) => moments(logs.get(cell.cell_id)));
    if (!a.n || !b.n) return [];
    return [{ ...cell, a: Math.exp(a.mean), b: Math.exp(b.mean), n_a: a.n, n_b: b.n, ...welch(a, b, rules) }];
  });
}

// The cells of one run: throughput, ceilings, and what holds a training cell back: analysis/estimates.py and
// ceilings.py.

const STAGES = { load: "loader", copy: "copy", compute: "compute" };

// Shares of the window's wall clock by phase, each by cell: means over blocks of the means of each. One phase's blocks
// after the other, as those of all would take most of the memory.
function shares(table, rules) {
  const [wall, well] = [numbers(table, "wall_ns"), succeeded(table)];
  return Object.fromEntries(Object.entries(rules.shares).map(([name, column]) => {
    const time = numbers(table, column);
    const blocks = byBlock(table, (row) => (well(row) ? time(row) / wall(row) : NaN));
    return [name, new Map([...blocks].map(([id, each]) => [id, moments(each).mean]))];
  }));
}

// What the device had left to do behind the window, in steps' time, by cell: means over blocks.
function drained(table) {
  const [wall, steps, time] = ["wall_ns", "steps", "host_drain_ns"].map((name) => numbers(table, name));
  const well = succeeded(table);
  const blocks = byBlock(table, (row) => (well(row) ? (time(row) * steps(row)) / wall(row) : NaN));
  return new Map([...blocks].map(([id, each]) => [id, moments(each).mean]));
}

// One estimate a cell, with its ceilings (samples/s of each stage alone; NaN where the run has no such cell).
function estimates(table, rules) {
  const [logs, parts, well] = [logsByBlock(table), shares(table, rules), succeeded(table)];
  const pss = numbers(table, "pss_peak_bytes");
  const left = drained(table);
  const memory = byBlock(table, (row) => (well(row) ? pss(row) : NaN));
  const found = cellsOf(table, rules);
  // A check times nothing.
  const timed = [...found.cells.values()].filter(({ cell_id, device, axes }) =>
    axes.mode !== "check" && found.devices.get(cell_id) === device);
  const cells = timed.map(({ ended, same, ...cell }) => {
    const { ratio: samples_per_s, ...interval } = geometric(logs.get(cell.cell_id), rules);
    return {
      ...cell, samples_per_s, ...interval, pss_peak_bytes: median(memory.get(cell.cell_id)), drained: left.get(cell.cell_id),
      shares: Object.fromEntries(Object.entries(parts).map(([name, means]) => [name, means.get(cell.cell_id)])),
    };
  });
  const alone = indexOfStages(cells, rules);
  return cells.map((cell) => {
    const ceilings = cell.axes.mode === "train" ? ceilingsOf(cell, alone, rules) : null;
    return { ...cell, ceilings, bottleneck: bottleneck({ ...cell, ceilings }, rules) };
  });
}

// Finds the cell in which one stage of a training cell runs alone: every axis that applies there has the training cell's
// value, or its default where it does not apply in training. Stages differ in few sets of axes, each with its own index.
function indexOfStages(cells, rules) {
  const defaults = new Map(rules.axes.map((axis) => [axis.name, axis.default]));
  const kinds = new Map();
  for (const cell of cells) {
    if (!(cell.axes.mode in STAGES)) continue;
    const names = rules.axes.map(({ name }) => name).filter((name) => name !== "mode" && cell.axes[name] !== null);
    const kind = JSON.stringify([cell.axes.mode, names]);
    if (!kinds.has(kind)) kinds.set(kind, { mode: cell.axes.mode, names, held: new Map() });
    const { held } = kinds.get(kind);
    const key = JSON.stringify(names.map((name) => cell.axes[name]));
    if (!held.has(key)) held.set(key, cell);
  }
  return ({ axes }, mode) => {
    for (const kind of kinds.values()) {
      if (kind.mode !== mode) continue;
      const found = kind.held.get(JSON.stringify(kind.names.map((name) => axes[name] ?? defaults.get(name))));
      if (found) return found;
    }
    return undefined;
  };
}

function ceilingsOf(cell, alone, rules) {
  const found = Object.fromEntries(rules.ceilings.map((stage) => [stage, NaN]));
  const emulated = EMULATED.includes(cell.axes.step);
  if ((cell.axes.parallel ?? "none") === "none") {
    for (const stage of rules.ceilings) {
      if ((stage === "copy" && cell.device === "cpu") || (stage === "compute" && emulated)) continue;
      found[stage] = alone(cell, stage)?.samples_per_s ?? NaN;
    }
  }
  if (emulated && cell.axes.step_ms > 0) found.compute = (1000 * cell.axes.batch_size) / cell.axes.step_ms;
  return found;
}

// What holds a cell back, in words: its ceilings where loading and computing are both known, else the phase with half of
// the wall clock; and launching, where neither ceilings name another stage nor the host waits for anything.
function bottleneck(cell, rules) {
  if (cell.axes.mode !== "train") return cell.axes.mode in STAGES ? `${STAGES[cell.axes.mode]} alone` : undefined;
  if (Number.isNaN(cell.samples_per_s)) return "unknown";
  const named = byCeilings(cell, rules);
  const word = named ?? byShares(cell, rules);
  if ((named === null || word === "compute-bound") && launches(cell, rules)) return "launch-bound";
  return word === "compute-bound" && EMULATED.includes(cell.axes.step) ? "emulated-step-bound" : word;
}

// Copies and step that take turns are one bound, named by the longer of them.
function byCeilings({ axes, ceilings }, rules) {
  const { load, copy, compute } = ceilings;
  if (!(load > 0) || !(compute > 0)) return null;
  const hides = axes.step === "emulated" ? axes.pin_memory && axes.non_blocking : axes.prefetcher === "stream";
  const bounds = hides || !(copy > 0)
    ? rules.ceilings.filter((stage) => ceilings[stage] > 0).map((stage) => [stage, ceilings[stage]])
    : [["load", load], [compute < copy ? "compute" : "copy", 1 / (1 / copy + 1 / compute)]];
  const [[stage, first], [, second]] = bounds.sort(([, a], [, b]) => a - b);
  return second <= rules.balanced_within * first ? "balanced" : `${STAGES[stage]}-bound`;
}

const sharing = (parts) => (...names) => names.reduce((total, name) => total + (Number.isNaN(parts[name]) ? 0 : parts[name]), 0);

// Whether the host launches all the time, and the device is done with a step before the host is with the next.
function launches({ device, axes, drained: left, shares: parts }, rules) {
  if (device !== "cuda" || axes.step !== "real" || !(left < 1)) return false;
  if (Object.entries(rules.waits).some(([axis, value]) => axes[axis] === value) || (axes.debug ?? "off") !== "off") return false;
  // A copy that the host waits for waits for the step before it as well.
  const copies = axes.pin_memory && axes.non_blocking ? ["h2d"] : [];
  return sharing(parts)("forward", "backward", "optimizer", "other", ...copies) >= rules.launching;
}

function byShares({ device, shares: parts }, rules) {
  const share = sharing(parts);
  if (Number.isNaN(parts.fetch)) return "unknown";
  const spent = { load: share("fetch"), copy: share("h2d"), compute: share("forward", "backward", "optimizer") };
  if (device === "cuda" && !Number.isNaN(parts.device_idle)) {
    // The host runs ahead of the device: its waiting counts only while the device is idle too.
    spent.load = Math.min(spent.load, share("device_idle"));
    spent.copy = share("device_h2d_exposed");
    spent.compute = share("device_forward", "device_backward", "device_optimizer");
  }
  const [most, value] = Object.entries(spent).reduce((a, b) => (b[1] > a[1] || (b[1] === a[1] && b[0] > a[0]) ? b : a));
  return value >= rules.most ? `${STAGES[most]}-bound` : "balanced";
}

// Why one machine is faster: what each stage could do alone on either, and what holds the training cells back:
// questions/compare/analysis.py.

// Samples a second of a stage; of one process where the workers' stamps are read.
function rateOf(table, { column }) {
  if (!column) return numbers(table, "samples_per_s");
  const [samples, spent] = [numbers(table, "samples"), numbers(table, column)];
  return (row) => 1e9 * (samples(row) / spent(row));
}

// The cells in which a stage is looked at; with stamps those where one process loads, if there are any.
function cellsOfStage(compared, { mode, page_cache: state, column, encoded }, rules) {
  const standard = rules.axes.find(({ name }) => name === "page_cache").default;
  const chosen = compared.filter(({ axes }) => axes.mode === mode && (!state || (axes.page_cache ?? standard) === state)
    && (!encoded || rules.encoded.includes(axes.storage_format)));
  const alone = chosen.filter(({ axes }) => (axes.num_workers ?? 0) <= 1);
  return column && alone.length ? alone : chosen;
}

// Every stage of both machines side by side; those without a common cell are left out. One cell has the interval of its
// blocks, several that of Student's t over cells.
function stages(tableA, tableB, compared, rules) {
  return rules.stages.flatMap((stage) => {
    const found = ratios(tableA, tableB, cellsOfStage(compared, stage, rules), rules, rateOf(tableA, stage), rateOf(tableB, stage));
    if (!found.length) return [];
    const each = found.map(({ ratio }) => ratio);
    const { ratio, lo, hi } = found.length > 1 ? overall(each, rules) : found[0];
    const [a, b] = ["a", "b"].map((side) => overall(found.map((cell) => cell[side]), rules).ratio);
    const [least, most] = [Math.min, Math.max].map((end) => each.reduce((one, other) => end(one, other)));
    const { n_a, n_b } = found.length > 1 ? {} : found[0];
    return [{ stage: stage.name, a, b, ratio, lo, hi, least, most, cells: found.length, n_a, n_b }];
  });
}

// What holds each compared training cell back on either machine, with its ceilings there.
function bottlenecks(cellsA, cellsB, compared) {
  const [a, b] = [cellsA, cellsB].map((cells) => new Map(cells.map((cell) => [cell.cell_id, cell])));
  return compared.filter(({ axes }) => axes.mode === "train").map(({ cell_id, device, axes }) => ({
    cell_id, device, axes, bottleneck_a: a.get(cell_id).bottleneck, bottleneck_b: b.get(cell_id).bottleneck,
    ceilings_a: a.get(cell_id).ceilings, ceilings_b: b.get(cell_id).ceilings,
  }));
}

// The best settings of each task: analysis/summary.py for one run, compared.py for two.

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
  const others = logs.get(a);
  return geometric(logs.get(b).map((log, block) => log - others[block]), rules);
}

// What a cell costs, dearest reason first: workers, memory, knobs off their default; then how slow it is.
function cost(cell, rules) {
  const knobs = rules.axes.filter(({ name }) => !rules.conditions.includes(name));
  const changed = knobs.filter((axis) => filled(cell, axis) !== axis.default).length;
  return [cell.axes.num_workers ?? 0, rounded(cell.pss_peak_bytes / rules.memory_step), changed, -cell.samples_per_s];
}

// Each task of a run with the cells that cannot be told from its best, cheapest first. `cells` are those of estimates(); what
// only serves other cells is no candidate.
function best(cells, logs, rules) {
  const replica = rules.axes.find(({ name }) => name === "replica");
  const some = cells.filter((cell) => cell.asked && !rules.apart.includes(cell.suite) && filled(cell, replica) === 0
    && !Number.isNaN(cell.samples_per_s));
  return new Map([...Map.groupBy(some, (cell) => taskOf(cell, rules))].map(([task, group]) => {
    const top = group.reduce((most, cell) => (cell.samples_per_s > most.samples_per_s ? cell : most));
    const members = group
      .filter((cell) => cell === top || paired(logs, top.cell_id, cell.cell_id, rules).hi >= 1)
      .map((cell) => ({ cell, costs: cost(cell, rules) }))
      .sort((a, b) => a.costs.reduce((order, value, at) => order || ascending(value, b.costs[at]), 0))
      .map(({ cell }) => cell);
    return [task, { members, candidates: group.length }];
  }));
}

// The tasks of which both runs have a cell in common: the cheapest of either's best set, B's ÷ A's with its interval, and
// what either's setting reaches of the other's best there (NaN where it was not measured there).
function bestOfBoth(tableA, tableB, cellsA, cellsB, compared, rules) {
  const common = new Set(compared.map((cell) => taskOf(cell, rules)));
  const [a, b] = [[tableA, cellsA], [tableB, cellsB]].map(([table, cells]) => {
    const logs = logsByBlock(table);
    return { logs, tasks: best(cells, logs, rules) };
  });
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

// What a cell runs: a stage alone, a real training step, or an emulated one.
export const kindOf = ({ axes }) => (axes.mode === "train" && EMULATED.includes(axes.step) ? "emulated" : axes.mode);

const COUNTED = { faster: "faster", slower: "slower", same: "no difference", open: "inconclusive" };
const tally = (cells) => Object.fromEntries(Object.entries(COUNTED).map(([name, word]) =>
  [name, cells.filter(({ verdict }) => verdict === word).length]));

// How the settings of a script differ, as [axis, A's value, B's]; null where none are, or the same settings are compared, as with
// a search. What does not apply is at its default.
function changed(cells, rules) {
  const loop = cells.find(({ axes, cell_id }) => axes.workload === "script" && cell_id === `${axes.script}, train`);
  if (!loop) return null;
  const [a, b] = [loop.axes, loop.axes_b];
  return rules.axes.filter(({ name, default: standard }) => (a[name] ?? standard) !== (b[name] ?? standard))
    .map(({ name }) => [name, a[name], b[name]]);
}

// How many times as fast B is, and what cannot be compared: reads rules.columns.first.
export function compare(tableA, tableB, rules) {
  const [a, b] = bothAlike(tableA, tableB, rules);
  const matched = matchCells(a, b, rules);
  const cells = ratios(a, b, matched.filter(({ reason }) => reason === null), rules)
    .map(({ a: samples_per_s_a, b: samples_per_s_b, ...cell }) =>
      ({ ...cell, samples_per_s_a, samples_per_s_b, verdict: verdict(/** @type {any} */ (cell), rules) }));
  const kinds = rules.kinds.flatMap((kind) => {
    const own = cells.filter((cell) => kindOf(cell) === kind);
    return own.length ? [{ kind, ...overall(own.map(({ ratio }) => ratio), rules), ...tally(own) }] : [];
  });
  return {
    cells, unmatched: matched.filter(({ reason }) => reason !== null), kinds, repeated: repeated(cells), changed: changed(cells, rules),
    overall: { ...overall(cells.map(({ ratio }) => ratio), rules), ...tally(cells) },
  };
}

// Why, and which settings are best: reads rules.columns.more too. `cells` are those of compare().
export function explain(tableA, tableB, cells, rules) {
  const [a, b] = bothAlike(tableA, tableB, rules);
  const [cellsA, cellsB] = [a, b].map((table) => estimates(table, rules));
  return {
    stages: stages(a, b, cells, rules), held: bottlenecks(cellsA, cellsB, cells),
    best: bestOfBoth(a, b, cellsA, cellsB, cells, rules),
  };
}
