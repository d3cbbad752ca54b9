// The control bar. Every control is native and labelled; one that could change nothing is not shown.

import { fold, make } from "../dom.js";
import { parse } from "./address.js";
import { NONE, held, passing, plural, varying } from "./data.js";

// What is drawn when nothing was said, what a link says, and what in it is not known here.

const X = ["batch_size", "num_workers", "storage_format"];
const COLOUR = ["num_workers", "page_cache", "storage_format"];
const FACET = ["storage_format", "patch_size", "page_cache", "batch_size"];
// How many times the cells of another choice must be there before it is taken.
const MORE = 1.2;
// What cells count for where they all lie at one place of an axis, or have one colour.
const LESS = 0.3;
export const MOST_FACETS = 12;
const FEW_FACETS = 4;
// Axes that say what a cell is rather than how it was set; nothing about them is held still.
const IDENTITY = ["machine", "run", "tier", "device", "suite", "protocol_version", "workload_version"];

const kind = (state) => new Map([["run", new Set(state.runs)], ["ran", new Set([state.ran])]]);

// The cells that the choice of machines, runs and of what ran leaves, before any filter.
export const base = (cells, state) => passing(cells, kind(state));

// What ran in some runs, in the order of the index.
export function ranIn(cells, runs, index) {
  const there = held(cells, passing(cells, new Map([["run", new Set(runs)]])), "ran").map(([name]) => name);
  return index.ran.map(({ name }) => name).filter((name) => there.includes(name));
}

// What can be put on an axis of the picture: what varies, of which "ran" is chosen by itself.
export const offered = (cells, rows) => varying(cells, rows).filter((name) => name !== "ran");

export function runsOf(cells, machine) {
  const found = [...cells.runs].filter(([, run]) => run.machine === machine);
  return found.sort(([, a], [, b]) => (a.started < b.started ? 1 : -1)).map(([id]) => id);
}

// For a machine of which no run is chosen: the newest that asks what the chosen ones ask, else the newest.
function fitting(cells, machine, chosen) {
  const suites = new Set(chosen.flatMap((id) => cells.runs.get(id)?.suites ?? []));
  const runs = runsOf(cells, machine);
  return runs.find((id) => cells.runs.get(id).suites.some((suite) => suites.has(suite))) ?? runs[0];
}

export function settleRuns(cells, state) {
  state.runs = state.runs.filter((id) => state.machines.includes(cells.runs.get(id)?.machine));
  for (const machine of state.machines) {
    if (state.runs.some((id) => cells.runs.get(id).machine === machine)) continue;
    const run = fitting(cells, machine, state.runs);
    if (run) state.runs.push(run);
  }
}

// What ran, if nobody says it: what was asked at most batch sizes and worker counts; training before what is less.
export function ranOf(cells, runs, index) {
  const rows = passing(cells, new Map([["run", new Set(runs)]]));
  const spread = (name) => {
    const some = passing(cells, new Map([["ran", new Set([name])]]), rows);
    const pairs = X.slice(0, 2).map((axis) => cells.dims.get(axis)?.codes);
    return new Set(Array.from(some, (row) => pairs.map((codes) => codes?.[row]).join())).size;
  };
  return ranIn(cells, runs, index).sort((a, b) => spread(b) - spread(a))[0] ?? "train";
}

// Leave one value of each axis that is not drawn: its default where it was measured, of workloads the one with most
// cells, else the first. Cells in which the axis does not apply stay.
export function holdStill(library, cells, rows, state, names) {
  let some = passing(cells, state.filters, rows);
  const axes = new Map(library.index.dims.map((axis) => [axis.name, axis]));
  for (const name of names) {
    if ([state.x, state.colour, state.facet, ...IDENTITY].includes(name)) continue;
    const values = held(cells, some, name);
    const proper = values.filter(([text]) => text !== NONE);
    if (proper.length < 2) continue;
    const usual = name === "workload"
      ? proper.reduce((most, each) => (each[1] > most[1] ? each : most))
      : proper.find(([text]) => text === String(axes.get(name).default)) ?? proper[0];
    state.filters.set(name, new Set([usual[0], NONE]));
    some = passing(cells, new Map([[name, state.filters.get(name)]]), some);
  }
}

// Axes of the picture: what was chosen stays if it still varies; else those, of a few that are asked about most, that
// leave most cells when all others are held still. The first of equals is the main suite's question.
export function settleAxes(library, cells, rows, state) {
  const there = offered(cells, rows);
  const count = (name) => held(cells, rows, name).filter(([text]) => text !== NONE).length;
  const fits = state.x && there.includes(state.x);
  if (!fits) Object.assign(state, telling(library, cells, rows, state, there, count));
  const taken = () => [state.x, state.colour];
  if (!there.includes(state.colour) || state.colour === state.x) state.colour = "";
  if (!there.includes(state.facet) || taken().includes(state.facet) || count(state.facet) > MOST_FACETS) state.facet = "";
  if (state.machines.length > 1 && there.includes("machine") && !taken().includes("machine") && count("machine") <= MOST_FACETS) {
    state.facet = "machine";
  }
}

