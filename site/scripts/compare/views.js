// What a comparison found beside its cells: the whole in a sentence, what was left out and why, what each stage does alone,
// the best settings, what differs between the two. All words of records come as text.

import { make, many, number, plural } from "../dom.js";

// Ratios, rates, intervals and sides in words.

const two = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const known = Number.isFinite;

// How many times as fast: two decimals near 1, three digits far from it.
const bare = (ratio) => (!known(ratio) ? "–" : ratio >= 0.1 && ratio < 100 ? two.format(ratio) : number(ratio));

export const times = (ratio) => (known(ratio) ? `${bare(ratio)}×` : "–");

export const between = (lo, hi) => (known(lo) && known(hi) ? `${bare(lo)}–${bare(hi)}` : "no interval");

export const size = (bytes) => (bytes < 1e6 ? `${number(bytes / 1e3)} kB` : `${number(bytes / 1e6)} MB`);

// A machine for people: its GPU if it has one, its processor, how much of that runs at once.
export function machineName({ gpu, gpus, cpu, cores }) {
  const gpuSaid = gpu ? `${Number(gpus) > 1 ? `${gpus} × ` : ""}${gpu}, ` : "";
  return `${gpuSaid}${cpu || "unknown processor"}${cores ? `, ${plural(Number(cores), "hardware thread")}` : ""}`;
}

// A rate with its interval.
const rate = ({ samples_per_s: value, lo, hi }) => (known(lo) && known(hi) ? `${number(value)} (${number(lo)}–${number(hi)})` : number(value));

// How often B is what; `tones` says how a verdict is put.
function tally({ faster, slower, same, open }, tones) {
  const parts = [[faster, "faster"], [slower, "slower"], [same, tones["no difference"].says], [open, tones.inconclusive.says]];
  return parts.filter(([count]) => count).map(([count, word]) => `${word} in ${many(count)}`).join(", ");
}

// The whole in a sentence.
function summary({ overall, count }, tones) {
  if (!count) return "No cell can be compared: below is why.";
  const range = count > 1 ? ` (${between(overall.lo, overall.hi)})` : "";
  const said = tally(overall, tones);
  return `Over ${plural(count, "cell")} that both have measured, B is ${times(overall.ratio)}${range} as fast as A: ${said}.`;
}

const stageName = (name) => name[0].toUpperCase() + name.slice(1);

// A small table that scrolls within itself, each row a block of its own on a narrow screen. Cells are text or elements.

function grid(caption, columns, lines, numeric = []) {
  const style = columns.map((name) => (numeric.includes(name) ? { class: "fr-n" } : {}));
  const head = make("tr", { role: "row" }, columns.map((name, at) => make("th", { scope: "col", role: "columnheader", ...style[at] }, name)));
  const body = lines.map((line) => make("tr", { role: "row" }, line.map((cell, at) =>
    make("td", { role: "cell", "data-label": columns[at], ...style[at] }, make("div", {}, cell)))));
  return make("div", { class: "fr-scroll", tabindex: "0", role: "group", "aria-label": caption },
    make("table", { class: "fr-table fr-stack", role: "table" }, make("caption", { class: "fr-hidden" }, caption),
      make("thead", { role: "rowgroup" }, head), make("tbody", { role: "rowgroup" }, body)));
}

// A box that unfolds.
const folded = (title, inside, open = false) =>
  make("details", { class: "fr-compare-fold", open }, make("summary", {}, title), inside);

const CHOICE = "The interval says how much the choice of cells matters, not how well each was measured. ";
const UNPAIRED = "Blocks of two runs are not paired: versions, the day and neighbours are in a ratio and not in its interval.";
const EMULATED = "An emulated step lasts as long on either machine: where it is the bottleneck the ratio is one.";
const ONE_MACHINE = "These are two runs of one machine: what differs is how well a run can be repeated.";
const ALONE = "What each stage can do by itself on either machine: geometric means over its cells.";
const BELOW = " What holds training back is told below, by its ceilings.";
const PICKED = "Of each task the cheapest setting that cannot be told from the best. It is picked by its own estimate, which is "
  + "therefore a little too good.";
const UNJUDGED = "Claims are judged together with all others of a run, in Python: this page knows the verdicts of published "
  + "machines alone. For a file, type feedrate compare A B, which judges both.";
const [OF_A, OF_B, RATIO, INTERVAL, RANGE, WORTH] = ["A samples/s", "B samples/s", "B ÷ A", "95 % interval", "from – to", "elsewhere"];
const heading = (text) => make("h2", {}, text);
const said = (text, style = "") => make("p", style ? { class: style } : {}, text);

export function whole(found, { words, tones }, oneMachine) {
  const name = ({ kind, cells }) => `${stageName(words.kinds[kind] ?? kind)}, ${plural(cells, "cell")}`;
  const over = (each) => `${times(each.ratio)}${each.cells > 1 ? ` (${between(each.lo, each.hi)})` : ""}; ${tally(each, tones)}`;
  const kinds = found.kinds.map((each) => make("li", {}, `${name(each)}: ${over(each)}`));
  const again = oneMachine && !found.changed?.length ? [said([ONE_MACHINE, found.count ? repeatability(found.repeated) : ""].join(" "))] : [];
  return [
    said(summary(found, tones), "fr-answer"), ...(found.changed ? [said(settingsChanged(found.changed))] : []), ...again,
    ...(kinds.length > 1 ? [make("ul", {}, kinds)] : []),
    ...(found.kinds.some(({ kind }) => kind === "emulated") ? [said(EMULATED, "fr-note")] : []),
    ...(found.count ? [said((found.count > 1 ? CHOICE : "") + UNPAIRED, "fr-note")] : []),
  ];
}

