// Ratios, rates, intervals and sides in words.

import { number, plural } from "./explore_words.js";

const two = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const known = Number.isFinite;

// How many times as fast: two decimals near 1, three digits far from it.
export const times = (ratio) => (!known(ratio) ? "–" : `× ${ratio >= 0.1 && ratio < 100 ? two.format(ratio) : number(ratio)}`);

export const between = (lo, hi) => (known(lo) && known(hi) ? `${bare(lo)} – ${bare(hi)}` : "one block: none");

const bare = (ratio) => times(ratio).replace("× ", "");

export const interval = ({ lo, hi }) => (known(lo) && known(hi) ? `95 % interval ${bare(lo)} to ${bare(hi)}` : "no interval");

export const size = (bytes) => (bytes < 1e6 ? `${number(bytes / 1e3)} kB` : `${number(bytes / 1e6)} MB`);

// A machine for people: its GPU if it has one, its processor, how much of that runs at once.
export function machineName({ gpu, gpus, cpu, cores }) {
  const gpuSaid = gpu ? `${Number(gpus) > 1 ? `${gpus} × ` : ""}${gpu}, ` : "";
  return `${gpuSaid}${cpu || "unknown processor"}${cores ? `, ${plural(Number(cores), "hardware thread")}` : ""}`;
}

// A rate with its interval.
export const rate = ({ samples_per_s: value, lo, hi }) => (known(lo) && known(hi) ? `${number(value)} (${number(lo)} – ${number(hi)})` : number(value));

// How many blocks of either side stand behind a ratio.
export const blocks = (a, b) => `n = ${a} and ${b}`;

// How often B is what; `tones` says how a verdict is put.
export function tally({ faster, slower, same, open }, tones) {
  const parts = [[faster, "faster"], [slower, "slower"], [same, tones["no difference"].says], [open, tones.inconclusive.says]];
  return parts.filter(([many]) => many).map(([many, word]) => `${word} in ${many.toLocaleString("en")}`).join(", ");
}

// The whole in a sentence.
export function summary({ overall, count }, tones) {
  if (!count) return "No cell can be compared: below is why.";
  const range = count > 1 ? ` (${interval(overall)} over cells)` : "";
  const said = tally(overall, tones);
  return `Over ${plural(count, "cell")} that both have measured, B is ${times(overall.ratio).replace("× ", "")} times as fast as A${range}: ${said}.`;
}

export const stageName = (name) => name[0].toUpperCase() + name.slice(1);
