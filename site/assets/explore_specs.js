// Vega-Lite specifications of the two pictures. They hold no data, and nothing that comes from a record: rows are given
// to the drawn view, so that a filter need not draw the picture anew. Colour and shape are values of the rows.

const HOT = { test: "datum.id === hot" };
const INK = "var(--fr-ink)";
const PAPER = "var(--fr-paper)";
const params = [{ name: "hot", value: -1 }];
const colour = { field: "colour", type: "nominal", scale: null, legend: null };
const shape = { field: "shape", type: "nominal", scale: null, legend: null };
const size = { condition: { ...HOT, value: 230 }, value: 75 };
const stroke = { condition: { ...HOT, value: INK }, value: PAPER };

// What the pointer reads stands in each row as names and texts.
const tooltip = { field: "tip", type: "nominal" };
const FIT = { type: "fit", contains: "padding" };
const POINT = { type: "point", filled: true, opacity: 1, strokeWidth: 1 };

// A measure against an axis; lines join cells that differ in that axis alone.
export function main({ width, columns, x, y, log, faceted, lines, tilted }) {
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
    ...(lines ? [line] : []),
    { mark: { type: "rule", strokeWidth: 1.5 }, encoding: { ...across, y: up("low"), y2: { field: "high" }, color: colour } },
    { mark: POINT, encoding: { ...across, y: up("value"), fill: colour, shape, size, stroke, tooltip } },
  ];
  const data = { name: "marks" };
  if (!faceted) return { data, params, width, height: 340, autosize: FIT, layer };
  return {
    data, params, columns, spacing: { row: 18, column: 20 },
    facet: { field: "facet", type: "nominal", sort: { field: "part", op: "min" }, title: null,
      header: { labelColor: INK, labelFontSize: 12, labelFontWeight: "bold", labelAnchor: "start", labelLimit: width } },
    spec: { width, height: columns > 1 ? 220 : 200, layer },
  };
}

const tall = (count) => 56 + 20 * count;
const rowed = (limit) => ({ field: "label", type: "ordinal", sort: { field: "at", op: "min" }, title: null,
  axis: { labelLimit: limit, domain: false, ticks: false } });

// Phases of the rows of the table, stacked.
export function phases({ width, limit, count, x, edge }) {
  const y = rowed(limit);
  const sleeps = { test: "datum.sleeps" };
  const across = { field: "value", type: "quantitative", stack: "zero", title: x, axis: { tickCount: 4, format: ",.3~r" } };
  const dim = { condition: { test: "hot === -1 || datum.id === hot", value: 1 }, value: 0.4 };
  const bar = { mark: { type: "bar", strokeWidth: 0.5 }, encoding: {
    y, x: across, color: colour, order: { field: "order", type: "quantitative" }, opacity: dim,
    stroke: { condition: { ...sleeps, value: edge }, value: PAPER },
    strokeDash: { condition: { ...sleeps, value: [3, 2] }, value: [1, 0] }, tooltip } };
  const rule = { mark: { type: "rule", strokeWidth: 1.5, color: INK }, encoding: {
    y, x: { field: "low", type: "quantitative", title: x }, x2: { field: "high" } } };
  return { data: { name: "marks" }, params, width, height: tall(count), autosize: FIT, layer: [bar, rule] };
}

// Another measure of the same rows.
export function beside({ width, limit, count, x }) {
  const y = rowed(limit);
  const across = (field) => ({ field, type: "quantitative", title: x, axis: { tickCount: 4, format: ",.3~r" } });
  return { data: { name: "marks" }, params, width, height: tall(count), autosize: FIT,
    layer: [
      { mark: { type: "rule", strokeWidth: 1.5 }, encoding: { y, x: across("low"), x2: { field: "high" }, color: colour } },
      { mark: POINT, encoding: { y, x: across("value"), fill: colour, shape, size, stroke, tooltip } },
    ] };
}
