// The page Compare. Two runs are chosen, published ones or files of the reader's own, which a Worker reads.

import { copyLink, make, opened, parsed, read } from "../dom.js";
import { View } from "../plot.js";
import { Table } from "../table.js";
import { compare } from "./comparison.js";
import { SIDES, Sides, asked, waiting, write } from "./sides.js";
import { answer, claims, columns, drawn, facts, forest, leftOut, named } from "./views.js";

const MOST_FILES = 12;

// A Worker from the network is bound by a header alone, which many hosts cannot send. One that is made from a text
// inherits the page's policy, so that it reaches no other host than the page does. It ends with its file.
export function readFile(blob, rules) {
  const script = new URL("worker.js", import.meta.url).href;
  const address = URL.createObjectURL(new Blob([`import ${JSON.stringify(script)};`], { type: "text/javascript" }));
  const worker = new Worker(address, { type: "module" });
  const { promise, resolve, reject } = Promise.withResolvers();
  const { seconds } = rules.caps;
  const timer = setTimeout(() => reject(new Error(`it took longer than ${seconds} seconds`)), 1000 * seconds);
  worker.onmessage = ({ data: { file, refused } }) => (file ? resolve(file) : reject(new Error(refused)));
  worker.onerror = (event) => { event.preventDefault(); reject(new Error("the reader stopped: memory may have run out")); };
  worker.postMessage({ blob, rules });
  return promise.finally(() => { clearTimeout(timer); worker.terminate(); URL.revokeObjectURL(address); });
}

class Comparer {
  constructor(given, root) {
    this.given = given;
    this.state = { a: "", b: "" };
    this.files = new Map();
    this.turn = 0;
    this.chosen = false;
    this.sides = new Sides(given, {
      chosen: (change) => this.choose(change), files: (files) => this.take(files), turned: () => this.choose({ a: this.state.b, b: this.state.a }),
    });
    this.status = make("p", { class: "fr-compare-status", role: "status" });
    this.view = new View("fr-compare-ratios");
    this.view.said.classList.add("fr-hidden"); // the picture shows it, and says it to those who hear the page
    this.table = new Table("Every setting that both runs measured", { by: "ratio", descending: true });
    this.all = make("details", { class: "fr-compare-fold" }, make("summary", {}, "All settings"), this.table.pages, this.table.scroll);
    this.parts = Object.fromEntries(["answer", "out", "about"].map((name) => [name, make("div")]));
    this.result = make("div", { class: "fr-compare-result", hidden: true }, make("h2", {}, "B against A"), this.parts.answer,
      make("p", { class: "fr-explore-take" }, copyLink(() => "Copied. It names a file by its hash: whoever opens it is asked for the file.")),
      this.view.box, this.all, this.parts.about, this.parts.out);
    root.append(this.sides.box, this.status, this.result);
  }

  open() {
    const state = asked();
    if (!state && this.turn) return write(this.state); // a place on the page
    return state?.a || state?.b ? this.choose(state) : this.show(this.given.opening);
  }

  // What a reader chose is kept when a file comes; what the page opened with is not.
  choose(change) {
    this.chosen = true;
    return this.show(change);
  }

  async take(files) {
    const [refused, taken] = [files.length > MOST_FILES ? [`${files.length} files were given; the first ${MOST_FILES} are read.`] : [], []];
    this.sides.refuse([]);
    this.result.setAttribute("aria-busy", "true");
    for (const blob of files.slice(0, MOST_FILES)) {
      this.status.textContent = `Reading ${blob.name} …`;
      try {
        const file = await readFile(blob, this.given.rules);
        const key = file.sha256 ? `sha256:${file.sha256}` : `file:${this.files.size}`;
        this.files.set(key, { ...file, name: blob.name });
        taken.push(key);
      } catch (error) {
        refused.push(`${blob.name} is refused: ${error.message}.`);
      }
    }
    this.status.textContent = "";
    this.sides.refuse(refused);
    if (taken.length > 1) return this.choose({ a: taken[0], b: taken[1] });
    if (!taken.length || SIDES.some((side) => this.state[side] === taken[0])) return this.show({});
    return this.choose({ a: this.chosen && this.state.a ? this.state.a : await this.like(taken[0]), b: taken[0] });
  }

