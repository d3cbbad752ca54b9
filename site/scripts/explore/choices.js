// What is drawn: what a link says, and what is chosen where nothing was said.

import { parse } from "../dom.js";
import { NONE, filtered, proper, texts, valueCounts, varying } from "./data.js";

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

// The rows that have one of some values of an axis.
const having = (cells, name, wanted, rows = null) => filtered(cells, new Map([[name, new Set(wanted)]]), rows);

// The cells that the choice of machines, runs and of what ran leaves, before any filter.
export const base = (cells, state) => having(cells, "ran", [state.ran], having(cells, "run", state.runs));

// What ran in some runs, in the order of the index.
export function ranIn(cells, runs, index) {
  const there = texts(cells, having(cells, "run", runs), "ran");
  return index.ran.map(({ name }) => name).filter((name) => there.includes(name));
}

// What can be put on an axis of the picture: what varies, of which "ran" is chosen by itself.
export const offered = (cells, rows) => varying(cells, rows).filter((name) => name !== "ran");

export function runsOf(cells, machine) {
  const found = [...cells.runs].filter(([, run]) => run.machine === machine);
  return found.sort(([, a], [, b]) => (a.started < b.started ? 1 : -1)).map(([id]) => id);
}

// A machine of which no run is chosen gets the newest that asks what the chosen ones ask, else the newest.
export function settleRuns(cells, state) {
  state.runs = state.runs.filter((id) => state.machines.includes(cells.runs.get(id)?.machine));
  for (const machine of state.machines) {
    if (state.runs.some((id) => cells.runs.get(id).machine === machine)) continue;
    const suites = new Set(state.runs.flatMap((id) => cells.runs.get(id).suites));
    const runs = runsOf(cells, machine);
    const run = runs.find((id) => cells.runs.get(id).suites.some((suite) => suites.has(suite))) ?? runs[0];
    if (run) state.runs.push(run);
  }
}

// What ran, if nobody says it: what was asked at most batch sizes and worker counts; training before what is less.
function ranOf(cells, runs, index) {
  const rows = having(cells, "run", runs);
  const pairs = ["batch_size", "num_workers"].map((axis) => cells.dims.get(axis)?.codes);
  const spread = (name) => new Set(Array.from(having(cells, "ran", [name], rows), (row) => pairs.map((codes) => codes?.[row]).join())).size;
  return ranIn(cells, runs, index).sort((a, b) => spread(b) - spread(a))[0] ?? "train";
}

// Leave one value of each axis that is not drawn: its default where it was measured, of workloads the one with most
// cells, else the first. Cells in which the axis does not apply stay.
function holdStill(cells, rows, state, names) {
  let some = filtered(cells, state.filters, rows);
  for (const name of names) {
    if ([state.x, state.colour, state.facet, ...IDENTITY].includes(name)) continue;
    const there = valueCounts(cells, some, name).filter(([text]) => text !== NONE);
    if (there.length < 2) continue;
    const usual = name === "workload"
      ? there.reduce((most, each) => (each[1] > most[1] ? each : most))
      : there.find(([text]) => text === cells.dims.get(name).standard) ?? there[0];
    state.filters.set(name, new Set([usual[0], NONE]));
    some = having(cells, name, [usual[0], NONE], some);
  }
}

// An axis stands for one thing in the picture.
export function separate(state) {
  if (state.colour === state.x) state.colour = "";
  if ([state.x, state.colour].includes(state.facet)) state.facet = "";
}

// Axes of the picture: what was chosen stays if it still varies; else those, of a few that are asked about most, that
// leave most cells when all others are held still. The first of equals is the main suite's question.
export function settleAxes(cells, rows, state) {
  const there = offered(cells, rows);
  const count = (name) => proper(cells, rows, name).length;
  if (!there.includes(state.x)) Object.assign(state, bestAxes(cells, rows, state, there, count));
  if (!there.includes(state.colour)) state.colour = "";
  if (!there.includes(state.facet) || count(state.facet) > MOST_FACETS) state.facet = "";
  separate(state);
  if (state.machines.length > 1 && there.includes("machine") && ![state.x, state.colour].includes("machine") && count("machine") <= MOST_FACETS) {
    state.facet = "machine";
  }
}

