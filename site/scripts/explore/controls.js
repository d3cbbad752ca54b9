// The control bar. Every control is native and labelled; one that could change nothing is not shown.

import { make, many, picked, plural } from "../dom.js";
import { MOST_FACETS, runsOf } from "./choices.js";
import { NONE, valueCounts } from "./data.js";

const MOST_MACHINES = 12;
const PICKS = [
  ["workload", "Workload"], ["ran", "What ran"], ["metric", "Measure"], ["x", "Along x"], ["colour", "Colour"],
  ["facet", "A panel for each"], ["beside", "Beside it"],
];

// A box that unfolds; its summary is text that can change.
function fold(name, ...inside) {
  const said = make("span");
  const box = make("details", { class: `fr-explore-fold fr-explore-${name}` }, make("summary", {}, said), inside);
  return { box, say: (text) => { said.textContent = text; } };
}

const toggled = (list, id, on) => (on ? [...list, id] : list.filter((each) => each !== id));

export class Controls {
  // `changed` gets what was touched and a function that changes the state.
  constructor(library, changed) {
    this.library = library;
    this.changed = changed;
    this.filtered = "";
    this.wanted = "";
    this.picks = new Map(PICKS.map(([name, label]) => [name, this.pick(name, label)]));
    const log = make("input", { type: "checkbox", name: "log", change: () => changed("view", (state) => { state.log = log.checked; }) });
    this.log = { box: log, label: make("label", { class: "fr-explore-tick" }, log, make("span", {}, "log scale")) };
    this.machines = make("div", { class: "fr-explore-list" });
    this.runs = make("div", { class: "fr-explore-list" });
    this.filters = make("div", { class: "fr-filter fr-explore-values" });
    const find = make("input", { type: "search", placeholder: "Find a machine", "aria-label": "Find a machine",
      input: () => { this.wanted = find.value.toLowerCase(); this.showMachines(); } });
    find.hidden = library.index.machines.id.length <= MOST_MACHINES;
    this.folds = {
      machines: fold("machines", find, this.machines), runs: fold("runs", this.runs), filters: fold("filters", this.filters),
    };
    this.form = make("form", { class: "fr-explore-bar", "aria-label": "What is drawn", submit: (event) => event.preventDefault() },
      make("div", { class: "fr-explore-picks" }, [...this.picks.values()].map(({ label }) => label), this.log.label),
      make("div", { class: "fr-explore-folds" }, Object.values(this.folds).map(({ box }) => box)));
  }

  pick(name, title) {
    const select = make("select", { name, change: () => this.changed(name === "ran" ? "base" : "view", (state) => {
      if (name !== "workload") state[name] = select.value;
      else if (select.value) state.filters.set(name, new Set([select.value, NONE]));
      else state.filters.delete(name);
    }) });
    return { select, label: picked(title, select) };
  }

  // Show a state: what can be chosen, and what is.
  show(state, { cells, rows, names: axes, ran }, known) {
    this.state = state;
    this.cells = cells;
    const few = axes.filter((name) => valueCounts(cells, rows, name).length <= MOST_FACETS);
    const named = (names) => names.map((name) => [name, name]);
    const label = (name) => [name, this.library.measure(name, state.ran).label];
    const there = valueCounts(cells, rows, "workload");
    const only = [...(state.filters.get("workload") ?? [])].filter((name) => name !== NONE);
    const some = only.length > 1 ? [["some", `${only.length} of ${there.length}`]] : [];
    this.fill("workload", [...there.map(([name]) => [name, name]), ...(there.length > 1 ? [["", "all"]] : []), ...some],
      only.length > 1 ? "some" : only[0] ?? (there.length > 1 ? "" : there[0]?.[0] ?? ""));
    this.fill("ran", ran.map((name) => [name, this.library.ran.get(name)]), state.ran);
    this.fill("metric", known.map(label), state.metric);
    this.fill("x", named(axes), state.x);
    this.fill("colour", [["", "one colour"], ...named(axes.filter((name) => name !== state.x))], state.colour);
    this.fill("facet", [["", "one panel"], ...named(few.filter((name) => ![state.x, state.colour].includes(name)))], state.facet);
    const phases = known.some((name) => this.library.index.phases.some((phase) => phase.measure === name));
    this.fill("beside", [...(phases ? [["phases", "Phases of a sample"]] : []),
      ...known.filter((name) => name !== state.metric).map(label)], state.beside);
    this.log.box.checked = state.log;
    this.log.label.hidden = !this.library.measures.get(state.metric)?.logs;
    this.showMachines();
    this.showRuns();
    this.showFilters(rows, axes.filter((name) => !["machine", "run", "workload"].includes(name)));
  }

