// The Worker of the Compare page: files that come from anywhere are read here, apart from the page, and compared. It keeps
// what it has read; the page ends it where it takes too long, and opens the files again in a new one.

import { first, more } from "./compare_all.js";
import { Run } from "./compare_run.js";
import { foundFirst, foundMore } from "./compare_told.js";

const runs = new Map();
let given = null;

const tasks = {
  given: (message) => { given = message.given; },

  async open({ key, blob, address }) {
    const run = await Run.open(blob ?? await fetched(address), given);
    runs.set(key, run);
    return { about: run.about, sha256: run.sha256, bytes: run.blob.size, cells: run.places.first.length };
  },

  close: ({ key }) => { runs.delete(key); },

  compare({ a, b }) {
    const [one, other] = [runs.get(a), runs.get(b)];
    const found = first(one.table, other.table, given.rules);
    one.compared = { b, cells: found.cells };
    return foundFirst(found, given);
  },

  async explain({ a, b }) {
    const [one, other] = [runs.get(a), runs.get(b)];
    await one.complete();
    await other.complete();
    const cells = one.compared?.b === b ? one.compared.cells : first(one.table, other.table, given.rules).cells;
    return foundMore(more(one.table, other.table, cells, given.rules), given);
  },
};

async function fetched(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
  return answer.blob();
}

// A reader that has failed at one column leaves promises of others behind; what went wrong has been said by then.
self.addEventListener("unhandledrejection", (event) => event.preventDefault());

self.addEventListener("message", async ({ data }) => {
  try {
    self.postMessage({ id: data.id, found: await tasks[data.kind](data) });
  } catch (error) {
    // What a parser says of hostile bytes is data too: the page shows it as text, and not much of it.
    self.postMessage({ id: data.id, refused: String(error?.message ?? error).slice(0, 300) });
  }
});
self.postMessage({ ready: true });
