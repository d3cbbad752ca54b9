// Why one machine is faster: what each stage could do alone on either, and what holds the training cells back:
// harness/analysis/compared_stages.py.

import { numbers } from "./compare_blocks.js";
import { ratios } from "./compare_match.js";
import { overall } from "./compare_stats.js";

// Samples a second of a stage; of one process where the workers' stamps are read.
function rateOf(table, { column }) {
  if (!column) return numbers(table, "samples_per_s");
  const [samples, spent] = [numbers(table, "samples"), numbers(table, column)];
  return (row) => 1e9 * (samples(row) / spent(row));
}

// The cells in which a stage is looked at; with stamps those where one process loads, if there are any.
function looked(compared, { mode, page_cache: state, column, encoded }, rules) {
  const standard = rules.axes.find(({ name }) => name === "page_cache").default;
  const chosen = compared.filter(({ axes }) => axes.mode === mode && (!state || (axes.page_cache ?? standard) === state)
    && (!encoded || rules.encoded.includes(axes.storage_format)));
  const alone = chosen.filter(({ axes }) => (axes.num_workers ?? 0) <= 1);
  return column && alone.length ? alone : chosen;
}

// Every stage of both machines side by side; those without a common cell are left out. One cell has the interval of its
// blocks, several that of Student's t over cells.
export function stages(tableA, tableB, compared, rules) {
  return rules.stages.flatMap((stage) => {
    const cells = looked(compared, stage, rules).map(({ cell_id, device, axes }) => ({ cell_id, device, axes }));
    const found = ratios(tableA, tableB, cells, rules, rateOf(tableA, stage), rateOf(tableB, stage));
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
export function heldBack(cellsA, cellsB, compared) {
  const [a, b] = [cellsA, cellsB].map((cells) => new Map(cells.map((cell) => [cell.cell_id, cell])));
  return compared.filter(({ axes }) => axes.mode === "train").map(({ cell_id, device, axes }) => ({
    cell_id, device, axes, bottleneck_a: a.get(cell_id).bottleneck, bottleneck_b: b.get(cell_id).bottleneck,
    ceilings_a: a.get(cell_id).ceilings, ceilings_b: b.get(cell_id).ceilings,
  }));
}
