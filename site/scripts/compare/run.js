// One run as a comparison needs it: what it says of itself, and its table of trials in two helpings: what the first
// picture is made of, then what explains it.

import { many } from "../dom.js";
import { Refusal, TrialsFile, atMost } from "./parquet.js";
import { PerCell, isNull } from "./statistics.js";

const KEY = "feedrate";
const [MOST_NAMED, MOST_SET] = [20, 60];
// As store/manifest.py has them: what a version of feedrate looks like, and the largest number of a schema or protocol.
const [RELEASE, NEWEST] = [/^\d{1,4}(\.\d{1,4}){1,3}$/, 9999];
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]+/g;

// Words of a record as a page shows them: on one line, without signs that nobody sees, and of bounded length.
export const worded = (value, most) => (typeof value === "string" ? value.replace(UNSEEN, " ").slice(0, most)
  : typeof value === "number" || typeof value === "boolean" ? String(value) : "");

const fact = (value, unit, most) => (unit === "bytes" && typeof value === "number"
  ? `${(value / 2 ** 30).toFixed(1)} GiB` : worded(value, most));

const own = (held, name) => (held && typeof held === "object" && Object.hasOwn(held, name) ? held[name] : null);
const within = (object, path) => path.reduce(own, object);

export class Run {
  // `beside`: how many numbers other runs hold.
  static async open(blob, given, beside) {
    atMost(blob.size, given.caps.bytes, "bytes");
    const buffer = await blob.arrayBuffer();
    const run = new Run(blob, given, await hashed(buffer));
    await run.start(new TrialsFile(buffer, given.dtypes, given.caps), beside);
    return run;
  }

  constructor(blob, given, sha256 = "") {
    this.blob = blob;
    this.sha256 = sha256;
    this.given = given;
    this.whole = false;
    this.held = 0;
  }

  // Numbers of the table are counted before they are read: a few bytes can stand for millions of them.
  room(numbers, beside) {
    const [all, { held }] = [this.held + numbers + beside, this.given.caps];
    if (all > held) throw new Refusal(`${many(all)} numbers of what is compared; at most ${many(held)} are kept`);
    return numbers;
  }

  async start(file, beside) {
    const { caps, first, axes, required } = this.given;
    this.about = this.said(file);
    const missing = required.filter((name) => !file.columns.has(name));
    if (missing.length) throw new Refusal(`it has no column ${missing.join(", ")}; expected a trials.parquet of feedrate`);
    if (!file.rows) throw new Refusal("it has no rows");
    this.held = this.room(file.rows * (first.length + 1), beside);
    this.table = await file.read(first);
    const runs = new Set(this.table.run_id);
    if (runs.size > 1) throw new Refusal(`it holds ${runs.size} runs; expected one`);
    this.places = this.cells();
    const [cells, blocks] = [this.places.first.length, new Set(this.table.block).size];
    if (cells > caps.cells || cells * blocks > caps.estimates) {
      throw new Refusal(`${many(cells)} cells in ${many(blocks)} blocks; at most ${many(caps.cells)} cells, and cells × blocks of at `
        + `most ${many(caps.estimates)}, are compared`);
    }
    this.held += this.room(cells * axes.length, beside);
    for (const name of axes) await this.setting(file, name);
  }

  // What it says of itself.
  said(file) {
    const { caps, facts } = this.given;
    const text = file.text(KEY);
    if (!text) throw new Refusal("it does not say which run it is (no manifest in it); expected a trials.parquet of feedrate");
    atMost(text.length, caps.manifest, "characters of manifest");
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
      runtime: Object.entries(within(manifest, ["runtime"]) ?? {}).slice(0, MOST_SET)
        .map(([name, value]) => [worded(name, caps.shown), worded(value, caps.shown)]),
    };
  }

  // As store/manifest.py does: files of other versions are refused.
  checkVersion(manifest) {
    const { versions, feedrate } = this.given;
    for (const [name, current] of Object.entries(versions)) {
      const version = manifest[name];
      if (!(Number.isInteger(version) && version >= 1 && version <= NEWEST)) throw new Refusal(`it does not say its ${name}`);
      if (version !== current) {
        const writer = RELEASE.test(manifest.feedrate_version) ? manifest.feedrate_version : "of an unknown version";
        throw new Refusal(`it was written by feedrate ${writer} with ${name} ${version}; this site is of feedrate ${feedrate} and `
          + `reads ${current}. ${version > current ? "Look for a newer site" : "Measure it again"}`);
      }
    }
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

  // Axes are the same in all rows of a cell: each is read as far as new cells come, and one value a cell is kept.
  async setting(file, name) {
    const { first, of } = this.places;
    const column = (await file.read([name], first.at(-1) + 1))[name];
    if (!column) return;
    const values = first.map((row) => column[row]);
    if (!values.every(isNull)) this.table[name] = new PerCell(values, of);
  }

  // The columns that explain the differences: stamps of the loader's workers, shares of the step, memory.
  async complete(beside) {
    if (this.whole) return;
    const { dtypes, caps, more } = this.given;
    const file = new TrialsFile(await this.blob.arrayBuffer(), dtypes, caps);
    const lacking = more.filter((name) => !(name in this.table) && file.columns.has(name));
    const held = this.room(file.rows * lacking.length, beside);
    Object.assign(this.table, await file.read(lacking));
    this.held += held;
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
  throw new Refusal("what it says of itself is no JSON object");
}

// Browsers hash only where the page came over an encrypted connection or from this machine.
async function hashed(buffer) {
  if (!globalThis.crypto?.subtle) return "";
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", buffer));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
