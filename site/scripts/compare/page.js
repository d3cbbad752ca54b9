// The page Compare. Two runs are chosen, published ones or files of the reader's own; a Worker reads and compares them,
// and this draws what it found.

import { make, parsed, read } from "../dom.js";
import { Cells } from "./forest.js";
import { Reader } from "./reader.js";
import { SIDES, Sides, asked, hashOf, link, write } from "./sides.js";
import { claims, facts, leftOut, settings, whole, why } from "./views.js";

const MOST_FILES = 12;
const ELSEWHERE = "This link compares with a file that is on somebody’s disk. Drop the one whose sha256 begins with";

class Comparer {
  constructor(given, root) {
    this.given = given;
    this.root = root;
    this.state = { a: "", b: "" };
    this.held = new Map();
    this.files = 0;
    this.turn = 0;
    this.asked = false;
    this.published = new Map(given.published.map((run) => [run.key, run]));
    this.reader = new Reader(given.reader);
    this.sides = new Sides(given.published, given.shared, {
      chosen: (side, key) => this.wanted({ [side]: key }), files: (files) => this.take(files),
      turned: () => this.wanted({ a: this.state.b, b: this.state.a }),
    });
    this.status = make("p", { class: "fr-compare-status", role: "status" });
    this.cells = new Cells(given, root);
    this.parts = Object.fromEntries(["whole", "out", "more", "about"].map((name) => [name, make("div")]));
    this.result = make("div", { class: "fr-compare-result", hidden: true },
      make("h2", {}, "How many times as fast is B?"), this.parts.whole, link(() => this.state), this.cells.box, this.parts.out, this.parts.more, this.parts.about);
    root.append(this.sides.box, this.status, this.result);
  }

  open() {
    const state = asked();
    return state?.a || state?.b ? this.wanted(state) : this.choose(this.given.opening);
  }

  // The address has changed by hand or by a link. A place on the page leaves what was chosen, and the address says it again.
  moved() {
    return asked() ? this.open() : write(this.state);
  }

  // Files become sides: the first two of them, or the one beside what is chosen already.
  async take(files) {
    const refused = [];
    const taken = [];
    this.sides.refuse([]);
    for (const file of files.slice(0, MOST_FILES)) {
      this.say(`Reading ${file.name} …`);
      try {
        taken.push(await this.hold(file));
      } catch (error) {
        refused.push(`${file.name} is refused: ${error.message}.`);
      }
    }
    if (files.length > MOST_FILES) refused.push(`${files.length} files were given; the first ${MOST_FILES} are read.`);
    this.sides.refuse(refused);
    this.say("");
    await this.place(taken);
  }

  async hold(file) {
    const key = `file:${this.files += 1}`;
    const found = await this.reader.open(key, { blob: file });
    const own = found.sha256 ? `sha256:${found.sha256}` : key;
    if (this.held.has(own)) this.reader.close(key);
    else this.held.set(own, { ...found, key, name: file.name });
    this.sides.add(own, file.name);
    return own;
  }

  place(taken) {
    const { a } = this.state;
    const waited = SIDES.filter((side) => taken.includes(this.state[side]));
    if (!taken.length || waited.length === taken.length) return this.choose({});
    if (taken.length > 1) return this.wanted({ a: taken[0], b: taken[1] });
    if (!a) return this.wanted({ a: taken[0] });
    const like = this.asked ? a : this.like(taken[0]) ?? a;
    return this.wanted({ a: like, b: taken[0] });
  }

  // The published run that a file has most in common with, as far as both say: device, then suites.
  like(key) {
    const { about } = this.held.get(key);
    const score = (run) => (run.device === about.device ? 100 : 0) + run.suites.filter((name) => about.suites.includes(name)).length;
    const others = this.given.published.filter(({ run }) => run !== about.run);
    return others.reduce((best, run) => (!best || score(run) > score(best) ? run : best), null)?.key;
  }

