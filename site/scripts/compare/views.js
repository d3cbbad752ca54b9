// What a comparison found, for people: the answer in a sentence, every setting as a mark and a row, what was left out and why,
// what differs between the two. Words of records come as text.

import { NONE, proper, setting, text, varying } from "../cells.js";
import { between, make, many, number, plural, times } from "../dom.js";
import { axisX, dot, gridX, ruleX, ruleY, text as written } from "@observablehq/plot";
import { draw, hover, symbol } from "../plot.js";

const DRAWN = 10;
const ROW = 22;
const [LETTER, RIGHT, NARROW] = [6, 24, 560];
const LISTED = 200;
// Numbers that an axis may carry, finest to coarsest, each a list in which 1 is.
const decades = (digits, every = 1) => Array.from({ length: 41 }, (_, at) => every * (at - 20)).flatMap((power) => digits.map((digit) => Number(`${digit}e${power}`)));
const EVEN = [0.01, 0.02, 0.05, 0.1, 0.2].map((step) => Array.from({ length: 400 }, (_, at) => Number((step * (at + 1)).toPrecision(4))));
const LEVELS = [...EVEN, decades([1, 1.5, 2, 3, 5, 7]), decades([1, 2, 5]), decades([1]), decades([1], 2), decades([1], 4)];
const LEAST = 1.1;
// Said even at their default.
const LEADING = ["storage_format", "batch_size", "num_workers"];
const said = (words, style = "") => make("p", style ? { class: style } : {}, words);
const folded = (title, inside) => make("details", { class: "fr-compare-fold" }, make("summary", {}, title), inside);

function tally({ faster, slower, same, open, once }, tones) {
  const parts = [[faster, "faster"], [slower, "slower"], [same, tones["no difference"].says], [open, "inconclusive"], [once, "measured once"]];
  return parts.filter(([count]) => count).map(([count, word]) => `${word} in ${many(count)}`).join(", ");
}

export function answer({ cells, overall, kinds, repeated, changed }, { tones, kinds: names, cautions, rules }, oneMachine) {
  if (!cells.length) return [said("No setting can be compared: below is why.", "fr-answer")];
  const range = (each) => `${times(each.ratio)}${each.cells > 1 ? ` (${between(each.lo, each.hi)})` : ""}`;
  const lines = [said(`B is ${range(overall)} as fast as A over ${plural(cells.length, "setting")}: ${tally(overall, tones)}.`, "fr-answer")];
  const notes = [overall.cells > 1 && cautions.spread, kinds.some(({ kind }) => kind === "emulated") && cautions.emulated].filter(Boolean);
  if (notes.length) lines.push(said(notes.join(" "), "fr-note"));
  if (changed) lines.push(said(changed.length ? `A → B: ${changed.map(([name, a, b]) => `${name} ${a ?? NONE} → ${b ?? NONE}`).join(", ")}.` : "Both have the same loader settings."));
  if (oneMachine && !changed?.length) {
    const far = repeated.half_within_pct > 100 * (rules.same[1] - 1);
    lines.push(said(`One machine twice: settings differ by ${repeated.half_within_pct.toFixed(1)}\u00a0% (median), ${
      repeated.hold} of ${repeated.cells} intervals contain 1×.${far ? ` ${cautions.apart}` : ""}`));
  }
  if (kinds.length > 1) {
    lines.push(folded("By what ran", make("ul", {}, kinds.map((each) => make("li", {}, `${names[each.kind] ?? each.kind}: ${range(each)} in ${plural(each.cells, "setting")}`)))));
  }
  return lines;
}

// What tells the compared settings apart, and what they share.
export function named(cells, { axes }) {
  const options = [...new Set([...LEADING, ...Object.keys(axes)])].filter((name) => !["mode", "step"].includes(name));
  const names = varying(cells, options);
  const kinds = proper(cells, "ran").length > 1 ? ["ran"] : [];
  const common = options.filter((name) => cells.length && !names.includes(name) && ![null, axes[name]].includes(cells[0][name]));
  const told = (row) => [...names.filter((name) => LEADING.includes(name) || row[name] !== axes[name]), ...kinds];
  return { label: (row) => short(row, told(row)) || "the only setting", common: cells.length ? setting(cells[0], common) : "" };
}