function telling(library, cells, rows, state, there, count) {
  const some = (names) => names.filter((name) => there.includes(name));
  const x = some(X);
  if (!x.length) x.push(there.find((name) => !IDENTITY.includes(name) && name !== "workload") ?? there[0] ?? X[0]);
  let best = { kept: 0 };
  for (const along of x) {
    for (const colour of [...some(COLOUR), ""]) {
      for (const facet of ["", ...some(FACET).filter((name) => count(name) <= FEW_FACETS)]) {
        if (along === colour || [along, colour].includes(facet) && facet) continue;
        const trial = { ...state, x: along, colour, facet, filters: new Map(state.filters) };
        holdStill(library, cells, rows, trial, there);
        const left = passing(cells, trial.filters, rows);
        const vary = varying(cells, left);
        const idle = [along, colour, facet].filter((name) => name && !vary.includes(name)).length;
        const kept = left.length * LESS ** idle;
        if (kept > MORE * best.kept) best = { kept, x: along, colour, facet };
      }
    }
  }
  return { x: best.x ?? x[0], colour: best.colour ?? "", facet: best.facet ?? "" };
}

export function settleFilters(library, cells, rows, state, seen) {
  for (const [name, texts] of [...state.filters]) {
    const there = held(cells, rows, name).map(([text]) => text);
    const left = there.filter((text) => texts.has(text));
    if (!left.length || left.length === there.length) state.filters.delete(name);
    else state.filters.set(name, new Set(there.includes(NONE) ? left : [...left, NONE]));
  }
  holdStill(library, cells, rows, state, varying(cells, rows).filter((name) => !seen.has(name)));
}

export function settleMeasures(library, cells, rows, state) {
  const known = [...cells.measures.keys()].filter((name) => rows.some((row) => !Number.isNaN(cells.measures.get(name).mean[row])));
  if (known.length && !known.includes(state.metric)) [state.metric] = known;
  if (state.beside !== "phases" && (!known.includes(state.beside) || state.beside === state.metric)) state.beside = "phases";
  return known;
}

// A state from an address. What the address does not say is chosen here; what it says and nobody knows is told.
export async function resolve(library, fragment) {
  const said = parse(fragment) ?? new Map();
  const { index } = library;
  const told = [];
  const one = (name) => said.get(name)?.[0];
  const lost = (what, names) => names.forEach((name) => told.push(`${what} “${name}”`));
  const machines = said.get("machine") ?? [index.opening.machine];
  lost("no machine", machines.filter((id) => !library.places.has(id)));
  const state = {
    machines: [...new Set(machines)].filter((id) => library.places.has(id)),
    runs: said.get("run") ?? (said.has("machine") ? [] : [index.opening.run]),
    ran: "", metric: "samples_per_s", beside: "phases", x: "", colour: "", facet: "", log: one("y_scale") === "log",
    sort: { by: "", descending: true }, filters: new Map(),
  };
  const cells = await library.cells(state.machines);
  lost("no run", state.runs.filter((id) => !cells.runs.has(id)));
  if (said.has("run")) state.runs = state.runs.filter((id) => cells.runs.has(id));
  else settleRuns(cells, state);
  lost("nothing that ran as", (said.get("ran") ?? []).filter((name) => !library.ran.has(name)));
  state.ran = library.ran.has(one("ran")) ? one("ran") : ranOf(cells, state.runs, index);
  const rows = base(cells, state);
  read(said, state, index, cells, rows, lost);
  const given = { x: state.x, colour: state.colour, facet: state.facet };
  settleAxes(library, cells, rows, state);
  for (const name of ["colour", "facet"]) if (one(name) === "none") state[name] = "";
  for (const name of ["x", "colour", "facet"]) {
    if (given[name] && !cells.dims.has(given[name])) lost("no cell with a value of", [given[name]]);
    else if (given[name]) state[name] = given[name];
  }
  const wanted = [state.metric, state.beside];
  settleMeasures(library, cells, rows, state);
  if (rows.length) lost("no value of", wanted.filter((name) => name !== "phases" && ![state.metric, state.beside].includes(name)));
  const named = [...said.keys()].filter((name) => index.dims.some((axis) => axis.name === name));
  holdStill(library, cells, rows, state, varying(cells, rows).filter((name) => !named.includes(name)));
  return { state, cells, told };
}

function read(said, state, index, cells, rows, lost) {
  const axes = index.dims.map(({ name }) => name);
  const measures = index.measures.map(({ name }) => name);
  for (const [name, values] of said) {
    if (["machine", "run", "ran"].includes(name)) continue;
    if (name === "metric" || name === "beside") {
      lost("no measure", values.filter((each) => !measures.includes(each) && !(name === "beside" && each === "phases")));
      if (measures.includes(values[0])) state[name] = values[0];
    } else if (["x", "colour", "facet"].includes(name)) {
      lost("no axis", values.filter((each) => !axes.includes(each) && each !== "none"));
      if (axes.includes(values[0])) [state[name]] = values;
    } else if (name === "y_scale") lost("no scale", values.filter((each) => !["log", "linear"].includes(each)));
    else if (name === "sort") {
      const known = ["x", ...axes, ...measures.flatMap((each) => ["", "_low", "_high", "_n"].map((end) => each + end))];
      lost("no column", values.slice(0, 1).filter((each) => !known.includes(each)));
      state.sort = { by: known.includes(values[0]) && values[0] !== "x" ? values[0] : "", descending: values[1] !== "ascending" };
    }
    else if (axes.includes(name)) {
      const there = held(cells, rows, name).map(([text]) => text);
      lost(`no cell with ${name}`, values.filter((each) => each !== NONE && !there.includes(each)));
      if (!there.every((each) => values.includes(each))) state.filters.set(name, new Set(values));
    } else lost("no axis or setting", [name]);
  }
}

