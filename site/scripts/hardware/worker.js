// The Worker of the page "All hardware": reads files of runs, and finds in each what is asked for.

import { answerWith } from "../compare/answer.js";
import { Refusal, TrialsFile } from "../compare/parquet.js";
import { AT_ONCE, SHOWN, newest } from "./files.js";

// Files that were read last, so that another letter does not load them again.
const held = new Map();
let given = null;

answerWith({
  given: (message) => { given = message.given; },

  // How many runs of a file match, and the newest of them.
  async find({ address, asked }) {
    const columns = held.get(address) ?? await readFile(address);
    held.delete(address);
    held.set(address, columns);
    for (const oldest of [...held.keys()].slice(0, -AT_ONCE)) held.delete(oldest);
    const rows = columns.run_id.keys().filter((row) => matches(columns, row, asked)).toArray();
    const found = rows.map((row) => Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, column[row]])));
    return { count: found.length, rows: newest(found).slice(0, SHOWN) };
  },
});

async function readFile(address) {
  const answer = await fetch(address).catch(() => null);
  if (!answer?.ok) throw new Error(answer ? `${answer.status} ${answer.statusText}` : "no answer");
  try {
    const file = new TrialsFile(await answer.arrayBuffer(), given.dtypes, given.caps);
    return await file.read(Object.keys(given.dtypes));
  } catch (error) {
    throw error instanceof Refusal ? error : new Refusal("its bytes are not what they declare");
  }
}

// Words of hardware stand in its names, others there or in ids.
function matches(columns, row, { exact, hardware, others }) {
  if (!exact.every(([name, value]) => String(columns[name][row] ?? "") === value)) return false;
  const text = (names) => names.map((name) => columns[name][row] ?? "").join("\n").toLowerCase();
  return (!hardware.length || hardware.every((word) => text(["gpu", "cpu"]).includes(word)))
    && (!others.length || others.every((word) => text(["gpu", "cpu", "machine_id", "run_id"]).includes(word)));
}
