// The page Explore. A change goes one way: the state, the settings that it leaves, the picture, the table, the address.

import { dot, line, ruleX } from "@observablehq/plot";
import { counts, proper, rowsOf, setting, text, varying } from "../cells.js";
import { copyLink, fine, make, many, number, opened, parsed, plural, read } from "../dom.js";
import { View, draw, hover, symbol } from "../plot.js";
import { Table } from "../table.js";
import { address, base, having, mixed, offered, settle, stateOf } from "./choices.js";
import { Controls } from "./controls.js";

const MOST_MARKS = 1000;
// How far apart values lie where a logarithmic scale shows more.
const STEEP = 3;
const [HEIGHT, NARROW, BESIDE] = [340, 190, 9];

// Colour and shape of each value of an option: that which charts give a name, else the ordered ramp for numbers (zero in grey),
// or colours in order.
function looks(rows, name, { colours, ordered, named, shapes }) {
  const values = proper(rows, name);
  const [numeric, zero] = [rows.some((row) => typeof row[name] === "number"), Number(values[0] === "0")];
  const step = (at) => (zero && !at ? 0 : values.length - zero < 2 ? 4 : 1 + Math.round(((at - zero) * (ordered.length - 2)) / (values.length - zero - 1)));
  return new Map(values.map((said, at) => [said, { colour: colours[name]?.[said] ?? (numeric ? ordered[step(at)] : named[at % named.length]), shape: shapes[at % shapes.length] }]));
}

class Explorer {
  constructor(index, root) {
    this.index = index;
    this.controls = new Controls(index, (touch, far) => this.change(touch, far));
    this.problems = make("div", { class: "fr-explore-problems", role: "status" });
    this.view = new View("fr-explore-main");
    this.table = new Table("The settings that are drawn", { by: "", descending: true }, () => this.write());
    const press = (words, click) => make("button", { type: "button", click }, words);
    const [copy, said] = copyLink(() => "Copied. The link shows the same marks when there are more results.");
    this.app = make("div", { class: "fr-explore-app" }, this.controls.form, this.problems, this.view.box,
      make("p", { class: "fr-explore-take" }, copy, press("Download CSV", () => this.download("csv")), press("Download JSON", () => this.download("json")),
        make("a", { href: location.pathname }, "Start anew"), said), this.table.pages, this.table.scroll);
    root.append(this.app);
  }

  async open() {
    if (this.state && location.hash.length > 1 && !location.hash.includes("=")) return this.write(); // a place on the page
    const { state, lost, whole } = stateOf(location.hash, this.index);
    this.lost = lost;
    this.state = state;
    this.table.sort = state.sort;
    await this.fetch();
    if (!whole) settle(state, this.rows, this.index);
    this.draw();
  }

  // The settings of all chosen runs.
  async fetch() {
    const chosen = this.index.runs.filter(({ run }) => this.state.runs.includes(run));
    const files = await Promise.all(chosen.map(({ cells }) => read(cells)));
    this.rows = files.flatMap((file) => rowsOf(file, this.index.measures));
  }

  async change(touch, far) {
    performance.mark("fr-explore-change");
    touch(this.state);
    const { x, colour, facet } = this.state;
    try {
      if (far) {
        await this.fetch();
        this.state.filters = new Map();
        settle(this.state, this.rows, this.index);
      } else {
        if (colour === x) this.state.colour = "";
        if ([x, this.state.colour].includes(facet)) this.state.facet = "";
      }
      this.lost = [];
      this.draw();
    } catch (error) {
      this.say([`That cannot be shown: ${error.message}`]);
    }
    performance.measure("fr-explore", "fr-explore-change");
  }

  draw() {
    const { state, index, rows } = this;
    const some = base(rows, state);
    const names = offered(some, index);
    const known = index.measures.map(({ name }) => name).filter((name) => some.some((row) => row[name] !== null));
    if (!known.includes(state.metric)) state.metric = known[0] ?? "samples_per_s";
    const passed = having(some, state.filters);
    const measure = index.measures.find(({ name }) => name === state.metric);
    this.passed = passed.filter((row) => row[state.metric] !== null);
    const values = this.passed.flatMap((row) => [row[state.metric], row[`${state.metric}_low`] ?? row[state.metric]]);
    const [least, most] = values.reduce(([low, high], one) => [Math.min(low, one), Math.max(high, one)], [Infinity, -Infinity]);
    this.steep = least > 0 && most >= STEEP * least;
    this.controls.show(state, { rows: some, names, measures: known, ran: proper(rows, "ran"), steep: this.steep });
    this.warn(some, passed);
    const there = this.passed.length > 0;
    for (const part of [this.view.box, this.table.scroll, this.table.pages]) part.hidden = !there;
    if (there) {
      const different = varying(this.passed, index.dims.map(({ name }) => name));
      this.picture(measure, different);
      this.table.show(columns(this.passed, different, measure), inOrder(this.passed, [state.facet, state.colour, state.x]));
    }
    this.write();
  }

