// Which cells of two runs can be compared, and how many times as fast B is in those: harness/analysis/machines.py.

import { at, good, isNull, logsByBlock, only, plain, rowsOf, values } from "./compare_blocks.js";
import { moments, verdict, welch } from "./compare_stats.js";

// The cells of one run: what must agree, whether it is a check, whether a trial ended well; and the devices of each id.
function side(table, rules) {
  only(table);
  const [device, mode, well] = [values(table, "device"), values(table, "mode"), good(table)];
  const same = rules.same_in_both.map((name) => [name, values(table, name)]);
  const [cells, devices] = [new Map(), new Map()];
  for (let row = 0; row < rowsOf(table); row += 1) {
    const [id, on] = [table.cell_id[row], device(row)];
    const key = `${on}\u0000${id}`;
    if (!cells.has(key)) {
      cells.set(key, { row, cell_id: id, device: on, check: mode(row) === "check", ended: false, same: {} });
      if (!devices.has(id)) devices.set(id, on);
    }
    const cell = cells.get(key);
    cell.ended ||= well(row);
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
    if (cell?.check) return "a check, which times nothing";
    if (cell && !cell.ended) return `no trial ended well in ${name}`;
  }
  for (const column of rules.same_in_both) {
    const [inA, inB] = [a, b].map(({ cells }) => String(cells.get(key).same[column] ?? "none"));
    if (inA !== inB) return `different ${column}: ${inA} in A, ${inB} in B`;
  }
  return null;
}

const axesOf = (table, row, rules) => Object.fromEntries(rules.axes.map(({ name }) => [name, plain(at(table[name], row))]));

// Of every cell of two runs whether it can be compared, and if not, why: A's first. `reason` is null where it can.
export function matching(tableA, tableB, rules) {
  const [a, b] = [tableA, tableB].map((table) => side(table, rules));
  const onlyB = [...b.cells].filter(([key]) => !a.cells.has(key));
  return [...[...a.cells].map((entry) => [entry, tableA]), ...onlyB.map((entry) => [entry, tableB])].map(
    ([[key, { cell_id, device, row }], table]) => ({ cell_id, device, reason: reason(key, a, b, rules), axes: axesOf(table, row, rules) }),
  );
}

// Some cells by any rate of both sides' rows, B ÷ A with its interval; a cell in which either side has none is left out.
export function ratios(tableA, tableB, cells, rules, rateA, rateB) {
  const [logsA, logsB] = [logsByBlock(tableA, rateA), logsByBlock(tableB, rateB)];
  return cells.flatMap((cell) => {
    const [a, b] = [logsA, logsB].map((logs) => moments(logs.get(cell.cell_id)));
    if (!a.n || !b.n) return [];
    return [{ ...cell, a: Math.exp(a.mean), b: Math.exp(b.mean), n_a: a.n, n_b: b.n, ...welch(a, b, rules) }];
  });
}

// Every cell that can be compared: samples/s of either side (geometric means over blocks), B ÷ A with its interval.
export function compare(tableA, tableB, rules, matched = matching(tableA, tableB, rules)) {
  const cells = matched.filter((cell) => cell.reason === null).map(({ cell_id, device, axes }) => ({ cell_id, device, axes }));
  return ratios(tableA, tableB, cells, rules).map(({ a, b, ...cell }) => ({
    ...cell, samples_per_s_a: a, samples_per_s_b: b, verdict: verdict(cell, rules),
  }));
}
