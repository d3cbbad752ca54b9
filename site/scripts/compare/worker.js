// A Worker reads one dropped trials.parquet, apart from the page, and answers with what a published run's file holds. The page
// ends it where it takes too long; bytes, rows and what is unpacked have caps.

import { decompress } from "fzstd";
import { parquetMetadata, parquetReadObjects, snappyUncompress } from "hyparquet";
import { moments } from "../cells.js";
import { many } from "../dom.js";

class Refusal extends Error {}

function atMost(count, cap, what) {
  if (count > cap) throw new Refusal(`it has ${many(count)} ${what}; at most ${many(cap)} are read. Type feedrate compare A B`);
}

// Words of a file as a page shows them: on one line, without signs that nobody sees, and of bounded length.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]+/g;
const worded = (value, most) => (typeof value === "string" ? value.replace(UNSEEN, " ").slice(0, most)
  : ["number", "boolean"].includes(typeof value) ? value : typeof value === "bigint" ? Number(value) : null);

// As store/manifest.py has it.
const RELEASE = /^\d{1,4}(\.\d{1,4}){1,3}$/;

const within = (held, path) => path.reduce((inner, name) =>
  (inner && typeof inner === "object" && Object.hasOwn(inner, name) ? inner[name] : null), held);

export function manifestOf(metadata, { caps, versions, feedrate }) {
  const text = metadata.key_value_metadata?.find(({ key }) => key === "feedrate")?.value;
  if (!text) throw new Refusal("it does not say which run it is (no manifest in it); expected a trials.parquet of feedrate");
  atMost(text.length, caps.manifest, "characters of manifest");
  const manifest = JSON.parse(text);
  for (const [name, current] of Object.entries(versions)) {
    const version = within(manifest, [name]);
    if (!(Number.isInteger(version) && version >= 1 && version <= 9999)) throw new Refusal(`it does not say its ${name}`);
    if (version !== current) {
      throw new Refusal(`it was written by feedrate ${RELEASE.test(manifest.feedrate_version) ? manifest.feedrate_version : "of an unknown version"} with ${name} ${version}; this site is of feedrate ${
        feedrate} and reads ${current}. ${version > current ? "Look for a newer site" : "Measure it again"}`);
    }
  }
  return manifest;
}

// What is unpacked is counted before it is: a few bytes can stand for gigabytes.
function compressors({ unpacked }) {
  let left = unpacked;
  const counted = (unpack) => (input, size) => {
    if ((left -= size) < 0) throw new Refusal(`more than ${many(unpacked)} bytes are packed in it`);
    return unpack(input, size);
  };
  return { ZSTD: counted((input, size) => decompress(input, new Uint8Array(size))),
    SNAPPY: counted((input, size) => { const page = new Uint8Array(size); snappyUncompress(input, page); return page; }) };
}

// As analysis/storage.py has it: a trial that ended well, whose page cache was as its setting says.
function believed(row, { warm, cold, read_least }) {
  const number = (name) => (row[name] === null || row[name] === undefined ? NaN : Number(row[name]));
  if (row.outcome !== "ok" || !(number("samples_per_s") > 0) || row.mode === "check") return false;
  if (!row.storage_format || row.page_cache === "full") return true;
  const share = number("cached_before_pct");
  const stored = Number.isNaN(number("cache_bytes")) ? number("stored_bytes") : number("cache_bytes");
  const read = number("read_bytes") >= (read_least * stored * number("samples")) / number("n_samples");
  return row.page_cache === "cold" ? share <= 100 * cold && read : !(share < 100 * warm);
}

const ran = ({ mode, step }) => (mode === "train" && ["emulated", "spin"].includes(step) ? "emulated" : mode);

