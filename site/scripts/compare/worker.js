// The Worker of the Compare page: files that come from anywhere are read here, apart from the page, and compared. It keeps
// the two that were used last; the page ends it where it takes too long, and opens the files again in a new one.

import { answerWith } from "./answer.js";
import { compare, explain, kindOf } from "./comparison.js";
import { Refusal } from "./parquet.js";
import { Run, worded } from "./run.js";
import { isNull } from "./statistics.js";

const runs = new Map();
let given = null;

const tasks = {
  given: (message) => { given = message.given; },

  async open({ key, blob, address }) {
    let run = runs.get(key);
    runs.delete(key);
    if (!run) {
      for (const other of [...runs.keys()].slice(0, -1)) runs.delete(other);
      run = await careful(Run.open(blob ?? await fetched(address), given, beside()));
    }
    runs.set(key, run);
    return { about: run.about, sha256: run.sha256, bytes: run.blob.size, cells: run.places.first.length };
  },

  compare({ a, b }) {
    const [one, other] = [runs.get(a), runs.get(b)];
    const found = compare(one.table, other.table, given.rules);
    one.compared = { b, cells: found.cells };
    return summarizeComparison(found, given);
  },

  async explain({ a, b }) {
    const [one, other] = [runs.get(a), runs.get(b)];
    for (const run of [one, other]) await careful(run.complete(beside(run)));
    const cells = one.compared?.b === b ? one.compared.cells : compare(one.table, other.table, given.rules).cells;
    return summarizeExplanation(explain(one.table, other.table, cells, given.rules), given);
  },
};

// Numbers that are held of other runs.
const beside = (own) => [...runs.values()].reduce((sum, run) => sum + (run === own ? 0 : run.held), 0);

// What the parser says of bytes that it cannot read is of use to nobody who is not its author.
async function careful(reading) {
  try {
    return await reading;
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new Refusal("its bytes are not what they declare; feedrate validate FILE says where");
  }
}

async function fetched(address) {
  const answer = await fetch(address).catch(() => null);
  if (answer?.ok) return answer.blob();
  throw new Error(`${address}: ${answer ? `${answer.status} ${answer.statusText}` : "no answer"}; expected the file of a `
    + "published run. Load this page again, or drop the file");
}

answerWith(tasks);

// What a comparison found, made small for the page: columns of numbers and settings in words, the most different first.

const value = (held) => (typeof held === "number" ? String(Number(held.toPrecision(6))) : String(held));

// Axes by name, with their values in words, that apply and are not at their default or are `always` named.
const named = (axes, names, given, always) =>
  names.filter((name) => !isNull(axes[name]) && (always.includes(name) || axes[name] !== given.defaults[name]))
    .map((name) => [name, worded(value(axes[name]), given.caps.shown)]);

const setting = (axes, names, given, always = []) =>
  named(axes, names, given, always).map((part) => part.join(" ")).join(", ").slice(0, given.caps.label);

// The axes in which some cells differ; whether one applies is no difference of its own.
function telling(cells, given) {
  return given.axes.filter((name) => {
    const seen = new Set();
    for (const { axes } of cells) if (!isNull(axes[name])) seen.add(axes[name]);
    return seen.size > 1;
  });
}

// What a cell is called: format, batch and workers as far as cells differ in them, what else is not at its default, and
// what ran where that differs. The first words are those that a narrow picture has room for.
const SHORT = {
  storage_format: (said) => said, batch_size: (said) => `batch ${said}`,
  num_workers: (said) => `${said} worker${said === "1" ? "" : "s"}`, workload: (said) => said, model: (said) => said,
};
const LEADING = ["storage_format", "batch_size", "num_workers"];

function labels(cells, given, kinds, different) {
  const own = different.filter((name) => !["mode", "step"].includes(name));
  const names = [...LEADING.filter((name) => own.includes(name)), ...own.filter((name) => !LEADING.includes(name))];
  return cells.map((cell) => {
    const said = named(cell.axes, names, given, LEADING).map(([name, text]) =>
      SHORT[name]?.(text) ?? (cell.axes[name] === true ? name : `${name} ${text}`)).join(", ");
    const kind = kinds ? given.kinds[kindOf(cell)] ?? kindOf(cell) : "";
    return [said, kind].filter(Boolean).join("; ").slice(0, given.caps.label) || "the only cell";
  });
}

const SPREADS = ["ratio", "lo", "hi", "samples_per_s_a", "samples_per_s_b", "n_a", "n_b"];

export function summarizeComparison({ cells, unmatched, changed, ...whole }, given) {
  const far = (cell) => Math.abs(Math.log(cell.ratio));
  const order = [...cells].sort((one, other) => far(other) - far(one));
  const different = telling(cells, given);
  const told = changed?.map(([name, ...both]) => [name, ...both.map((each) => worded(isNull(each) ? "none" : value(each), given.caps.shown))]);
  const apart = [...different, ...(told ?? []).map(([name]) => name)];
  const common = given.axes.filter((name) => !apart.includes(name));
  const columns = Object.fromEntries(SPREADS.map((name) => [name, Float64Array.from(order, (cell) => cell[name])]));
  return {
    count: order.length, ...columns, verdict: order.map(({ verdict }) => verdict),
    label: labels(order, given, whole.kinds.length > 1, different),
    common: cells.length ? setting(cells[0].axes, common.filter((name) => name !== "mode"), given, ["workload"]) : "",
    ...whole, changed: told ?? null, left: byReason(unmatched, given),
  };
}

// What does not match, by reason, the most frequent first; settings in full, as nothing else tells them.
function byReason(unmatched, given) {
  const { shown, label, listed, reasons: most } = given.caps;
  const found = [...Map.groupBy(unmatched, ({ reason }) => reason)].sort(([, one], [, other]) => other.length - one.length);
  const reasons = found.slice(0, most).map(([reason, cells]) => ({
    reason: worded(reason, label), count: cells.length,
    cells: cells.slice(0, listed).map(({ axes, device }) => `${worded(device, shown)}: ${setting(axes, given.axes, given, ["workload", "mode"])}`),
  }));
  return { count: unmatched.length, reasons, more: found.length - reasons.length };
}

export function summarizeExplanation({ stages, held, best }, given) {
  const shown = best.slice(0, given.caps.listed);
  return { stages, held: countBottlenecks(held), best: shown.map((task) => describeBest(task, given)), more: best.length - shown.length };
}

// How many training cells are held back by what on either machine.
function countBottlenecks(held) {
  const found = Map.groupBy(held, ({ bottleneck_a: a, bottleneck_b: b }) => JSON.stringify([a, b]));
  return [...found].map(([key, cells]) => {
    const [a, b] = JSON.parse(key);
    return { a, b, count: cells.length };
  }).sort((one, other) => other.count - one.count);
}

function describeBest({ a, b, ...task }, given) {
  const knobs = given.axes.filter((name) => !given.rules.conditions.includes(name));
  const asked = given.axes.filter((name) => given.rules.conditions.includes(name) && !["mode", "step"].includes(name));
  const side = ({ axes, samples_per_s, lo, hi, n }, of) => ({ setting: setting(axes, knobs, given, given.named), samples_per_s, lo, hi, n, of });
  const { ratio, lo, hi, candidates_a, candidates_b, a_on_b, b_on_a } = task;
  return {
    kind: kindOf(a), task: setting(a.axes, asked, given, ["workload", "patch_size"]), same: a.cell_id === b.cell_id,
    a: side(a, candidates_a), b: side(b, candidates_b), ratio, lo, hi, a_on_b, b_on_a,
  };
}
