// The address of the page says which two runs it compares: published ones by their id, files by their hash alone. A file
// that has none is not named at all.

import { make } from "./explore_dom.js";
import { format, parse } from "./explore_state.js";

export const SIDES = ["a", "b"];
const HASHED = "sha256:";
export const hashOf = (key) => (key.startsWith(HASHED) ? key.slice(HASHED.length) : "");
export const named = (key) => key !== "" && !key.startsWith("file:");

// What the address asks for; null where it is a place on the page.
export function asked() {
  const found = parse(location.hash);
  if (!found && location.hash.length > 1) return null;
  return Object.fromEntries(SIDES.map((side) => [side, found?.get(side)?.[0] ?? ""]));
}

export function write(state) {
  const pairs = SIDES.filter((side) => named(state[side])).map((side) => [side, [state[side]]]);
  const address = pairs.length ? format(pairs) : location.pathname;
  if (location.hash !== address) history.replaceState(null, "", address);
}

function copied(keys) {
  if (!keys.every(named)) return "Copied, without your file: only a page that came over https can name it, by its hash.";
  return keys.some(hashOf) ? "Copied. It names files by their hash: whoever opens it is asked for them." : "Copied.";
}

// A button that copies the address; `state` gives the two keys.
export function link(state) {
  const said = make("span", { role: "status" });
  const copy = make("button", { type: "button", click: async () => {
    await navigator.clipboard.writeText(location.href);
    said.textContent = copied(Object.values(state()));
  } }, "Copy a link to this");
  copy.hidden = !navigator.clipboard;
  return make("p", { class: "fr-explore-take" }, copy, said);
}