const SHORT = { batch_size: "batch ", storage_format: "", loader: "", workload: "", model: "", ran: "", script: "" };

function short(row, names) {
  return names.filter((name) => text(row, name) !== NONE).map((name) => (name === "num_workers" ? plural(row[name], "worker")
    : name in SHORT ? `${SHORT[name]}${row[name]}` : row[name] === true ? name : `${name} ${row[name]}`)).join(", ");
}

// The settings that differ most, the fastest first; those that have an interval go before others: one repetition decides nothing.
export function drawn(cells) {
  const far = (cell) => Math.abs(Math.log(cell.ratio));
  const open = ({ lo }) => Number(!Number.isFinite(lo));
  return [...cells].sort((one, other) => open(one) - open(other) || far(other) - far(one)).slice(0, DRAWN).sort((one, other) => other.ratio - one.ratio);
}

// The forest plot: these settings, and all of them at the end.
export function forest(cells, overall, label, tones) {
  const mark = (cell, words, n, tone) => ({ ratio: cell.ratio, lo: cell.lo, hi: cell.hi, label: words, ...tone,
    tip: [words, `B ÷ A ${times(cell.ratio)} (${between(cell.lo, cell.hi)})`, n].join("\n") });
  const rows = drawn(cells).map((cell, at) => mark(cell, label(cell), `n = ${cell.n_a} and ${cell.n_b}`, { ...tones[cell.verdict], at: String(at) }));
  if (cells.length > 1) rows.push(mark(overall, `all ${plural(cells.length, "setting")}`, "", { ...tones.overall, at: "all" }));
  const bounded = rows.filter(({ lo }) => Number.isFinite(lo));
  const [least, most] = [Math.min, Math.max].map((end) => end(1, ...rows.flatMap(({ ratio, lo, hi }) => [ratio, lo, hi].filter(Number.isFinite))));
  const wider = Math.sqrt(Math.max(1, LEAST / (most / least)));
  const domain = [least / wider, most * wider];
  return (width) => {
    // On a phone a name has a line of its own, above its mark.
    const above = width < NARROW;
    const left = above ? 8 : Math.min(width * 0.45, LETTER * Math.max(...rows.map((row) => row.label.length)) + 12);
    const fits = Math.floor((above ? width - 8 : left) / LETTER);
    const cut = ({ label: whole }) => (whole.length > fits ? `${whole.slice(0, fits - 1)}…` : whole);
    const place = { y: "at", x: "ratio" };
    const ticks = numbers(domain[0], domain[1], width - left - RIGHT);
    return draw({
      width, height: 60 + (above ? 2 : 1) * ROW * rows.length, marginLeft: left, marginRight: RIGHT, marginBottom: 44,
      x: { type: "log", domain, axis: null },
      y: { type: "point", domain: rows.map(({ at }) => at), axis: null },
      // Words of ticks, as a format of numbers on a logarithmic scale leaves some out.
      marks: [gridX(ticks), axisX(ticks, { label: "B ÷ A, logarithmic", labelOffset: 38, text: (value) => `${number(value)}×` }), ruleX([1], { stroke: "var(--fr-muted)" }), ruleY(bounded, { y: "at", x1: "lo", x2: "hi", stroke: "colour", strokeWidth: 1.5 }),
        written(rows, { y: "at", text: cut, frameAnchor: "left", stroke: "var(--fr-paper)", strokeWidth: 4, fill: "currentColor", ...(above ? { textAnchor: "start", dx: -8, dy: -ROW / 2 - 4 } : { textAnchor: "end", dx: -9 }) }),
        dot(rows, { ...place, fill: "colour", symbol, r: 4.5 }), hover(rows, place)],
    });
  };
}

// The most numbers of which no two touch.
export function numbers(least, most, width) {
  const at = (value) => (width * Math.log(value)) / Math.log(most / least);
  const half = (value) => (LETTER * `${number(value)}×`.length) / 2;
  const clear = (some) => some.every((value, place) => !place || at(value) - at(some[place - 1]) > half(value) + half(some[place - 1]) + LETTER);
  const within = LEVELS.map((level) => level.filter((value) => value >= least && value <= most));
  return within.filter(clear).reduce((best, some) => (some.length > best.length ? some : best));
}