  // What a reader chose is kept when a file comes; what the page opened with is not.
  wanted(change) {
    this.asked = true;
    return this.choose(change);
  }

  async choose(change) {
    Object.assign(this.state, change);
    const turn = this.turn += 1;
    this.sides.show(this.state);
    write(this.state);
    this.result.setAttribute("aria-busy", "true");
    const both = SIDES.every((side) => this.state[side]);
    try {
      const [a, b] = [await this.side("a", turn, both), await this.side("b", turn, both)];
      if (turn !== this.turn) return;
      this.result.hidden = !(a && b);
      if (a && b) await this.compare(a, b, turn);
      else this.say("");
    } catch (error) {
      if (turn !== this.turn) return;
      this.result.hidden = true;
      this.say(`This cannot be shown: ${error.message}`);
    }
  }

  // A side that is there; null where it is not chosen, is a file that nobody has given yet, or need not be read yet.
  async side(name, turn, both) {
    const key = this.state[name];
    if (both && !this.held.has(key) && this.published.has(key)) await this.fetch(key);
    if (turn !== this.turn) return null;
    const held = this.held.get(key) ?? null;
    this.sides.tell(name, held ?? this.waiting(name, key));
    return held;
  }

  // What is said of a side that is not there.
  waiting(name, key) {
    if (!key) return null;
    const run = this.published.get(key);
    if (run) return `${name.toUpperCase()}: ${run.name}, run ${run.run}. Choose the other, or drop a file.`;
    if (hashOf(key)) return `${ELSEWHERE} ${hashOf(key).slice(0, 12)} to see the same.`;
    return `There is no run ${key.replace("run:", "")} here.`;
  }

  async fetch(key) {
    const run = this.published.get(key);
    this.say(`Reading run ${run.run} …`);
    const found = await this.reader.open(key, { address: new URL(run.file, document.baseURI).href });
    this.held.set(key, { ...found, key, name: run.name, published: run });
  }

  async compare(a, b, turn) {
    const { run, machine } = a.about;
    if (a.key === b.key || run === b.about.run) {
      this.result.hidden = true;
      this.say(`A and B are the same run${run && `, ${run}`}. Choose another for one of them.`);
      return;
    }
    this.say("Comparing …");
    const found = await this.reader.compare(a.key, b.key);
    if (turn !== this.turn) return;
    const { parts, given } = this;
    parts.whole.replaceChildren(...whole(found, given, machine !== "" && machine === b.about.machine));
    parts.out.replaceChildren(...leftOut(found));
    parts.about.replaceChildren(...facts(a, b, given.reader.facts), ...claims(a, b, given.claims));
    parts.more.replaceChildren();
    this.cells.box.hidden = !found.count;
    if (found.count) await this.cells.show(found);
    this.result.removeAttribute("aria-busy");
    this.say("");
    if (found.count) await this.explain(a, b, turn);
  }

  // A comparison that cannot be explained stands all the same.
  async explain(a, b, turn) {
    const { words } = this.given;
    const told = await this.reader.explain(a.key, b.key).then((more) => [...why(more, words), ...settings(more, words)],
      (error) => [make("h2", {}, "Why"), make("p", { class: "fr-missing" }, `Why cannot be shown: ${error.message}.`)]);
    if (turn !== this.turn) return;
    this.parts.more.replaceChildren(...told);
  }

  say(text) {
    this.status.textContent = text;
  }
}

async function start() {
  const root = document.getElementById("fr-compare");
  try {
    const given = await read(root.dataset.index);
    await parsed;
    const comparer = new Comparer(given, root);
    root.querySelector(".fr-compare-wait").remove();
    window.addEventListener("hashchange", () => comparer.moved());
    await comparer.open();
    await comparer.cells.warm();
  } catch (error) {
    root.prepend(make("p", { class: "fr-missing", role: "alert" }, `This page cannot compare: ${error.message}`));
    console.error("feedrate:", error);
  }
}

start();
