// The two pictures of the page: their specifications, and what is said beside them. A scene is the page's Explorer: what is
// chosen and what that leaves.

import { INK, PAPER, colour, labelled, point, rule, tooltip } from "../picture.js";
import { PAGE } from "../table.js";
import { NONE, texts } from "./data.js";
import { OTHER, besides, distinguishing, marks, message, segments, withUnit } from "./rows.js";

// What is said of all marks even where no cell of the runs differs in it.
const ALWAYS = ["workload", "patch_size", "model", "step_ms"];
const [WIDE, NARROW] = [900, 560];
// Width of a letter of a tick's label, in pixels.
const LETTER = 7;
const ACROSS = { type: "quantitative", axis: { tickCount: 4, format: ",.3~r" } };
const FIT = { type: "fit", contains: "padding" };

// Asked for once, until the window's width changes: asking makes the browser lay the page out.
const widthOf = (view) => (view.wide ||= view.box.clientWidth);

// The chosen measure of all cells against the chosen axis.
export function drawMain(view, scene, measure) {
  const { state, cells, drawn, names, tones } = scene;
  const whole = widthOf(view);
  const some = distinguishing(cells, drawn, names);
  const values = (name) => texts(cells, drawn, name);
  const ticks = values(state.x);
  const facets = state.facet ? values(state.facet).length : 1;
  const columns = Math.min(facets, whole >= WIDE ? 3 : whole >= NARROW ? 2 : 1);
  const width = facets > 1 ? Math.floor((whole - 64 - 22 * (columns - 1)) / columns) : whole;
  const lines = typeof cells.dims.get(state.x)?.values[0] === "number" && ticks.length > 1;
  const entries = tones ? values(state.colour).map((name) => ({ label: `${state.colour} ${name}`, ...(tones.get(name) ?? OTHER) })) : [];
  const [title, about] = [`${measure.label} by ${state.x}`, common(scene)];
  const said = message(cells, drawn, measure, some);
  const more = lines ? ` Lines join cells that differ in ${state.x} alone.` : "";
  view.tell({ title, about, said: said + more, label: `${title}, ${about}. ${said}`, entries: entries.length > 1 ? entries : [] });
  const tilted = ticks.length * LETTER * Math.max(...ticks.map((text) => text.length)) > width;
  const spec = against({ width, columns, x: state.x, y: withUnit(measure), log: state.log && measure.logs, faceted: facets > 1, lines, tilted });
  return view.picture.draw(spec, marks(scene, measure, some.length ? some : names));
}

// A measure against an axis; lines join cells that differ in that axis alone.
function against({ width, columns, x, y, log, faceted, lines, tilted }) {
  const across = {
    x: { field: "x", type: "ordinal", sort: { field: "at", op: "min" }, title: x,
      axis: { labelAngle: tilted ? -40 : 0, labelOverlap: !tilted, labelLimit: 110, labelSeparation: 4 }, scale: { paddingInner: 0.1 } },
    xOffset: { field: "shift", type: "nominal", scale: { paddingOuter: 1 } },
  };
  const up = (field) => ({ field, type: "quantitative", title: y,
    scale: log ? { type: "log", nice: true } : { zero: true, nice: 5 }, axis: { tickCount: 5, format: ",.3~r" } });
  const line = { mark: { type: "line", strokeWidth: 1.5, opacity: 0.7 }, encoding: {
    ...across, y: up("value"), color: colour, detail: { field: "line", type: "nominal" },
    order: { field: "at", type: "quantitative" } } };
  const layer = [
    ...(lines ? [line] : []), rule({ ...across, y: up("low"), y2: { field: "high" } }), point({ ...across, y: up("value") }),
  ];
  if (!faceted) return { width, height: 340, autosize: FIT, layer };
  return {
    columns, spacing: { row: 18, column: 20 },
    facet: { field: "facet", type: "nominal", sort: { field: "part", op: "min" }, title: null,
      header: { labelColor: INK, labelFontSize: 12, labelFontWeight: "bold", labelAnchor: "start", labelLimit: width } },
    spec: { width, height: columns > 1 ? 220 : 200, layer },
  };
}

// What all marks have in common, so that nobody takes a sleep for a model or a cold cache for a warm one.
function common({ state, cells, drawn, names, library }) {
  const still = [...new Set([...ALWAYS, ...names])].map((name) => [name, ...texts(cells, drawn, name)]);
  const said = still.filter(([, one, other]) => one !== NONE && other === undefined)
    .map(([name, text]) => (name === "workload" ? text : `${name} ${text}`));
  return [library.ran.get(state.ran), ...said].join(", ");
}

// The phases, or another measure, of the rows of the table that are shown.
export function drawBeside(view, scene) {
  const { state, cells, page, names, order, table: { from }, library } = scene;
  const width = widthOf(view);
  const some = distinguishing(cells, page, names);
  const rows = order.length > PAGE ? `, rows ${from + 1} to ${from + page.length} of the table` : "";
  const about = `The cells${some.length ? ` by ${some.join(" · ")}` : ""}${rows}`;
  const y = labelled(Math.max(90, Math.round(width * 0.42)));
  const shape = { width, height: 56 + 20 * page.length, autosize: FIT };
  let [title, said, entries, drawn, layer] = ["", "", [], [], []];
  if (state.beside === "phases") {
    const { rows: found, unit, used } = segments(scene, some);
    drawn = found;
    title = "Where a sample’s time goes";
    said = drawn.length ? "Bars are means over blocks; the thin line is the 95 % interval of the whole." : "Phases were not observed here.";
    entries = used.length > 1 ? used : [];
    layer = stacked(y, `time per sample (${unit})`, library.index.edge);
  } else {
    const measure = library.measure(state.beside, state.ran);
    const across = (field) => ({ ...ACROSS, field, title: withUnit(measure) });
    drawn = besides(scene, measure, some);
    title = measure.label;
    said = drawn.length ? message(cells, drawn.map(({ id }) => id), measure, some) : `None of these cells has ${measure.label}.`;
    layer = [rule({ y, x: across("low"), x2: { field: "high" } }), point({ y, x: across("value") })];
  }
  view.tell({ title, about, said, label: `${title}, ${about}. ${said}`, entries });
  view.chart.hidden = !drawn.length;
  return drawn.length ? view.picture.draw({ ...shape, layer }, drawn) : view.picture.clear();
}

// Phases, stacked; a sleep has an edge of its own.
function stacked(y, title, edge) {
  const sleeps = { test: "datum.sleeps" };
  const across = { ...ACROSS, field: "value", stack: "zero", title };
  return [
    { mark: { type: "bar", strokeWidth: 0.5 }, encoding: {
      y, x: across, color: colour, order: { field: "order", type: "quantitative" },
      opacity: { condition: { test: "hot === -1 || datum.id === hot", value: 1 }, value: 0.4 },
      stroke: { condition: { ...sleeps, value: edge }, value: PAPER },
      strokeDash: { condition: { ...sleeps, value: [3, 2] }, value: [1, 0] }, tooltip } },
    { mark: { type: "rule", strokeWidth: 1.5, color: INK }, encoding: {
      y, x: { field: "low", type: "quantitative", title }, x2: { field: "high" } } },
  ];
}
