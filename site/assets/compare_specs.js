// The forest plot: a specification without data, so that another comparison need not draw it anew, and its rows.

import { between, times } from "./compare_words.js";

const GRID = "var(--fr-line)";
const ROW = 22;
// Room beside labels and plot: padding, and half of the last tick's label.
const BESIDE = 36;
export const MOST = 40;
const many = (count) => count.toLocaleString("en");

const across = (field, title) => ({ field, type: "quantitative", title, scale: { type: "log", nice: false, padding: 12 },
  axis: { tickCount: 6, format: ",.2~r", labelOverlap: true } });

export function forest(width) {
  const limit = Math.max(110, Math.round(width * 0.42));
  const y = { field: "label", type: "ordinal", sort: { field: "at", op: "min" }, title: null,
    axis: { labelLimit: limit, domain: false, ticks: false } };
  const title = "how many times as fast B is (logarithmic)";
  const colour = { field: "colour", type: "nominal", scale: null, legend: null };
  return {
    data: { name: "marks" }, params: [{ name: "hot", value: -1 }], width: width - limit - BESIDE, height: { step: ROW },
    layer: [
      { data: { values: [{ one: 1 }] }, mark: { type: "rule", color: GRID, strokeWidth: 1.5 }, encoding: { x: across("one", title) } },
      { transform: [{ filter: "datum.lo > 0" }], mark: { type: "rule", strokeWidth: 1.5 },
        encoding: { y, x: across("lo", title), x2: { field: "hi" }, color: colour } },
      { mark: { type: "point", filled: true, opacity: 1, strokeWidth: 1 }, encoding: {
        y, x: across("ratio", title), fill: colour, shape: { field: "shape", type: "nominal", scale: null, legend: null },
        size: { condition: { test: "datum.id === hot", value: 200 }, value: 75 },
        stroke: { condition: { test: "datum.id === hot", value: "var(--fr-ink)" }, value: "var(--fr-paper)" },
        tooltip: { field: "tip", type: "nominal" } } },
    ],
  };
}

// The cells that differ most, the fastest first, and all of them together at the end.
export function rows({ count, ratio, lo, hi, label, verdict, overall, n_a, n_b }, tones) {
  const shown = Array.from({ length: Math.min(count, MOST) }, (_, place) => place).sort((a, b) => ratio[b] - ratio[a]);
  const taken = new Map();
  // Two cells whose words are cut to the same are two marks all the same.
  const own = (text) => {
    taken.set(text, (taken.get(text) ?? 0) + 1);
    return taken.get(text) > 1 ? `${text} (${taken.get(text)})` : text;
  };
  const mark = (id, at, words, held, tone) => ({ id, at, label: own(words), ratio: held.ratio, lo: held.lo, hi: held.hi, ...tone,
    tip: { cell: words, "B ÷ A": times(held.ratio), "95 % interval": between(held.lo, held.hi), n: held.n } });
  const cells = shown.map((place, at) => mark(place, at, label[place],
    { ratio: ratio[place], lo: lo[place], hi: hi[place], n: `${n_a[place]} and ${n_b[place]} blocks` }, tones[verdict[place]]));
  return count > 1 ? [...cells, mark(-2, cells.length, `all ${many(count)} cells`, { ...overall, n: `${many(count)} cells` }, tones.overall)] : cells;
}