  // The published run that has most settings in common with a file.
  async like(key) {
    const { about, cell, dims: { script, mode } } = this.files.get(key);
    const { settings } = await read(this.given.settings);
    const own = new Set(cell.map((id, at) => `${about.device} ${script?.values[at] ? `${script.values[at]}, ${mode.values[at]}` : id}`));
    const common = ({ run }) => (run === about.run ? -1 : settings[run].filter((name) => own.has(name)).length);
    return this.given.published.reduce((best, run) => (!best || common(run) > common(best) ? run : best), null)?.run ?? "";
  }

  async show(change) {
    Object.assign(this.state, change);
    const turn = this.turn += 1;
    this.sides.offer(this.state, this.files);
    write(this.state);
    this.result.setAttribute("aria-busy", "true");
    try {
      const [a, b] = await Promise.all(SIDES.map((side) => this.side(this.state[side])));
      if (turn !== this.turn) return;
      [a, b].forEach((held, at) => this.sides.tell(SIDES[at], held ?? waiting(this.state[SIDES[at]])));
      const same = a && b && a.about.run === b.about.run;
      this.result.hidden = !a || !b || same;
      const open = SIDES.filter((side) => !this.state[side]);
      this.status.textContent = same ? `A and B are the same run, ${a.about.run}. Choose another for one of them.` : open.length === 1 ? `Choose ${open[0].toUpperCase()}.` : "";
      if (!this.result.hidden) this.compare(a, b);
    } catch (error) {
      if (turn !== this.turn) return;
      this.result.hidden = true;
      this.status.textContent = `This cannot be shown: ${error.message}`;
    }
  }

  side(key) {
    const address = this.given.published.find(({ run }) => run === key)?.cells;
    return this.files.get(key) ?? (address ? read(address) : null);
  }

  compare(a, b) {
    const { given, parts, view, table } = this;
    const found = compare(a, b, given.rules);
    const { label, common } = named(found.cells, given.rules);
    parts.answer.replaceChildren(...answer(found, given, a.about.machine !== "" && a.about.machine === b.about.machine));
    parts.about.replaceChildren(...facts(a, b), ...claims(a, b, given.claims));
    parts.out.replaceChildren(...leftOut(found.unmatched, given.rules));
    view.box.hidden = this.all.hidden = !found.cells.length;
    if (found.cells.length) {
      const entries = Object.entries(given.tones).filter(([verdict]) => drawn(found.cells).some((cell) => cell.verdict === verdict));
      view.show({ title: "Setting by setting", about: common && `In common: ${common}.`, said: extremes(found.cells, label),
        entries: entries.map(([, { says, colour, shape }]) => ({ label: says, colour, shape })), picture: forest(found.cells, found.overall, label, given.tones) });
      table.show(columns(label), found.cells);
    }
    this.result.removeAttribute("aria-busy");
  }
}

// What the picture shows, from its numbers.
function extremes(cells, label) {
  const [first, ...others] = cells.filter(({ lo }) => Number.isFinite(lo)).sort((one, other) => other.ratio - one.ratio);
  if (!first) return "No setting was measured more than once in both.";
  const words = (cell) => `${cell.ratio.toFixed(2)}× (n = ${cell.n_a} and ${cell.n_b}) at ${label(cell)}`;
  return others.length ? `Most: ${words(first)}. Least: ${words(others.at(-1))}.` : `B is ${words(first)}.`;
}

async function start(root) {
  try {
    const given = await read(root.dataset.index);
    await parsed;
    const comparer = new Comparer(given, root);
    root.querySelector(".fr-compare-wait").remove();
    await opened(() => comparer.open());
  } catch (error) {
    root.prepend(make("p", { class: "fr-missing", role: "alert" }, `This page cannot compare: ${error.message}`));
    console.error("feedrate:", error);
  }
}

const root = document.getElementById("fr-compare");
if (root) start(root);
