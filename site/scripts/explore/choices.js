// What is drawn: what a link says, and what is chosen where nothing was said. A state holds runs, what ran, a measure, the
// options along x, in colours and in panels, filters (option to the set of its values that stay) and the table's order.

import { NONE, counts, proper, text, varying } from "../cells.js";
import { format, parse } from "../dom.js";

const X = ["num_workers", "batch_size", "storage_format", "loader"];
const COLOUR = ["storage_format", "loader", "batch_size", "machine", "num_workers"];
// They say where and how a setting was measured; nothing about them is held still.
const IDENTITY = ["machine", "run", "tier", "device", "suite", "protocol_version", "workload_version"];
const PANELS = ["machine", "batch_size", "storage_format", "page_cache"];
export const MOST_PANELS = 6;
const FEW_PANELS = 4;

export const having = (rows, filters) => rows.filter((row) => [...filters].every(([name, values]) => values.has(text(row, name))));

// The settings that the choice of what ran leaves, before any filter.
export const base = (rows, { ran }) => rows.filter((row) => row.ran === ran);

// What a comparison demands to agree (`names`) and does not among rows: versions of one workload, hashes of the same images.
const OF = { workload_version: ["workload"], data_hash: ["workload", "patch_size", "n_samples"] };
export const mixed = (rows, names) => names.filter((name) => [...Map.groupBy(rows, (row) => (OF[name] ?? []).map((one) => text(row, one)).join()).values()]
  .some((alike) => proper(alike, name).length > 1));

// What can be drawn along x, in colours and in panels.
export const offered = (rows, index) => varying(rows, index.dims.map(({ name }) => name)).filter((name) => name !== "ran");

// Options of the picture and filters that leave one value of every other option: its default where it was measured, else
// the one that most settings have. Settings in which the option does not apply stay.
export function settle(state, all, index) {
  const there = index.ran.map(({ name }) => name).filter((name) => all.some((row) => row.ran === name));
  if (!there.includes(state.ran)) {
    const spread = (name) => new Set(base(all, { ran: name }).map(({ batch_size, num_workers }) => `${batch_size} ${num_workers}`)).size;
    state.ran = [...there].sort((a, b) => spread(b) - spread(a))[0] ?? "train";
  }
  const rows = base(all, state);
  const names = offered(rows, index);
  const first = (wanted, taken) => wanted.find((name) => names.includes(name) && !taken.includes(name));
  if (!names.includes(state.x)) state.x = first(X, []) ?? names.find((name) => !IDENTITY.includes(name)) ?? "num_workers";
  if (!names.includes(state.colour) || state.colour === state.x) state.colour = first(COLOUR, [state.x]) ?? "";
  if (!names.includes(state.facet) || [state.x, state.colour].includes(state.facet)) state.facet = first(PANELS.filter((name) => proper(rows, name).length <= FEW_PANELS), [state.x, state.colour]) ?? "";
  if (proper(rows, state.facet).length > MOST_PANELS) state.facet = "";
  let left = having(rows, state.filters = new Map([...state.filters].filter(([name, values]) => rows.some((row) => values.has(text(row, name))))));
  for (const name of names) {
    if ([state.x, state.colour, state.facet, ...IDENTITY].includes(name) || state.filters.has(name)) continue;
    const values = counts(left, name).filter(([said]) => said !== NONE);
    if (values.length < 2) continue;
    const usual = String(index.dims.find((dim) => dim.name === name).default);
    const [kept] = (name !== "workload" && values.find(([said]) => said === usual)) || values.reduce((most, each) => (each[1] > most[1] ? each : most));
    state.filters.set(name, new Set([kept, NONE]));
    left = having(left, new Map([[name, state.filters.get(name)]]));
  }
  if (proper(left, state.facet).length < 2) state.facet = "";
  return state;
}

// A state from an address that says one, with the names in it that nobody knows; what it says is taken at its word.
export function stateOf(fragment, index) {
  const said = parse(fragment);
  const one = (name, otherwise = "") => said?.get(name)?.[0] ?? otherwise;
  const known = new Set(index.runs.map(({ run }) => run));
  const runs = said?.get("run") ?? [index.opening];
  const names = index.dims.map(({ name }) => name);
  const state = {
    runs: runs.filter((run) => known.has(run)), ran: one("ran"), metric: one("metric", "samples_per_s"), x: one("x"), colour: one("colour"),
    facet: one("facet"), log: one("y_scale") === "log", sort: { by: one("sort"), descending: said?.get("sort")?.[1] !== "ascending" },
    filters: new Map([...said ?? []].filter(([name]) => names.includes(name) && !["machine", "run", "ran"].includes(name)).map(([name, values]) => [name, new Set(values)])),
  };
  const reserved = ["run", "ran", "metric", "x", "colour", "facet", "y_scale", "sort"];
  const lost = [...runs.filter((run) => !known.has(run)), ...[...said?.keys() ?? []].filter((name) => !reserved.includes(name) && !names.includes(name))];
  return { state, lost, whole: said?.has("x") ?? false };
}

export const address = (state) => format([
  ["run", state.runs], ["ran", [state.ran]], ["metric", [state.metric]], ["x", [state.x]], ["colour", [state.colour]], ["facet", [state.facet]],
  ["y_scale", [state.log ? "log" : "linear"]], ["sort", state.sort.by ? [state.sort.by, state.sort.descending ? "descending" : "ascending"] : [""]],
  ...[...state.filters].map(([name, values]) => [name, [...values]]),
]);