  write() {
    const wanted = address(this.state);
    if (location.hash !== wanted) history.replaceState(null, "", wanted);
  }

  // What a reader must know beside the picture: what a link names in vain, what leaves nothing, what is not drawn.
  warn(some, passed) {
    const { state, lost, passed: drawn } = this;
    const missing = passed.length - drawn.length;
    const without = (name) => having(some, new Map([...state.filters].filter(([other]) => other !== name))).length;
    this.say([
      lost.length ? `This link names what is not here: ${lost.join(", ")}.` : "",
      !state.runs.length ? "No run is chosen." : !some.length ? "The chosen runs measured nothing of this kind." : "",
      some.length && !passed.length ? [...state.filters.keys()].filter(without).map((name) =>
        `The filter ${name} leaves nothing; without it there ${without(name) === 1 ? "is" : "are"} ${plural(without(name), "setting")}.`).join(" ") || "The filters leave nothing together." : "",
      missing ? `${plural(missing, "setting")} without this measure ${missing === 1 ? "is" : "are"} left out.` : "",
      drawn.length > MOST_MARKS ? `The first ${many(MOST_MARKS)} of ${many(drawn.length)} marks are drawn; the table has all. Filter to see others.` : "",
      ...mixed(drawn, this.index.same_in_both).map((name) => `These settings differ in ${name}: do not compare them.`),
      proper(drawn, "device").length > 1 ? "Some ran on a GPU and some on a CPU." : "",
    ]);
  }

  say(lines) {
    const kept = lines.filter(Boolean);
    this.problems.replaceChildren(...kept.map((words) => make("p", {}, words)));
    this.problems.hidden = !kept.length;
  }

  picture(measure, different) {
    const { state, index } = this;
    const rows = this.passed.slice(0, MOST_MARKS);
    const tones = looks(rows, state.colour, index);
    const still = index.dims.filter(({ name, default: usual }) => usual !== undefined && ![usual, null].includes(rows[0][name]) && !different.includes(name)).map(({ name }) => name);
    const unit = measure.unit ? `${measure.label} (${measure.unit})` : measure.label;
    const ends = (row) => (row[`${measure.name}_low`] === null ? "no interval" : `${number(row[`${measure.name}_low`])}–${number(row[`${measure.name}_high`])}`);
    const words = (row) => `${number(row[measure.name])} ${measure.unit} (${ends(row)}, n = ${row[`${measure.name}_n`]})`;
    const marks = rows.map((row) => ({
      ...tones.get(text(row, state.colour)) ?? { colour: "var(--fr-muted)", shape: "circle" }, x: text(row, state.x), facet: text(row, state.facet),
      value: row[measure.name], low: row[`${measure.name}_low`], high: row[`${measure.name}_high`], order: row[state.x], series: text(row, state.colour),
      line: different.filter((name) => name !== state.x).map((name) => text(row, name)).join(), tip: [...different.map((name) => `${name} ${text(row, name)}`), words(row)].join("\n"),
    }));
    const [most, least] = [1, -1].map((sign) => rows.reduce((best, row) => (sign * (row[measure.name] - best[measure.name]) > 0 ? row : best)));
    this.view.show({
      title: `${measure.label} by ${state.x}`, about: [index.ran.find(({ name }) => name === state.ran).label, setting(rows[0], still.filter((name) => name !== "mode" && name !== "step"))].filter(Boolean).join(", "),
      said: rows.length > 1 ? `Highest: ${words(most)} at ${setting(most, different)}. Lowest: ${words(least)} at ${setting(least, different)}.` : `${words(most)}.`,
      entries: counts(rows, state.colour).filter(([said]) => tones.has(said)).map(([said]) => ({ label: `${state.colour} ${said}`, ...tones.get(said) })),
      picture: (width) => against(marks, { width, x: state.x, y: unit, log: state.log && this.steep, panels: { label: state.facet, domain: counts(rows, state.facet).map(([said]) => said) }, ticks: counts(rows, state.x).map(([said]) => said), numeric: rows.some((row) => typeof row[state.x] === "number") }),
    });
  }

