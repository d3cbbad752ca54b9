// A small table that scrolls within itself, each row a block of its own on a narrow screen. Cells are text or elements.

import { make } from "./explore_dom.js";

export function grid(caption, columns, lines, numeric = []) {
  const style = columns.map((name) => (numeric.includes(name) ? { class: "fr-n" } : {}));
  const head = make("tr", { role: "row" }, columns.map((name, at) => make("th", { scope: "col", role: "columnheader", ...style[at] }, name)));
  const body = lines.map((line) => make("tr", { role: "row" }, line.map((cell, at) =>
    make("td", { role: "cell", "data-label": columns[at], ...style[at] }, make("div", {}, cell)))));
  return make("div", { class: "fr-scroll", tabindex: "0", role: "group", "aria-label": caption },
    make("table", { class: "fr-table fr-stack", role: "table" }, make("caption", { class: "fr-hidden" }, caption),
      make("thead", { role: "rowgroup" }, head), make("tbody", { role: "rowgroup" }, body)));
}

// A box that unfolds.
export const folded = (title, inside, open = false) =>
  make("details", { class: "fr-compare-fold", open }, make("summary", {}, title), inside);