const settingsChanged = (changed) => (changed.length
  ? `A → B: ${changed.map(([name, a, b]) => `${name} ${a} → ${b}`).join(", ")}.`
  : "The script’s loader has the same settings in both.");

const repeatability = ({ half_within_pct, hold, cells }) => `Half of the cells agree within ${half_within_pct.toFixed(1)} %; ${hold} of ${
  cells} intervals hold one (95 % of them would, were nothing different between the runs).`;

export function leftOut({ left: { count: all, reasons, more: others } }) {
  if (!all) return [];
  const parts = reasons.map(({ reason, count, cells }) => {
    const more = count - cells.length;
    const list = make("ul", {}, cells.map((cell) => make("li", {}, cell)));
    return folded(`${plural(count, "cell")}: ${reason}`, [list, ...(more ? [said(`… and ${many(more)} more.`, "fr-note")] : [])]);
  });
  return [heading("What was not compared"), said(`${plural(all, "cell")} of either run cannot be held against the other:`), ...parts,
    ...(others ? [said(`… and ${plural(others, "more reason")}.`, "fr-note")] : [])];
}

export function why({ stages, held }, words) {
  const columns = ["Stage alone", OF_A, OF_B, RATIO, INTERVAL, RANGE, "n"];
  const basis = (/** @type {any} */ { cells, n_a, n_b }) => (cells > 1 ? plural(cells, "cell") : `${n_a} and ${n_b} blocks of one cell`);
  const lines = stages.map(({ stage, a, b, ratio, lo, hi, least, most, ...n }) =>
    [stageName(words.stages[stage] ?? stage), number(a), number(b), times(ratio), between(lo, hi), between(least, most), basis(n)]);
  const parts = lines.length ? [said(ALONE + (held.length ? BELOW : "")), grid("What each stage can do alone", columns, lines, columns.slice(1))]
    : [said("Neither run has a stage alone in common with the other.")];
  if (held.length) {
    const counted = held.map(({ a, b, count }) => [a, b, String(count)]);
    parts.push(said("What holds the training cells back:"), grid("What holds training cells back", ["On A", "On B", "cells"], counted, ["cells"]));
  }
  return [heading("Why"), ...parts];
}

export function settings({ best, more }, words) {
  if (!best.length) return [];
  const columns = ["Task", "Best on A", OF_A, "Best on B", OF_B, RATIO, INTERVAL, "n, blocks", WORTH];
  const lines = best.map(({ task, kind, a, b, ratio, lo, hi, ...elsewhere }) => [
    [task, words.kinds[kind]].filter(Boolean).join("; "),
    ...[a, b].flatMap((side) => [`${side.setting} (of ${plural(side.of, "setting")})`, rate(side)]),
    times(ratio), between(lo, hi), `${a.n} and ${b.n}`, worth(/** @type {any} */ (elsewhere)),
  ]);
  return [heading("The best settings of each"), grid("The best settings of each", columns, lines, [OF_A, OF_B, RATIO, INTERVAL]),
    ...(more ? [said(`… and ${plural(more, "more task")}.`, "fr-note")] : []), said(PICKED, "fr-note")];
}

// What either's setting reaches of the other's best there.
function worth({ same, a_on_b: aOnB, b_on_a: bOnA }) {
  if (same) return "the same setting";
  const told = [[aOnB, "A’s on B"], [bOnA, "B’s on A"]].filter(([share]) => Number.isFinite(share));
  return told.map(([share, name]) => `${name}: ${Math.round(100 * share)} %`).join("; ") || "not measured";
}

// Facts of both sides, and whatever else either recorded of what ran; those that are equal are folded away.
export function facts(a, b, asked) {
  const ran = [a, b].map(({ about }) => new Map(about.runtime));
  const names = [...new Set(ran.flatMap((each) => [...each.keys()]))];
  const all = [...asked.map(({ label }, at) => [label, ...[a, b].map(({ about }) => about.facts[at])]),
    ...names.map((name) => [name, ...ran.map((each) => each.get(name))])]
    .map(([name, ...both]) => [name, ...both.map((value) => value || "none")]);
  const [different, same] = [all.filter(([, one, other]) => one !== other), all.filter(([, one, other]) => one === other)];
  const table = different.length ? grid("What differs between the two", ["What", "A", "B"], different)
    : said("Nothing that a run records of its machine and its versions.");
  const equal = grid("What is the same", ["What", "Both"], same.map(([label, one]) => [label, one]));
  return [heading("What differs between them"), table, ...(same.length ? [folded(`${plural(same.length, "fact")} that are the same`, equal)] : [])];
}

export function claims(a, b, known) {
  const title = heading("Claims whose verdict differs");
  if (!a.published || !b.published) return [title, said(UNJUDGED)];
  const [one, other] = [a, b].map(({ published }) => known.verdicts[published.run]);
  if (!one || !other) return [title, said(untold(one ? ["B"] : other ? ["A"] : ["A", "B"]))];
  const both = Object.keys(known.says).filter((id) => one[id] && other[id]);
  if (!both.length) return [title, said("There is no claim that both have tested.")];
  const ids = both.filter((id) => one[id] !== other[id]);
  const lines = ids.map((id) => [make("a", { href: `claims.html#claim-${id}` }, known.says[id]), one[id], other[id]]);
  return [title, said(`Of ${plural(both.length, "claim")} that this site judges by these runs and the others of their machines, ${both.length - ids.length} have the same verdict.`),
    ...(lines.length ? [grid("Claims whose verdict differs", ["Claim", "A", "B"], lines)] : [])];
}

const untold = (sides) => `A claim is judged here by all runs of a machine that tested it under its newest protocol, of which ${sides.join(" and ")} ${
  sides.length > 1 ? "are" : "is"} none: no verdict is held against another run’s. Type feedrate compare A B, which judges both.`;
