// The search of the page "All hardware": runs of a whole store, in files that a Worker reads. The index says what hardware
// each file holds: one that cannot hold what is asked for is not read, and none before somebody asks.

import { Reader } from "../compare/reader.js";
import { size } from "../compare/views.js";
import { make, many, picked, plural, read } from "../dom.js";
import { AT_ONCE, SHOWN, newest, plan } from "./files.js";

const FILTERS = [["gpu", "Accelerator"], ["cpu", "Processor"], ["cores", "Cores"], ["device", "Device"]];
const COLUMNS = ["Began", "Run and machine", "Accelerator", "Processor", "Cores", "Device", "Disk", "Tier"];
const PAGE = /^runs\/[\w-]+\.html$/;
const PAUSE_MS = 300;
const MISSING = "Runs in it are missing here. Search again in a minute; if it stays so, load this page anew.";
const HINT = "Words of a processor or an accelerator, a machine’s or a run’s id, or a choice below: nothing is read before.";

class Search {
  constructor({ files, reader }, root) {
    this.files = files;
    this.given = reader;
    this.turn = 0;
    /** @type {any} */
    this.reader = null; // begun by the first search
    this.words = make("input", { type: "search", name: "find", maxlength: "200", autocomplete: "off", input: () => this.soon() });
    this.filters = FILTERS.map(([name, title]) => [name, title, this.filter(name)]);
    this.status = make("p", { class: "fr-note", role: "status" }, HINT);
    this.faults = make("div", { role: "alert" });
    this.body = make("tbody", { role: "rowgroup" });
    this.table = make("div", { class: "fr-scroll", tabindex: "0", role: "group", "aria-label": "Runs that were found", hidden: true },
      make("table", { class: "fr-table fr-stack", role: "table" }, make("caption", { class: "fr-hidden" }, "Runs that were found"),
        make("thead", { role: "rowgroup" }, make("tr", { role: "row" },
          COLUMNS.map((title) => make("th", { scope: "col", role: "columnheader" }, title)))), this.body));
    root.replaceChildren(make("form", { class: "fr-hardware-bar", role: "search", "aria-label": "Runs", submit: (event) => {
      event.preventDefault();
      this.search(true);
    } }, picked("Find runs", this.words), ...this.filters.map(([, title, control]) => picked(title, control)),
    make("button", { type: "submit" }, "Search")), this.status, this.faults, this.table);
  }

  // The values that files are known to have; the empty choice is any, and "=" before each tells it from that.
  filter(name) {
    const values = [...new Set(this.files.flatMap((file) => file[name] ?? []))].sort(new Intl.Collator("en", { numeric: true }).compare);
    const more = this.files.every((file) => file[name]) ? null : make("option", { disabled: true }, "others: type their name");
    return make("select", { name, change: () => this.search(false) }, make("option", { value: "" }, "any"),
      values.map((value) => make("option", { value: `=${value}` }, value || "none")), more);
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.search(false), PAUSE_MS);
  }

  // Read the files that can hold what is asked for; more than a few only where `all` says so.
  async search(all) {
    clearTimeout(this.timer);
    this.turn += 1;
    this.show([], []);
    const exact = this.filters.filter(([, , { value }]) => value).map(([name, , { value }]) => [name, value.slice(1)]);
    const { files, asked } = plan(this.files, this.words.value, exact);
    if (!this.words.value.trim() && !exact.length) this.say(HINT);
    else if (files.length <= AT_ONCE || all) await this.read(files, asked, this.turn);
    else {
      const bytes = size(files.reduce((sum, file) => sum + file.bytes, 0));
      this.say(`${plural(files.length, "file")} (${bytes}) can hold such runs: say more, or press Search to read them all.`);
    }
  }

  // Show what each file adds; a search that another has overtaken shows nothing more.
  async read(files, asked, turn) {
    let [rows, count, faults] = [[], 0, []];
    for (const [at, file] of files.entries()) {
      this.say(`Reading file ${at + 1} of ${files.length} …`);
      const found = await this.find(file, asked, turn).catch(({ message }) => ({ fault: `${file.file} cannot be read: ${message}.` }));
      if (turn !== this.turn) return;
      if (found.fault) faults = [...faults, `${found.fault} ${MISSING}`];
      else [rows, count] = [newest([...rows, ...found.rows]).slice(0, SHOWN), count + found.count];
      this.show(rows, faults);
    }
    this.say(told(count, faults.length));
  }

  // Nor does it ask the Worker for anything more.
  find(file, asked, turn) {
    this.reader ??= new Reader(this.given);
    const address = new URL(file.file, document.baseURI).href;
    return this.reader.inTurn(() => (turn === this.turn ? this.reader.ask({ kind: "find", address, asked }) : null));
  }

  show(rows, faults) {
    this.table.hidden = !rows.length;
    this.body.replaceChildren(...rows.map(line));
    this.faults.replaceChildren(...faults.map((text) => make("p", { class: "fr-missing" }, text)));
  }

  say(text) {
    this.status.textContent = text;
  }
}

function told(count, missing) {
  if (!count) return missing ? "No run was found in what could be read." : "No run matches. Try fewer words or choices.";
  const found = `${plural(count, "run")} found, the newest first`;
  return count > SHOWN ? `${found}: ${many(SHOWN)} are shown, ${many(count - SHOWN)} more: narrow the search.` : `${found}.`;
}

const line = (run) => make("tr", { role: "row" }, [
  run.started_at.slice(0, 16).replace("T", " "), named(run), run.gpu ?? "none", run.cpu, String(run.cores), run.device,
  run.storage ?? "not known", run.tier,
].map((cell, at) => make("td", { role: "cell", "data-label": COLUMNS[at] }, make("div", {}, cell ?? ""))));

// A run and its machine: a link to its page; where it has none, a button that copies where it lies in the store.
function named({ page, machine_id: machine, run_id: run }) {
  const below = [make("br"), make("span", { class: "fr-kind" }, machine)];
  if (PAGE.test(page ?? "")) return [make("a", { href: page }, run), ...below];
  const copy = make("button", { type: "button", "aria-label": `Copy machine and run, ${run}`, click: async () => {
    copy.textContent = await navigator.clipboard.writeText(`${machine}/${run}`).then(() => "Copied", () => "Not allowed");
  } }, "Copy");
  copy.hidden = !navigator.clipboard;
  return [make("code", {}, run), " ", copy, ...below];
}

async function start() {
  const root = document.getElementById("fr-hardware");
  try {
    new Search(await read(root.dataset.index), root);
  } catch (error) {
    root.replaceChildren(make("p", { class: "fr-missing", role: "alert" }, `Runs cannot be searched here: ${error.message}. The files below have them all.`));
    console.error("feedrate:", error);
  }
}

start();