  download(kind) {
    const { passed, index, state } = this;
    const names = ["cell_id", ...index.dims.map(({ name }) => name), ...["", "_low", "_high", "_n"].map((end) => `${state.metric}${end}`)];
    const lines = passed.map((row) => Object.fromEntries(names.map((name) => [name, typeof row[name] === "number" ? Number(row[name].toPrecision(6)) : row[name] ?? null])));
    const words = kind === "csv" ? csv(names, lines) : `${JSON.stringify({ link: location.href, rows: lines }, null, 1)}\n`;
    const link = URL.createObjectURL(new Blob([words], { type: kind === "csv" ? "text/csv" : "application/json" }));
    make("a", { href: link, download: `feedrate-explore.${kind}` }).click();
    setTimeout(() => URL.revokeObjectURL(link), 10000);
  }
}

// A measure against an option, its series a little beside one another; lines join settings that differ in that option alone.
function against(marks, { width, x, y, log, panels, ticks, numeric }) {
  const facets = panels.domain;
  const several = facets.length > 1;
  const across = several && width / facets.length >= NARROW;
  const panel = several ? { [across ? "fx" : "fy"]: "facet" } : {};
  const series = [...Map.groupBy(marks, (mark) => mark.series).values()];
  const layers = series.flatMap((some, at) => {
    const beside = { ...panel, dx: BESIDE * (at - (series.length - 1) / 2) };
    const bounded = some.filter(({ low }) => low !== null);
    return [...(numeric ? [line(some, { ...beside, x: "x", y: "value", z: "line", stroke: some[0].colour, strokeOpacity: 0.6, sort: "order" })] : []),
      ruleX(bounded, { ...beside, x: "x", y1: "low", y2: "high", stroke: "colour", strokeWidth: 1.5 }),
      dot(some, { ...beside, x: "x", y: "value", fill: "colour", symbol, r: 4.5 })];
  });
  const tilted = (across ? width / facets.length : width) / ticks.length < 7 * Math.max(...ticks.map((said) => said.length));
  return draw({
    width, height: several && !across ? 200 * facets.length : HEIGHT, marginLeft: 60, marginTop: 36, marginBottom: tilted ? 90 : 46, ...(several ? { marginRight: 56 } : {}),
    x: { type: "point", domain: ticks, label: x, tickRotate: tilted ? -40 : 0, padding: 0.6 },
    y: { type: log ? "log" : "linear", zero: !log, label: y, grid: true, nice: true, ticks: 5, tickFormat: (value) => number(value) },
    ...(several ? { [across ? "fx" : "fy"]: { ...panels, padding: 0.12 } } : {}), marks: [...layers, hover(marks, { ...panel, x: "x", y: "value" })],
  });
}

const columns = (rows, names, { name, label, unit }) => [
  ...names.map((option) => ({ name: option, title: option, numeric: rows.some((row) => typeof row[option] === "number"), of: (row) => row[option], text: (row) => text(row, option) })),
  ...[["", label, unit], ["_low", "low"], ["_high", "high"], ["_n", "n"]].map(([end, title, of]) =>
    ({ name: `${name}${end}`, title, unit: of, numeric: true, of: (row) => row[`${name}${end}`], text: (row) => fine(row[`${name}${end}`] ?? NaN) })),
];

// As the marks stand: by panel, by series, along x.
function inOrder(rows, names) {
  const places = names.filter(Boolean).map((name) => [name, new Map(counts(rows, name).map(([said], at) => [said, at]))]);
  const key = (row) => places.map(([name, at]) => /** @type {any} */ (at).get(text(row, name)));
  return rows.map((row) => ({ row, at: key(row) })).sort((a, b) => a.at.reduce((less, value, at) => less || value - b.at[at], 0)).map(({ row }) => row);
}

// Text that a spreadsheet would run as a formula gets an apostrophe.
function field(value) {
  if (value === null) return "";
  const said = typeof value === "string" && /^[=+\-@]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(said) ? `"${said.replaceAll('"', '""')}"` : said;
}

const csv = (names, lines) => `${[names, ...lines.map(Object.values)].map((cells) => cells.map(field).join(",")).join("\n")}\n`;

async function start() {
  const root = document.getElementById("fr-explore");
  const plain = document.getElementById("fr-explore-plain");
  try {
    const explorer = new Explorer(await read(root.dataset.index), root);
    await parsed;
    plain.hidden = true;
    await opened(() => explorer.open());
    root.querySelector(".fr-explore-wait").remove();
  } catch (error) {
    plain.hidden = false;
    root.querySelector(".fr-explore-wait")?.remove();
    root.prepend(make("p", { class: "fr-missing", role: "alert" }, `The numbers cannot be shown: ${error.message}`));
    console.error("feedrate:", error);
  }
}

start();