  fill(name, options, chosen) {
    const { select, label } = this.picks.get(name);
    const said = JSON.stringify(options);
    if (select.dataset.said !== said) {
      select.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
      select.dataset.said = said;
    }
    select.value = chosen;
    label.hidden = options.length < 2;
  }

  showMachines() {
    const { library, state } = this;
    const every = library.index.machines.id;
    const found = (id) => {
      const { name, workloads } = library.machine(id);
      return `${id} ${name} ${workloads}`.toLowerCase().includes(this.wanted);
    };
    const others = every.filter((id) => !state.machines.includes(id) && (!this.wanted || found(id))).slice(0, MOST_MACHINES);
    const about = (id) => {
      const { name, workloads, cells } = library.machine(id);
      return [`${name} `, make("small", {}, `${id}: ${plural(cells, "cell")}, ${workloads}`)];
    };
    this.folds.machines.box.hidden = every.length < 2;
    this.folds.machines.say(`Machines: ${state.machines.map((id) => library.machine(id).name).join("; ") || "none"}`);
    this.list(this.machines, [...state.machines, ...others].map((id) => ({
      name: "machine", value: id, checked: state.machines.includes(id), inside: about(id),
      change: ({ target }) => this.changed("machines", (next) => { next.machines = toggled(next.machines, id, target.checked); }),
    })));
  }

  showRuns() {
    const { cells, state } = this;
    const every = state.machines.flatMap((id) => runsOf(cells, id));
    this.folds.runs.box.hidden = every.length < 2;
    this.folds.runs.say(`Runs: ${state.runs.map((id) => this.runName(id)).join("; ") || "none"}`);
    this.list(this.runs, every.map((id) => {
      const { page, blocks, machine } = cells.runs.get(id);
      const where = state.machines.length > 1 ? `${machine}, ` : "";
      return { name: "run", value: id, checked: state.runs.includes(id),
        inside: [`${this.runName(id)} `, make("small", {}, `${where}${plural(blocks, "block")}, `, make("a", { href: page }, id))],
        change: ({ target }) => this.changed("base", (next) => { next.runs = toggled(next.runs, id, target.checked); }) };
    }));
  }

  runName(id) {
    const { day, suites } = this.cells.runs.get(id);
    return `${suites.join(", ")}, ${day}`;
  }

  // Keep the boxes that are there, so that the one that has the focus keeps it.
  list(place, wanted) {
    const said = wanted.map(({ value }) => value).join("\n");
    if (place.dataset.said === said) wanted.forEach(({ checked }, at) => { place.children[at].firstChild.checked = checked; });
    else place.replaceChildren(...wanted.map(({ inside, ...given }) => make("label", { class: "fr-explore-tick" },
      make("input", { type: "checkbox", ...given }), make("span", {}, inside))));
    place.dataset.said = said;
  }

  showFilters(rows, axes) {
    const { state, cells } = this;
    const values = axes.map((name) => [name, valueCounts(cells, rows, name)]);
    const shown = JSON.stringify(values);
    if (this.filtered !== shown) this.filters.replaceChildren(...values.map(([name, there]) => this.filter(name, there)));
    this.filtered = shown;
    for (const box of this.filters.querySelectorAll("input")) box.checked = state.filters.get(box.name)?.has(box.value) ?? true;
    for (const all of this.filters.querySelectorAll("button")) all.disabled = !state.filters.has(all.value);
    const chosen = [...state.filters].filter(([name]) => name !== "workload");
    this.folds.filters.box.hidden = !axes.length && !chosen.length;
    const short = (texts) => {
      const proper = texts.filter((text) => text !== NONE);
      const said = proper.length ? proper : texts;
      return said.length > 4 ? `${said.length} values` : said.join(" or ") || "nothing";
    };
    this.folds.filters.say(`Filters: ${chosen.map(([name, texts]) => `${name} ${short([...texts])}`).join("; ") || "none"}`);
  }

  filter(name, there) {
    const set = (texts) => this.changed("view", (state) => {
      if (texts.length === there.length) state.filters.delete(name);
      else state.filters.set(name, new Set(there.some(([text]) => text === NONE) ? texts : [...texts, NONE]));
    });
    const field = make("fieldset", {}, make("legend", {}, name));
    const change = () => set([...field.querySelectorAll("input:checked")].map((box) => box.value));
    for (const [text, count] of there) {
      field.append(make("label", {}, make("input", { type: "checkbox", name, value: text, change }),
        make("span", {}, `${text} `, make("small", {}, many(count)))));
    }
    field.append(make("button", { type: "button", value: name, "aria-label": `all values of ${name}`,
      click: () => set(there.map(([text]) => text)) }, "all"));
    return field;
  }
}