const MOST_MACHINES = 12;
const PICKS = [
  ["workload", "Workload"], ["ran", "What ran"], ["metric", "Measure"], ["x", "Along x"], ["colour", "Colour"],
  ["facet", "A panel for each"], ["beside", "Beside it"],
];

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
      machines: fold("machines", [find, this.machines]), runs: fold("runs", [this.runs]), filters: fold("filters", [this.filters]),
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
    return { select, label: make("label", { class: "fr-explore-pick" }, make("span", {}, title), select) };
  }

  // Show a state: what can be chosen, and what is.
  show(state, { cells, rows, names: axes, ran }, known) {
    this.state = state;
    this.cells = cells;
    const few = axes.filter((name) => held(cells, rows, name).length <= MOST_FACETS);
    const named = (names) => names.map((name) => [name, name]);
    const label = (name) => [name, this.library.measure(name, state.ran).label];
    const there = held(cells, rows, "workload");
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

  tick(list, { name, value, checked, change, inside }) {
    return make("label", { class: "fr-explore-tick" }, make("input", { type: "checkbox", name, value, checked, change }), make("span", {}, inside));
  }

  showMachines() {
    const { library, state } = this;
    const every = library.index.machines.id;
    const found = (id) => {
      const { name, workloads } = library.machine(id);
      return !this.wanted || `${id} ${name} ${workloads}`.toLowerCase().includes(this.wanted);
    };
    const others = [];
    for (const id of every) {
      if (others.length >= MOST_MACHINES) break;
      if (!state.machines.includes(id) && found(id)) others.push(id);
    }
    const about = (id) => {
      const { name, workloads, cells } = library.machine(id);
      return [`${name} `, make("small", {}, `${id}: ${plural(cells, "cell")}, ${workloads}`)];
    };
    this.folds.machines.box.hidden = every.length < 2;
    this.folds.machines.say(`Machines: ${state.machines.map((id) => library.machine(id).name).join("; ") || "none"}`);
    this.list(this.machines, [...state.machines, ...others].map((id) => ({
      name: "machine", value: id, checked: state.machines.includes(id), inside: about(id),
      change: (event) => this.changed("machines", (next) => {
        next.machines = event.target.checked ? [...next.machines, id] : next.machines.filter((each) => each !== id);
      }),
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
        change: (event) => this.changed("base", (next) => {
          next.runs = event.target.checked ? [...next.runs, id] : next.runs.filter((each) => each !== id);
        }) };
    }));
  }

  runName(id) {
    const { day, suites } = this.cells.runs.get(id);
    return `${suites.join(", ")}, ${day}`;
  }

  // Keep the boxes that are there, so that the one that has the focus keeps it.
  list(place, wanted) {
    const said = wanted.map(({ value }) => value).join("\n");
    if (place.dataset.said !== said) place.replaceChildren(...wanted.map((each) => this.tick(place, each)));
    else wanted.forEach(({ checked }, at) => { place.children[at].firstChild.checked = checked; });
    place.dataset.said = said;
  }

  showFilters(rows, axes) {
    const { state, cells } = this;
    const values = axes.map((name) => [name, held(cells, rows, name)]);
    const said = JSON.stringify(values);
    if (this.filtered !== said) this.filters.replaceChildren(...values.map(([name, there]) => this.filter(name, there)));
    this.filtered = said;
    for (const box of this.filters.querySelectorAll("input")) box.checked = state.filters.get(box.name)?.has(box.value) ?? true;
    for (const all of this.filters.querySelectorAll("button")) all.disabled = !state.filters.has(all.value);
    const chosen = [...state.filters].filter(([name]) => name !== "workload");
    this.folds.filters.box.hidden = !axes.length && !chosen.length;
    this.folds.filters.say(`Filters: ${chosen.map(([name, texts]) => `${name} ${this.short([...texts])}`).join("; ") || "none"}`);
  }

  short(texts) {
    const proper = texts.filter((text) => text !== NONE);
    const said = proper.length ? proper : texts;
    return said.length > 4 ? `${said.length} values` : said.join(" or ") || "nothing";
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
        make("span", {}, `${text} `, make("small", {}, count.toLocaleString("en")))));
    }
    field.append(make("button", { type: "button", value: name, "aria-label": `all values of ${name}`,
      click: () => set(there.map(([text]) => text)) }, "all"));
    return field;
  }
}
