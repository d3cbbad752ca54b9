// Numbers, settings and intervals in words, and the table as files.

import { NONE, held, text } from "./explore_data.js";

const digits = (count) => new Intl.NumberFormat("en", { maximumSignificantDigits: count });
const [three, five] = [digits(3), digits(5)];

export const number = (value) => (Number.isFinite(value) ? three.format(value) : "–");
export const fine = (value) => (Number.isFinite(value) ? five.format(value) : "–");
export const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

export function interval({ low, high, n }, row) {
  return Number.isFinite(low[row])
    ? `95 % interval ${number(low[row])} to ${number(high[row])}, n = ${n[row]}` : `n = ${n[row]}: no interval`;
}

// A cell by some of its axes: "batch_size 8, num_workers 2".
export function setting(cells, row, names) {
  const parts = names.filter((name) => text(cells.dims.get(name), row) !== NONE);
  return parts.map((name) => `${name} ${text(cells.dims.get(name), row)}`).join(", ");
}

export const withUnit = (measure) => (measure.unit ? `${measure.label} (${measure.unit})` : measure.label);

// What the picture shows, in a sentence made from its numbers: its text alternative.
export function message(cells, drawn, measure, column, names) {
  if (!drawn.length) return "";
  let [least, most] = [drawn[0], drawn[0]];
  for (const row of drawn) {
    if (column.mean[row] < column.mean[least]) least = row;
    if (column.mean[row] > column.mean[most]) most = row;
  }
  const told = (row) => `${number(column.mean[row])} ${measure.unit} (${interval(column, row)})`;
  const at = (row) => (names.length ? ` at ${setting(cells, row, names)}` : "");
  if (drawn.length === 1) return `${measure.label}: ${told(most)}${at(most)}.`;
  return `${measure.label} of ${plural(drawn.length, "cell")}: highest ${told(most)}${at(most)}; lowest ${told(least)}${at(least)}.`;
}

// Which filter leaves nothing: one alone where there is one, else all of them.
export function nothing(filters, count) {
  const said = ([name, texts]) => `${name} = ${[...texts].filter((each) => each !== NONE).join(" or ") || "none of its values"}`;
  const alone = [...filters].map((filter) => {
    const others = new Map([...filters].filter(([name]) => name !== filter[0]));
    return { said: said(filter), left: count(others) };
  });
  const guilty = alone.filter(({ left }) => left);
  if (guilty.length) {
    return guilty.map(({ said: what, left }) => `The filter ${what} leaves nothing; without it there ${
      left === 1 ? "is 1 cell" : `are ${left.toLocaleString("en")} cells`}.`).join(" ");
  }
  return filters.size ? `No cell passes these filters together: ${[...filters].map(said).join("; ")}.` : "";
}

// Versions that were measured in different ways are not to be compared.
export function caution(cells, rows) {
  const differ = (name) => held(cells, rows, name).filter(([each]) => each !== NONE).length > 1;
  const said = [];
  if (differ("protocol_version")) said.push("They were measured by different versions of the protocol: do not compare them.");
  if (differ("workload_version")) said.push("Their workloads are of different versions: compare only cells of one.");
  if (differ("device")) said.push("Some ran on a GPU and some on a CPU.");
  return said.join(" ");
}

// Text that a spreadsheet would run as a formula gets an apostrophe.
function field(value) {
  if (value === null) return "";
  const said = typeof value === "string" && /^[=+\-@]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(said) ? `"${said.replaceAll('"', '""')}"` : said;
}

export function csv(rows) {
  if (!rows.length) return "";
  const names = Object.keys(rows[0]);
  return `${[names, ...rows.map((row) => names.map((name) => row[name]))].map((line) => line.map(field).join(",")).join("\n")}\n`;
}