export const columns = (label) => [
  { name: "setting", title: "Setting", of: label, text: label },
  { numeric: true, name: "ratio", title: "B ÷ A", of: (cell) => (Number.isFinite(cell.lo) ? cell.ratio : null), text: (cell) => times(cell.ratio) },
  { numeric: true, name: "interval", title: "95 % interval", text: (cell) => between(cell.lo, cell.hi) },
  ...["a", "b"].map((name) => ({ numeric: true, name, title: name.toUpperCase(), unit: "samples/s",
    of: (cell) => cell[`samples_per_s_${name}`], text: (cell) => number(cell[`samples_per_s_${name}`]) })),
  { numeric: true, name: "n", title: "n", text: (cell) => `${cell.n_a} and ${cell.n_b}` },
  { name: "verdict", title: "B is", of: (cell) => cell.verdict, text: (cell) => cell.verdict },
];

// What was not compared, by reason, the most frequent first.
export function leftOut(unmatched, { axes }) {
  if (!unmatched.length) return [];
  const reasons = [...Map.groupBy(unmatched, ({ reason }) => reason)].sort(([, one], [, other]) => other.length - one.length);
  const words = (row) => setting(row, ["workload", "mode", ...Object.keys(axes).filter((name) => !["workload", "mode"].includes(name) && row[name] !== axes[name])]);
  return [...reasons.map(([reason, rows]) => folded(`Not compared, ${plural(rows.length, "setting")}: ${reason}`,
    make("ul", {}, rows.slice(0, LISTED).map((row) => make("li", {}, words(row))), rows.length > LISTED ? make("li", {}, `and ${rows.length - LISTED} more`) : null)))];
}

function grid(caption, heads, lines) {
  const cells = (row, tag, given) => row.map((cell, at) => make(tag, given(at), make("div", {}, cell)));
  return make("div", { class: "fr-scroll", tabindex: "0", role: "group", "aria-label": caption },
    make("table", { class: "fr-table fr-stack", role: "table" }, make("caption", { class: "fr-hidden" }, caption),
      make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, cells(heads, "th", () => ({ scope: "col", role: "columnheader" })))),
      make("tbody", { role: "rowgroup" }, lines.map((line) => make("tr", { role: "row" }, cells(line, "td", (at) => ({ role: "cell", "data-label": heads[at] })))))));
}

// Facts and versions of both sides, folded; those that differ first.
export function facts(a, b) {
  const [one, other] = [a, b].map(({ facts: held, versions }) => new Map([...held, ...Object.entries(versions)]));
  const all = [...new Set([...one.keys(), ...other.keys()])].map((name) => [name, ...[one, other].map((of) => String(of.get(name) ?? "none"))]);
  const [different, same] = [true, false].map((wanted) => all.filter(([, inA, inB]) => (inA !== inB) === wanted));
  return [folded(`Facts: ${different.length} differ, ${same.length} agree`, [
    different.length ? grid("What differs between them", ["What", "A", "B"], different) : null,
    same.length ? grid("What is the same", ["What", "Both"], same.map((line) => line.slice(0, 2))) : null])];
}

const UNJUDGED = "This page knows the verdicts of published runs alone; feedrate compare A B judges a file, and says what holds either back.";

// Claims are judged by all runs of a machine that tested them.
export function claims(a, b, { says, verdicts }) {
  const [one, other] = [a, b].map(({ about }) => (about.page ? verdicts[about.run] ?? {} : null));
  if (!one || !other) return [folded("Claims whose verdict differs", said(UNJUDGED))];
  const both = Object.keys(says).filter((id) => one[id] && other[id]);
  const lines = both.filter((id) => one[id] !== other[id]).map((id) => [make("a", { href: `claims.html#claim-${id}` }, says[id]), one[id], other[id]]);
  if (!both.length) return [said("No claim has a verdict that rests on both runs.", "fr-note")];
  const summary = `Both tested ${plural(both.length, "claim")}, ${many(both.length - lines.length)} with the same verdict`;
  if (!lines.length) return [said(`Both agree on ${plural(both.length, "claim")}.`, "fr-note")];
  return [folded(summary, grid("Claims whose verdict differs", ["Claim", "A", "B"], lines))];
}