// Rows of trials → a setting a row, with the moments of its repetitions' logs.
export function settings(trials, rules) {
  const cells = [...Map.groupBy(trials.filter(({ mode }) => mode !== "check"), ({ device, cell_id }) => `${device} ${cell_id}`).values()];
  const first = (rows, name) => worded(rows.find((row) => row[name] !== null && row[name] !== undefined)?.[name], rules.caps.text) ?? null;
  const logs = cells.map((rows) => {
    const blocks = Map.groupBy(rows.filter((row) => believed(row, rules)), ({ block }) => Number(block));
    return moments([...blocks.values()].map((some) => moments(some.map(({ samples_per_s }) => Math.log(samples_per_s))).mean));
  });
  const dims = [...rules.given.filter((name) => !["machine", "run", "tier", "ran"].includes(name)), ...Object.keys(rules.axes)];
  const columns = [...dims.map((name) => [name, cells.map((rows) => first(rows, name))]), ["ran", cells.map(([row]) => ran(row))]];
  return {
    cell: cells.map((rows) => first(rows, "cell_id")),
    dims: Object.fromEntries(columns.map(([name, values]) => [name, { values, codes: values.map((value, at) => (value === null ? -1 : at)) }])),
    measures: { samples_per_s: { n: logs.map(({ n }) => n) } },
    logs: { mean: logs.map(({ n, mean }) => (n ? mean : null)), sd: logs.map(({ sd }) => sd) },
  };
}

// Browsers hash only where the page came over an encrypted connection or from this machine.
async function hashed(buffer) {
  const digest = await globalThis.crypto?.subtle?.digest("SHA-256", buffer);
  return digest ? Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("") : "";
}

async function read(blob, rules) {
  atMost(blob.size, rules.caps.bytes, "bytes");
  const file = await blob.arrayBuffer();
  if (new TextDecoder().decode(file.slice(0, 4)) !== "PAR1") throw new Refusal("it does not begin as a parquet file does");
  const metadata = parquetMetadata(file);
  const manifest = manifestOf(metadata, rules);
  atMost(Number(metadata.num_rows), rules.caps.rows, "rows");
  const there = new Set(metadata.schema.slice(1).map(({ name }) => name));
  const needed = ["run_id", "cell_id", "device", "block", "outcome", "samples_per_s"];
  const missing = needed.filter((name) => !there.has(name));
  if (missing.length) throw new Refusal(`it has no column ${missing.join(", ")}; expected a trials.parquet of feedrate`);
  const wanted = new Set([...needed, ...rules.proving, ...rules.given, ...Object.keys(rules.axes)]);
  const columns = [...wanted].filter((name) => there.has(name));
  const trials = await parquetReadObjects({ file, metadata, columns, compressors: compressors(rules.caps) });
  if (!trials.length) throw new Refusal("it has no rows");
  const runs = new Set(trials.map(({ run_id }) => run_id));
  if (runs.size > 1) throw new Refusal(`it holds ${runs.size} runs; expected one`);
  return { ...settings(trials, rules), ...told(manifest, rules), sha256: await hashed(file) };
}

// What a run says of itself and its machine.
export function told(manifest, { caps, facts }) {
  const word = (...path) => worded(within(manifest, path), caps.text) ?? "";
  const versions = { ...within(manifest, ["software"]), ...within(manifest, ["runtime"]) };
  const [count, physical] = ["cores_logical", "cores_physical"].map((name) => word("machine", name));
  const cores = `${count || "?"} ${physical !== "" && Number(physical) < Number(count) ? "hardware threads" : "cores"}`;
  return {
    about: {
      run: word("run_id"), machine: word("machine", "machine_id"), device: word("device"), blocks: word("blocks"), day: String(word("started_at")).slice(0, 10),
      name: [word("machine", "gpu_name"), word("machine", "cpu_model") || "unknown processor", cores].filter(Boolean).join(", "),
      suites: Object.keys(within(manifest, ["suites"]) ?? {}).map((name) => worded(name, caps.text)),
    },
    facts: facts.map(([name, path]) => [name, worded(within(manifest, path), caps.text)]),
    versions: Object.fromEntries(Object.entries(versions).map(([name, value]) => [worded(name, caps.text), worded(value, caps.text)])),
  };
}

globalThis.addEventListener("message", async ({ data: { blob, rules } }) => {
  const answer = await read(blob, rules).then((file) => ({ file }),
    // What a parser says of bytes that it cannot read is of use to nobody who is not its author.
    (error) => ({ refused: error instanceof Refusal ? error.message : "its bytes are not what they declare; feedrate validate FILE says where" }));
  globalThis.postMessage(answer);
});