function bestAxes(cells, rows, state, there, count) {
  const some = (names) => names.filter((name) => there.includes(name));
  const x = some(X);
  if (!x.length) x.push(there.find((name) => !IDENTITY.includes(name) && name !== "workload") ?? there[0] ?? X[0]);
  let [most, best] = [0, { x: x[0], colour: "", facet: "" }];
  for (const along of x) {
    for (const colour of [...some(COLOUR), ""]) {
      for (const facet of ["", ...some(FACET).filter((name) => count(name) <= FEW_FACETS)]) {
        if (along === colour || [along, colour].includes(facet) && facet) continue;
        const trial = { ...state, x: along, colour, facet, filters: new Map(state.filters) };
        holdStill(cells, rows, trial, there);
        const left = filtered(cells, trial.filters, rows);
        const vary = varying(cells, left);
        const idle = [along, colour, facet].filter((name) => name && !vary.includes(name)).length;
        const kept = left.length * LESS ** idle;
        if (kept > MORE * most) [most, best] = [kept, { x: along, colour, facet }];
      }
    }
  }
  return best;
}

export function settleFilters(cells, rows, state, seen) {
  for (const [name, wanted] of [...state.filters]) {
    const there = texts(cells, rows, name);
    const left = there.filter((text) => wanted.has(text));
    if (!left.length || left.length === there.length) state.filters.delete(name);
    else state.filters.set(name, new Set(there.includes(NONE) ? left : [...left, NONE]));
  }
  holdStill(cells, rows, state, varying(cells, rows).filter((name) => !seen.has(name)));
}

export function settleMeasures(cells, rows, state) {
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
  readChoices(said, state, index, cells, rows, lost);
  const given = { x: state.x, colour: state.colour, facet: state.facet };
  settleAxes(cells, rows, state);
  for (const name of ["colour", "facet"]) if (one(name) === "none") state[name] = "";
  for (const name of ["x", "colour", "facet"]) {
    if (given[name] && !cells.dims.has(given[name])) lost("no cell with a value of", [given[name]]);
    else if (given[name]) state[name] = given[name];
  }
  const wanted = [state.metric, state.beside];
  settleMeasures(cells, rows, state);
  if (rows.length) lost("no value of", wanted.filter((name) => name !== "phases" && ![state.metric, state.beside].includes(name)));
  const named = [...said.keys()].filter((name) => index.dims.some((axis) => axis.name === name));
  holdStill(cells, rows, state, varying(cells, rows).filter((name) => !named.includes(name)));
  return { state, cells, told };
}

// What an address says of measures, axes and filters.
function readChoices(said, state, index, cells, rows, lost) {
  const axes = index.dims.map(({ name }) => name);
  const measures = index.measures.map(({ name }) => name);
  const ends = measures.flatMap((each) => ["", "_low", "_high", "_n"].map((end) => each + end));
  const axis = ["no axis", [...axes, "none"]];
  const known = {
    metric: ["no measure", measures], beside: ["no measure", [...measures, "phases"]], x: axis, colour: axis, facet: axis,
    y_scale: ["no scale", ["log", "linear"]], sort: ["no column", ["x", ...axes, ...ends]],
  };
  for (const [name, values] of said) {
    if (["machine", "run", "ran"].includes(name)) continue;
    const [what, words] = Object.hasOwn(known, name) ? known[name] : [];
    const [first, second] = values;
    if (words) {
      lost(what, (name === "sort" ? values.slice(0, 1) : values).filter((each) => !words.includes(each)));
      if (name === "sort") state.sort = { by: words.includes(first) && first !== "x" ? first : "", descending: second !== "ascending" };
      else if (name !== "y_scale" && words.includes(first)) state[name] = first === "none" ? "" : first;
    } else if (axes.includes(name)) {
      const there = texts(cells, rows, name);
      lost(`no cell with ${name}`, values.filter((each) => each !== NONE && !there.includes(each)));
      if (!there.every((each) => values.includes(each))) state.filters.set(name, new Set(values));
    } else lost("no axis or setting", [name]);
  }
}
