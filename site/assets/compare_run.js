// One run as a comparison needs it: what it says of itself, and its table of trials in two helpings: what the first
// picture is made of, then what explains it.

import { TrialsFile } from "./compare_file.js";
import { Malformed } from "./compare_thrift.js";
import { OverCap } from "./compare_pages.js";

const KEY = "feedrate";
const [MOST_NAMED, MOST_VERSION] = [20, 20];
const many = (count) => count.toLocaleString("en");
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]+/g;

// Words of a record as a page shows them: on one line, without signs that nobody sees, and of bounded length.
export const worded = (value, most) => (typeof value === "string" ? value.replace(UNSEEN, " ").slice(0, most)
  : typeof value === "number" || typeof value === "boolean" ? String(value) : "");

const fact = (value, unit, most) => (unit === "bytes" && typeof value === "number"
  ? `${(value / 2 ** 30).toFixed(1)} GiB` : worded(value, most));

const own = (held, name) => (held && typeof held === "object" && Object.hasOwn(held, name) ? held[name] : null);
const within = (object, path) => path.reduce(own, object);

export class Run {
  static async open(blob, given) {
    if (blob.size > given.caps.bytes) {
      throw new OverCap(`${many(blob.size)} bytes; at most ${many(given.caps.bytes)} are read`);
    }
    const buffer = await blob.arrayBuffer();
    const run = new Run(blob, given);
    run.sha256 = await hashed(buffer);
    await run.start(new TrialsFile(buffer, given.dtypes, given.caps));
    return run;
  }

  constructor(blob, given) {
    Object.assign(this, { blob, given, whole: false });
  }

  async start(file) {
    const { caps, first, axes, required } = this.given;
    this.about = this.said(file);
    const missing = required.filter((name) => !file.columns.has(name));
    if (missing.length) throw new Malformed(`it has no column ${missing.join(", ")}; expected a trials.parquet of feedrate`);
    if (!file.rows) throw new Malformed("it has no rows");
    this.table = await file.read(first);
    const runs = new Set(this.table.run_id);
    if (runs.size > 1) throw new Malformed(`it holds ${runs.size} runs; expected one`);
    this.places = this.cells();
    const blocks = new Set(this.table.block).size;
    if (this.places.first.length * blocks > caps.estimates) {
      throw new OverCap(`${this.places.first.length} cells in ${blocks} blocks; at most ${many(caps.estimates)} numbers are kept`);
    }
    Object.assign(this.table, await this.settings(file, axes.filter((name) => !first.includes(name))));
  }

  // What it says of itself. A version that is newer than this page is said so, and not guessed at.
  said(file) {
    const { caps, facts } = this.given;
    const text = file.text(KEY);
    if (!text) throw new Malformed("it does not say which run it is (no manifest in it); expected a trials.parquet of feedrate");
    if (text.length > caps.manifest) throw new OverCap(`${many(text.length)} characters of manifest; at most ${many(caps.manifest)} are read`);
    const manifest = parsed(text);
    this.checkVersion(manifest);
    const word = (...path) => worded(within(manifest, path), caps.shown);
    const notes = Array.isArray(manifest.substitutions) ? manifest.substitutions : [];
    return {
      run: word("run_id"), machine: word("machine", "machine_id"), device: word("device"), started: word("started_at"),
      cpu: word("machine", "cpu_model"), gpu: word("machine", "gpu_name"), gpus: word("machine", "gpu_count"),
      cores: word("machine", "cores_logical"), rows: file.rows,
      suites: Object.keys(within(manifest, ["suites"]) ?? {}).slice(0, MOST_NAMED).map((name) => worded(name, caps.shown)),
      notes: notes.slice(0, MOST_NAMED).map((note) => worded(note, caps.shown)),
      facts: facts.map(({ path, unit }) => fact(within(manifest, path), unit, caps.shown)),
    };
  }

  checkVersion(manifest) {
    const version = manifest.schema_version ?? 1;
    if (!(Number.isInteger(version) && version >= 1)) throw new Malformed("it does not say of which version it is");
    if (version <= this.given.schema) return;
    const [by, needs] = [manifest.feedrate_version, manifest.needs_feedrate].map((value) => worded(value, MOST_VERSION));
    throw new Malformed(`it was written by feedrate ${by} in schema ${version}; this site reads up to schema ${this.given.schema}${
      needs && `: it needs feedrate ≥ ${needs}`}`);
  }

  // The row in which each cell comes first, and for each row the place of its cell.
  cells() {
    const { cell_id } = this.table;
    const [seen, first, of] = [new Map(), [], new Int32Array(cell_id.length)];
    for (let row = 0; row < cell_id.length; row += 1) {
      if (!seen.has(cell_id[row])) {
        seen.set(cell_id[row], first.length);
        first.push(row);
      }
      of[row] = seen.get(cell_id[row]);
    }
    return { first, of };
  }

  // Axes are the same in all rows of a cell: they are read as far as new cells come, and stand in every row.
  async settings(file, names) {
    const { first, of } = this.places;
    const read = await file.read(names, first.at(-1) + 1);
    const owns = Object.entries(read).map(([name, column]) => [name, first.map((row) => column[row])]);
    const some = owns.filter(([, own]) => own.some((value) => value !== null && !Number.isNaN(value)));
    return Object.fromEntries(some.map(([name, own]) => [name, spread(own, of)]));
  }

  // The columns that explain the differences: stamps of the loader's workers, shares of the step, memory.
  async complete() {
    if (this.whole) return;
    const { dtypes, caps, more } = this.given;
    const file = new TrialsFile(await this.blob.arrayBuffer(), dtypes, caps);
    Object.assign(this.table, await file.read(more.filter((name) => !(name in this.table))));
    this.whole = true;
  }
}

function parsed(text) {
  try {
    const found = JSON.parse(text);
    if (found && typeof found === "object" && !Array.isArray(found)) return found;
  } catch {
    // Said below.
  }
  throw new Malformed("what it says of itself is no JSON object");
}

// The value of each cell in all of its rows.
function spread(own, of) {
  const column = new Array(of.length).fill(own[0]);
  if (own.some((value) => !Object.is(value, own[0]))) for (let row = 0; row < of.length; row += 1) column[row] = own[of[row]];
  return column;
}

// Browsers hash only where the page came over an encrypted connection or from this machine.
async function hashed(buffer) {
  if (!globalThis.crypto?.subtle) return "";
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", buffer));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
