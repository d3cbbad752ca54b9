// What a comparison found beside its cells: the whole in a sentence, what was left out and why, what each stage does alone,
// the best settings, what differs between the two. All words of records come as text.

import { make } from "./explore_dom.js";
import { number, plural } from "./explore_words.js";
import { folded, grid } from "./compare_grid.js";
import { between, interval, stageName, summary, times } from "./compare_words.js";

const NOTE = "The interval says how much the choice of cells matters, not how well each was measured. Blocks of two runs are not "
  + "paired: versions, the day and neighbours are in a ratio and not in its interval.";
const ALONE = "What each stage can do by itself on either machine. A stage in which B gains no more than it does in training is "
  + "what holds it back.";
const PICKED = "Of each task the cheapest setting that cannot be told from the best. It is picked by its own estimate, which is "
  + "therefore a little too good.";
const UNJUDGED = "Claims are judged together with all others of a run, in Python: this page knows the verdicts of published "
  + "machines alone. For a file, type make compare A=… B=… , which judges both.";
const [OF_A, OF_B, RATIO, INTERVAL] = ["A samples/s", "B samples/s", "B ÷ A", "95 % interval"];
const heading = (text) => make("h2", {}, text);
const said = (text, style = "") => make("p", style ? { class: style } : {}, text);

export function whole(found, words) {
  const name = ({ kind, cells }) => `${stageName(words.kinds[kind] ?? kind)}, ${plural(cells, "cell")}`;
  const kinds = found.kinds.map((each) => make("li", {}, `${name(each)}: ${times(each.ratio)}${each.cells > 1 ? ` (${interval(each)})` : ""}`));
  return [said(summary(found), "fr-answer"), ...(kinds.length > 1 ? [make("ul", {}, kinds)] : []), ...(found.count ? [said(NOTE, "fr-note")] : [])];
}

export function leftOut({ unmatched }) {
  if (!unmatched.length) return [];
  const all = unmatched.reduce((sum, { count }) => sum + count, 0);
  const parts = unmatched.map(({ reason, count, cells }) => {
    const more = count - cells.length;
    const list = make("ul", {}, cells.map((cell) => make("li", {}, cell)));
    return folded(`${plural(count, "cell")}: ${reason}`, [list, ...(more ? [said(`… and ${more.toLocaleString("en")} more.`, "fr-note")] : [])]);
  });
  return [heading("What was not compared"), said(`${plural(all, "cell")} of either run cannot be held against the other:`), ...parts];
}

export function why({ stages, held }, words) {
  const columns = ["Stage alone", OF_A, OF_B, RATIO, INTERVAL, "cells"];
  const lines = stages.map(({ stage, a, b, ratio, lo, hi, cells }) =>
    [stageName(words.stages[stage] ?? stage), number(a), number(b), times(ratio), between(lo, hi), String(cells)]);
  const parts = lines.length ? [said(ALONE), grid("What each stage can do alone", columns, lines, columns.slice(1))]
    : [said("Neither run has a stage alone in common with the other.")];
  if (held.length) {
    const counted = held.map(({ a, b, count }) => [a, b, String(count)]);
    parts.push(said("What holds the training cells back:"), grid("What holds training cells back", ["On A", "On B", "cells"], counted, ["cells"]));
  }
  return [heading("Why"), ...parts];
}

export function settings({ best }, words) {
  if (!best.length) return [];
  const columns = ["Task", "Best on A", OF_A, "Best on B", OF_B, RATIO, INTERVAL];
  const lines = best.map(({ task, kind, a, b, ratio, lo, hi }) => [
    [task, words.kinds[kind]].filter(Boolean).join("; "),
    a.setting, number(a.samples_per_s), b.setting, number(b.samples_per_s), times(ratio), between(lo, hi),
  ]);
  return [heading("The best settings of each"),
    grid("The best settings of each", columns, lines, [OF_A, OF_B, RATIO, INTERVAL]), said(PICKED, "fr-note")];
}

// Facts of both sides; those that are equal are folded away.
export function facts(a, b, asked) {
  const all = asked.map(({ label }, at) => [label, a.about.facts[at] || "none", b.about.facts[at] || "none"]);
  const [different, same] = [all.filter(([, one, other]) => one !== other), all.filter(([, one, other]) => one === other)];
  const table = different.length ? grid("What differs between the two", ["What", "A", "B"], different)
    : said("Nothing that a run records of its machine and its versions.");
  const equal = grid("What is the same", ["What", "Both"], same.map(([label, one]) => [label, one]));
  return [heading("What differs between them"), table, ...(same.length ? [folded(`${plural(same.length, "fact")} that are the same`, equal)] : [])];
}

export function claims(a, b, known) {
  const title = heading("Claims whose verdict differs");
  if (!a.published || !b.published) return [title, said(UNJUDGED)];
  const [one, other] = [a, b].map(({ about }) => known.verdicts[`${about.machine}\n${about.device}`]);
  if (!one || !other) return [title, said(`No run of ${one ? "B" : other ? "A" : "either machine"} has tested a claim.`)];
  const ids = Object.keys(known.says).filter((id) => one[id] && other[id] && one[id] !== other[id]);
  const lines = ids.map((id) => [make("a", { href: `claims.html#claim-${id}` }, known.says[id]), one[id], other[id]]);
  return [title, lines.length ? grid("Claims whose verdict differs", ["Claim", "A", "B"], lines)
    : said("None: what both have tested has the same verdict.")];
}
