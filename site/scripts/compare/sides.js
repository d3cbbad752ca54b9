// Which two runs are compared: two lists of published runs and of files that were given, a place to drop files, and what
// each side says of itself.

import { copyLink, format, make, parse, picked, plural } from "../dom.js";
import { machineName, size } from "./views.js";

// The address of the page says which two runs it compares: published ones by their id, files by their hash alone. A file
// that has none is not named at all.

export const SIDES = ["a", "b"];
const HASHED = "sha256:";
export const hashOf = (key) => (key.startsWith(HASHED) ? key.slice(HASHED.length) : "");
const named = (key) => key !== "" && !key.startsWith("file:");

// What the address asks for; null where it is a place on the page.
export function asked() {
  const found = parse(location.hash);
  if (!found && location.hash.length > 1) return null;
  return Object.fromEntries(SIDES.map((side) => [side, found?.get(side)?.[0] ?? ""]));
}

export function write(state) {
  const pairs = SIDES.filter((side) => named(state[side])).map((side) => [side, [state[side]]]);
  const address = pairs.length ? format(pairs) : location.pathname;
  if (location.hash !== address) history.replaceState(null, "", address);
}

// A button that copies the address; `state` gives the two keys.
export const link = (state) => make("p", { class: "fr-explore-take" }, copyLink(() => {
  const keys = Object.values(state());
  if (!keys.every(named)) return "Copied, without your file: only a page that came over https can name it, by its hash.";
  return keys.some(hashOf) ? "Copied. It names files by their hash: whoever opens it is asked for them." : "Copied.";
}));

// Published runs that a list offers at once, and those from which on they can be searched.
const [MANY, FEW] = [60, 9];

export class Sides {
  // `shared` says of two published runs how many settings both measured; `chosen` gets a side and the key of what was
  // chosen for it, `files` the files that were dropped or picked.
  constructor(published, shared, { chosen, files, turned }) {
    this.published = published;
    this.shared = shared;
    this.chosen = chosen;
    this.files = files;
    this.local = new Map();
    this.state = { a: "", b: "" };
    this.word = "";
    this.tier = "";
    this.drop = this.dropPlace();
    this.refused = make("div", { class: "fr-compare-refused", role: "alert" });
    this.selects = Object.fromEntries(SIDES.map((side) =>
      [side, make("select", { name: side, change: ({ target }) => chosen(side, target.value) })]));
    this.search = picked("Find a published machine",
      make("input", { type: "search", name: "find", input: ({ target }) => { this.word = target.value; this.offer(); } }));
    this.search.hidden = published.length < FEW;
    const tiers = [...new Set(published.map(({ tier }) => tier))].sort();
    this.tiers = picked("Tier of published runs",
      make("select", { name: "tier", change: ({ target }) => { this.tier = target.value; this.offer(); } },
        make("option", { value: "" }, "any"), tiers.map((tier) => make("option", { value: tier }, tier))));
    this.tiers.hidden = tiers.length < 2;
    const turn = make("button", { type: "button", click: turned }, "Swap A and B");
    this.about = Object.fromEntries(SIDES.map((side) => [side, make("div", { class: "fr-compare-side" })]));
    this.box = make("div", {}, this.drop, this.refused,
      make("div", { class: "fr-compare-picks" }, picked("A (baseline)", this.selects.a),
        picked("B", this.selects.b), turn, this.search, this.tiers),
      make("div", { class: "fr-compare-sides" }, this.about.a, this.about.b));
    this.offer();
  }

  dropPlace() {
    const input = make("input", { type: "file", multiple: true, accept: ".parquet", class: "fr-compare-input", id: "fr-compare-input",
      change: () => { this.files([...input.files]); input.value = ""; } });
    const place = make("div", { class: "fr-compare-drop" },
      make("label", { for: "fr-compare-input", class: "fr-compare-choose" }, "Choose files"), input,
      make("span", {}, " or drop one or several trials.parquet anywhere on this page. They are read here, in your browser: "
        + "nothing is sent anywhere."));
    const carries = (event) => [...event.dataTransfer?.types ?? []].includes("Files");
    const over = (event) => {
      if (!carries(event)) return;
      event.preventDefault();
      place.classList.toggle("fr-compare-over", event.type === "dragover");
    };
    for (const kind of ["dragover", "dragleave"]) document.addEventListener(kind, over);
    document.addEventListener("drop", (event) => {
      if (!carries(event)) return;
      over(event);
      this.files([...event.dataTransfer.files]);
    });
    return place;
  }

  // Offer a file from now on.
  add(key, name) {
    this.local.set(key, name);
    this.offer();
  }

  show(state) {
    this.state = state;
    this.offer();
  }

  offer() {
    const word = this.word.trim().toLowerCase();
    const fits = (run) => (!this.tier || run.tier === this.tier) && (!word || Object.values(run).join(" ").toLowerCase().includes(word));
    const found = this.published.filter(fits).slice(0, MANY);
    for (const side of SIDES) {
      const now = this.state[side];
      const own = this.published.find(({ key }) => key === now);
      const shown = own && !found.includes(own) ? [...found, own] : found;
      const other = this.published.find(({ key }) => key === this.state[side === "a" ? "b" : "a"]);
      const option = (key, text, disabled = false) => make("option", { value: key, selected: key === now, disabled }, text);
      const apart = (run) => other && run.key !== now && run !== other && !this.shared[other.run]?.[run.run];
      const group = (label, options) => (options.length ? [make("optgroup", { label }, options)] : []);
      const unknown = now && !own && !this.local.has(now) ? [option(now, "a file that is not here yet")] : [];
      this.selects[side].replaceChildren(option("", "choose …"), ...unknown,
        ...group("Your files", [...this.local].map(([key, name]) => option(key, name))),
        ...group("Published", shown.map((run) => option(run.key, apart(run) ? `${titled(run)} · no setting in common` : titled(run), apart(run)))));
    }
  }

  // What a side says of itself; null where nothing is known yet, text where it is waited for.
  tell(side, held) {
    const inside = typeof held === "string" ? [make("p", { class: "fr-note" }, held)] : held ? described(side, held) : [];
    this.about[side].replaceChildren(...inside);
  }

  refuse(lines) {
    this.refused.replaceChildren(...lines.map((line) => make("p", {}, line)));
  }
}

const titled = ({ label, suites, name, device, day, run, tier }) =>
  [label, suites.join(" + "), name, device, day, tier, run].filter(Boolean).join(" · ");

const UNNAMED = "A link cannot name this file: only a page that came over https can hash it.";

function described(side, { about, published, name, cells, bytes, sha256 }) {
  const which = published ? make("a", { href: published.page }, `run ${about.run}`) : `${name}, run ${about.run}`;
  const held = `; ${about.device}; ${plural(cells, "cell")} in ${plural(about.rows, "trial")}; ${size(bytes)}`;
  const suites = about.suites.length ? `; suites ${about.suites.join(", ")}` : "";
  const vouched = published ? [published.tier, published.label && `“${published.label}”`, "its page has its grade"].filter(Boolean).join("; ")
    : "Your file: of no tier, and not checked here.";
  return [
    make("p", {}, make("strong", {}, `${side.toUpperCase()}: ${machineName(about)}`)),
    make("p", { class: "fr-note" }, which, held, suites),
    ...[vouched, ...(published || sha256 ? [] : [UNNAMED]), ...about.notes].map((note) => make("p", { class: "fr-note" }, note)),
  ];
}
