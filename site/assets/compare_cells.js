// The cells of one run: throughput, ceilings, and what holds a training cell back: harness/analysis/estimates.py and
// ceilings.py.

import { at, byBlock, good, logsByBlock, numbers, plain, rowsOf, values } from "./compare_blocks.js";
import { halfWidth, median, moments } from "./compare_stats.js";

const BOUND = { load: "loader-bound", copy: "copy-bound", compute: "compute-bound" };
const ALONE = { load: "loader alone", copy: "copy alone", compute: "compute alone" };
const SERVING = new Set(["ceiling", "control"]);

const mean = (list) => moments(list).mean;

// What each cell is, from its first row; whether the matrix asked for it. A check times nothing and is none.
function identities(table, rules) {
  const [mode, role, suite, device] = ["mode", "role", "suite", "device"].map((name) => values(table, name));
  const found = new Map();
  for (let row = 0; row < rowsOf(table); row += 1) {
    const id = table.cell_id[row];
    if (!found.has(id)) {
      const axes = Object.fromEntries(rules.axes.map(({ name }) => [name, plain(at(table[name], row))]));
      found.set(id, { cell_id: id, device: device(row), suite: suite(row), check: mode(row) === "check", axes, asked: false });
    }
    found.get(id).asked ||= !SERVING.has(role(row));
  }
  return [...found.values()].filter((cell) => !cell.check);
}

// Shares of the window's wall clock by phase, each by cell: means over blocks of the means of each. One phase's blocks
// after the other, as those of all would take most of the memory.
function shares(table, rules) {
  const [wall, well] = [numbers(table, "wall_ns"), good(table)];
  return Object.fromEntries(Object.entries(rules.shares).map(([name, column]) => {
    const time = numbers(table, column);
    const blocks = byBlock(table, (row) => (well(row) ? time(row) / wall(row) : NaN));
    return [name, new Map([...blocks].map(([id, each]) => [id, mean(each)]))];
  }));
}

// One estimate a cell, with its ceilings (samples/s of each stage alone; NaN where the run has no such cell).
export function judged(table, rules) {
  const [logs, parts, well] = [logsByBlock(table), shares(table, rules), good(table)];
  const pss = numbers(table, "pss_peak_bytes");
  const memory = byBlock(table, (row) => (well(row) ? pss(row) : NaN));
  const cells = identities(table, rules).map(({ check: _, ...cell }) => {
    const { mean: log, sd, n } = moments(logs.get(cell.cell_id));
    const half = halfWidth(sd, n, rules.confidence);
    return {
      ...cell, n, samples_per_s: Math.exp(log), lo: Math.exp(log - half), hi: Math.exp(log + half),
      pss_peak_bytes: median(memory.get(cell.cell_id)),
      shares: Object.fromEntries(Object.entries(parts).map(([name, means]) => [name, means.get(cell.cell_id)])),
    };
  });
  const alone = finder(cells, rules);
  return cells.map((cell) => {
    const ceilings = cell.axes.mode === "train" ? ceilingsOf(cell, alone, rules) : null;
    return { ...cell, ceilings, bottleneck: bottleneck({ ...cell, ceilings }, rules) };
  });
}

// Finds the cell in which one stage of a training cell runs alone: every axis that applies there has the training cell's
// value, or its default where it does not apply in training. Stages differ in few sets of axes, each with its own index.
function finder(cells, rules) {
  const defaults = new Map(rules.axes.map((axis) => [axis.name, axis.default]));
  const kinds = new Map();
  for (const cell of cells) {
    if (!(cell.axes.mode in ALONE)) continue;
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
  const emulated = cell.axes.step === "emulated";
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
// the wall clock.
export function bottleneck(cell, rules) {
  if (cell.axes.mode !== "train") return ALONE[cell.axes.mode];
  const word = Number.isNaN(cell.samples_per_s) ? "unknown" : (byCeilings(cell, rules) ?? byShares(cell, rules));
  return word === BOUND.compute && cell.axes.step === "emulated" ? "emulated-step-bound" : word;
}

function byCeilings({ ceilings }, rules) {
  if (!(ceilings.load > 0) || !(ceilings.compute > 0)) return null;
  const [first, second] = rules.ceilings.filter((stage) => ceilings[stage] > 0).sort((a, b) => ceilings[a] - ceilings[b]);
  return ceilings[second] <= rules.balanced_within * ceilings[first] ? "balanced" : BOUND[first];
}

function byShares({ device, shares: parts }, rules) {
  const share = (...names) => names.reduce((total, name) => total + (Number.isNaN(parts[name]) ? 0 : parts[name]), 0);
  if (Number.isNaN(parts.fetch)) return "unknown";
  const spent = { load: share("fetch"), copy: share("h2d"), compute: share("forward", "backward", "optimizer") };
  if (device === "cuda" && !Number.isNaN(parts.device_idle)) {
    // The host runs ahead of the device: its waiting counts only while the device is idle too.
    spent.load = Math.min(spent.load, share("device_idle"));
    spent.copy = share("device_h2d_exposed");
    spent.compute = share("device_forward", "device_backward", "device_optimizer");
  }
  const [most, value] = Object.entries(spent).reduce((a, b) => (b[1] > a[1] || (b[1] === a[1] && b[0] > a[0]) ? b : a));
  return value >= rules.most ? BOUND[most] : "balanced";
}
