// The file of a run (questions/explore/run_files.py) as rows: a plain object a setting, with every option by its name
// (null where it does not apply) and every measure as NAME, NAME_low, NAME_high and NAME_n.

export const NONE = "n/a";

const coded = ({ values, codes }, at) => {
  const code = Array.isArray(codes) ? codes[at] : codes;
  return code < 0 ? null : values[code];
};

function measured(file, { name, logs, most = Infinity }, at) {
  const held = file.measures[name];
  const [mean, reach] = [held?.mean[at] ?? null, held?.reach[at] ?? null];
  const [low, high] = reach === null ? [null, null]
    : logs ? [mean / reach, mean * reach] : [Math.max(0, mean - reach), Math.min(most, mean + reach)];
  const n = mean === null ? 0 : (held.n ?? file.measures.samples_per_s.n)[at];
  return { [name]: mean, [`${name}_low`]: low, [`${name}_high`]: high, [`${name}_n`]: n };
}

export function rowsOf(file, measures = []) {
  const dims = Object.entries(file.dims);
  return file.cell.map((id, at) => Object.assign({ cell_id: id },
    ...dims.map(([name, column]) => ({ [name]: coded(column, at) })), ...measures.map((measure) => measured(file, measure, at))));
}

export const text = (row, name) => (row[name] === null || row[name] === undefined ? NONE : String(row[name]));

// The values of an option in some rows with their number of rows: in order, "n/a" last.
export function counts(rows, name) {
  const found = new Map();
  for (const row of rows) found.set(text(row, name), { value: row[name], count: (found.get(text(row, name))?.count ?? 0) + 1 });
  const less = (a, b) => (typeof a === "number" ? a - b : String(a) < String(b) ? -1 : 1);
  return [...found].sort(([one, a], [other, b]) => Number(one === NONE) - Number(other === NONE) || less(a.value, b.value))
    .map(([said, { count }]) => [said, count]);
}

export const proper = (rows, name) => counts(rows, name).map(([said]) => said).filter((said) => said !== NONE);

// The options that have several values in some rows; whether one applies is no value.
export const varying = (rows, names) => names.filter((name) => {
  const first = rows.find((row) => text(row, name) !== NONE);
  return first && rows.some((row) => ![NONE, text(first, name)].includes(text(row, name)));
});

// A setting in words: "batch_size 8, num_workers 2".
export const setting = (row, names) => names.filter((name) => text(row, name) !== NONE).map((name) => `${name} ${text(row, name)}`).join(", ");

// Mean, spread (n - 1 in the denominator) and number of some values.
export function moments(values) {
  const n = values.length;
  const mean = n ? values.reduce((sum, value) => sum + value, 0) / n : NaN;
  return { mean, sd: n > 1 ? Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (n - 1)) : NaN, n };
}
