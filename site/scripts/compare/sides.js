// Which two runs are compared: two lists of published runs and of files that were given, a place to drop files, and what
// each side says of itself. The address names published runs by their id and files by their hash.

import { format, make, parse, picked, plural } from "../dom.js";

export const SIDES = ["a", "b"];
const UNNAMED = "A link cannot name this file: only a page that came over https can hash it.";

// What the address asks for; null where it is a place on the page.
export function asked() {
  const found = parse(location.hash);
  if (!found && location.hash.length > 1) return null;
  return Object.fromEntries(SIDES.map((side) => [side, found?.get(side)?.[0] ?? ""]));
}

export function write(state) {
  const pairs = SIDES.filter((side) => state[side] && !state[side].startsWith("file:")).map((side) => [side, [state[side]]]);
  const address = pairs.length ? format(pairs) : location.pathname;
  if (location.hash !== address) history.replaceState(null, "", address);
}

export class Sides {
  // `chosen` gets a side and the key of what was chosen for it, `files` the files that were dropped or picked.
  constructor({ published, shared }, { chosen, files, turned }) {
    this.published = published;
    this.shared = shared;
    this.refused = make("div", { class: "fr-compare-refused", role: "alert" });
    this.selects = Object.fromEntries(SIDES.map((side) =>
      [side, make("select", { name: side, "aria-describedby": "fr-compare-hint", change: ({ target }) => chosen({ [side]: target.value }) })]));
    this.hint = make("p", { class: "fr-note", id: "fr-compare-hint" }, "Grey runs share no setting.");
    this.about = Object.fromEntries(SIDES.map((side) => [side, make("div", { class: "fr-compare-side" })]));
    this.box = make("div", {},
      make("div", { class: "fr-compare-picks" }, picked("A (baseline)", this.selects.a), picked("B", this.selects.b),
        make("button", { type: "button", click: turned }, "Swap")), this.hint,
      make("div", { class: "fr-compare-sides" }, this.about.a, this.about.b), dropPlace(files), this.refused);
  }

  // Offer published runs and `local` files; runs that share no setting with the other side are grey.
  offer(state, local) {
    const option = (key, words, side, disabled = false) => make("option", { value: key, selected: key === state[side], disabled }, words);
    this.hint.hidden = true;
    const group = (label, options) => (options.length ? [make("optgroup", { label }, options)] : []);
    for (const side of SIDES) {
      const now = state[side];
      const other = this.published.find(({ run }) => run === state[side === "a" ? "b" : "a"])?.run;
      const apart = (run) => other && run !== now && run !== other && !this.shared[other]?.[run];
      const absent = now && !local.has(now) && !this.published.some(({ run }) => run === now) ? [option(now, "a file that is not here yet", side)] : [];
      this.selects[side].replaceChildren(option("", "choose …", side), ...absent,
        ...group("Your files", [...local].map(([key, { name }]) => option(key, name, side))),
        ...group("Published", this.published.map((about) => option(about.run, titled(about), side, apart(about.run)))));
      if (this.selects[side].querySelector("[value]:disabled")) this.hint.hidden = false;
    }
  }

  // What a side says of itself: a file that was read, or words.
  tell(side, held) {
    const note = (...inside) => make("p", { class: "fr-note" }, ...inside);
    if (!held || typeof held === "string") return this.about[side].replaceChildren(...(held ? [note(held)] : []));
    const { about, name, sha256 } = held;
    const which = about.page ? [make("a", { href: about.page }, `run ${about.run}`), `, ${about.tier}`] : [`${name}, run ${about.run}: your file, not checked here`];
    return this.about[side].replaceChildren(make("p", {}, make("strong", {}, `${side.toUpperCase()}: ${about.name}`)),
      note(which, `; ${plural(held.cell.length, "setting")}`), ...(about.page || sha256 ? [] : [note(UNNAMED)]));
  }

  refuse(lines) {
    this.refused.replaceChildren(...lines.map((line) => make("p", {}, line)));
  }
}

function dropPlace(files) {
  const input = make("input", { type: "file", multiple: true, accept: ".parquet", class: "fr-compare-input", id: "fr-compare-input",
    change: () => { files([...input.files]); input.value = ""; } });
  const place = make("div", { class: "fr-compare-drop" }, make("label", { for: "fr-compare-input", class: "fr-compare-choose" }, "Choose files"),
    input, " or drop a trials.parquet anywhere.");
  const carries = ({ dataTransfer }) => [...dataTransfer?.types ?? []].includes("Files");
  const over = (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    place.classList.toggle("fr-compare-over", event.type === "dragover");
    if (event.type === "drop") files([...event.dataTransfer.files]);
  };
  for (const kind of ["dragover", "dragleave", "drop"]) document.addEventListener(kind, over);
  return place;
}

const titled = ({ label, suites, name, device, run }) => [name, device, label, suites.join(" + "), run].filter(Boolean).join(" · ");

// What is said of a side that is not there.
export const waiting = (key) => (key.startsWith("sha256:")
  ? `This link compares with a file that is on somebody’s disk. Drop the one whose sha256 begins with ${key.slice(7, 19)} to see the same.`
  : !key || key.startsWith("file:") ? "" : `There is no run ${key} here.`);
