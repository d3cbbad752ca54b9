// The Worker of the Compare page: files that come from anywhere are read here, apart from the page, and compared. It keeps
// the two that were used last; the page ends it where it takes too long, and opens the files again in a new one.

import { summarizeComparison, summarizeExplanation } from "./answers.js";
import { compare, explain } from "./comparison.js";
import { Refusal } from "./parquet.js";
import { Run } from "./run.js";

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
    throw new Refusal("its bytes are not what they declare; make validate FILES=… says where");
  }
}

async function fetched(address) {
  const answer = await fetch(address).catch(() => null);
  if (answer?.ok) return answer.blob();
  throw new Error(`${address}: ${answer ? `${answer.status} ${answer.statusText}` : "no answer"}; expected the file of a `
    + "published run. Load this page again, or drop the file");
}

// A reader that has failed at one column leaves promises of others behind; what went wrong has been said by then.
self.addEventListener("unhandledrejection", (event) => event.preventDefault());

self.addEventListener("message", async ({ data }) => {
  try {
    self.postMessage({ found: await tasks[data.kind](data) });
  } catch (error) {
    // What a parser says of hostile bytes is data too: the page shows it as text, and not much of it.
    self.postMessage({ refused: String(error?.message ?? error).slice(0, 300) });
  }
});
