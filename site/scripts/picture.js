// Pictures, and what stands around them. A picture is drawn once for its shape and given new rows as often as they change.
// Its specification holds no data, and nothing that comes from a record: colour and shape are values of the rows.

import { make } from "./dom.js";

const WAIT_MS = 120;

export class Picture {
  // `pointed` is told the id of the mark under the pointer, or -1; `pressed` that of one that was clicked.
  constructor(place, { pointed, pressed }) {
    this.place = place;
    this.pointed = pointed;
    this.pressed = pressed;
    this.shape = "";
    this.result = null;
    this.turn = 0;
    this.hot = -1;
    this.over = -1;
  }

  // Draw rows in the shape of a specification; resolves when they are to be seen.
  async draw(spec, rows) {
    const turn = this.turn += 1;
    const shape = JSON.stringify(spec);
    if (shape === this.shape) {
      this.result.view.signal("hot", this.hot);
      await this.result.view.data("marks", rows).runAsync();
      return;
    }
    const live = make("div", { class: "fr-explore-next", "aria-hidden": "true" });
    this.place.append(live);
    const result = await window.feedrate.embed(live, { ...spec, data: { name: "marks", values: rows }, params: [{ name: "hot", value: -1 }] });
    if (turn !== this.turn) {
      result.finalize();
      live.remove();
      return;
    }
    this.result?.finalize();
    for (const before of [...this.place.children]) if (before !== live) before.remove();
    live.className = "fr-explore-live";
    this.shape = shape;
    this.result = result;
    this.listen(result.view);
  }

  listen(view) {
    const id = (item) => (item?.datum && item.mark?.marktype !== "line" ? item.datum.id ?? -1 : -1);
    view.addEventListener("mouseover", (_, item) => {
      this.over = id(item);
      if (this.over >= 0) this.pointed(this.over);
    });
    // A pointer that leaves a mark takes back what it said, and not what the keyboard says meanwhile.
    view.addEventListener("mouseout", () => {
      if (this.over >= 0 && this.over === this.hot) this.pointed(-1);
      this.over = -1;
    });
    view.addEventListener("click", (_, item) => { if (id(item) >= 0) this.pressed(id(item)); });
  }

  // Show which mark is looked at.
  show(id) {
    if (id === this.hot) return;
    this.hot = id;
    if (this.result) this.result.view.signal("hot", id).runAsync();
  }

  clear() {
    this.turn += 1;
    this.result?.finalize();
    this.place.replaceChildren();
    this.shape = "";
    this.result = null;
  }
}

// Tell when the width of a place has changed and come to rest.
export function resized(place, then) {
  let before = place.clientWidth;
  let timer = 0;
  new ResizeObserver(() => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (Math.abs(place.clientWidth - before) < 2) return;
      before = place.clientWidth;
      then();
    }, WAIT_MS);
  }).observe(place);
}

const GLYPHS = {
  circle: "●", square: "■", "triangle-up": "▲", diamond: "◆", cross: "✚", "triangle-down": "▼", "triangle-right": "▶",
};

// A picture with its title, what its marks have in common, a legend, and its message in words.
export class View {
  // `walked` gets a key press on the picture; `pointed` and `pressed` as for a Picture.
  constructor(id, style, { walked, pointed, pressed }) {
    const [place, title] = [make("div", { class: "fr-explore-place" }), make("h2", { id })];
    this.title = title;
    this.wide = 0;
    this.about = make("p", { class: "fr-explore-about" });
    this.legend = make("ul", { class: "fr-legend" });
    this.chart = make("div", { class: "fr-explore-chart", role: "img", tabindex: "0", keydown: walked, blur: () => pointed(-1) }, place);
    this.said = make("p", { class: "fr-message" });
    this.box = make("section", { class: style, "aria-labelledby": id }, title, this.about, this.legend, this.chart, this.said);
    this.picture = new Picture(place, { pointed, pressed });
  }

  // `entries` of the legend: label, colour, shape, and whether it stands for a sleep.
  tell({ title, about, said, label, entries }) {
    this.title.textContent = title;
    this.about.textContent = about;
    this.said.textContent = said;
    this.chart.setAttribute("aria-label", `${label} Arrow keys go from mark to mark.`);
    this.legend.hidden = !entries.length;
    this.legend.replaceChildren(...entries.map(({ label: name, colour, shape = "square", sleeps = false }) => {
      const sign = make("span", { "aria-hidden": "true", class: sleeps ? "fr-explore-sleep" : "" }, GLYPHS[shape]);
      sign.style.color = colour;
      return make("li", {}, sign, name);
    }));
  }
}

// Tell to which of some marks a key leads from the one that is looked at; -1 for none.
export function walk(event, marks, hot, point) {
  const [at, last] = [marks.indexOf(hot), marks.length - 1];
  const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last }[event.key];
  if (event.key === "Escape") point(-1);
  if (to === undefined || last < 0) return;
  event.preventDefault();
  point(marks[Math.max(0, Math.min(last, to))]);
}

// Parts of specifications. What the pointer reads stands in each row as names and texts.

export const [INK, PAPER] = ["var(--fr-ink)", "var(--fr-paper)"];
const HOT = "datum.id === hot";
export const colour = { field: "colour", type: "nominal", scale: null, legend: null };
export const tooltip = { field: "tip", type: "nominal" };

export const rule = (encoding) => ({ mark: { type: "rule", strokeWidth: 1.5 }, encoding: { ...encoding, color: colour } });

export const point = (encoding, size = 230) => ({
  mark: { type: "point", filled: true, opacity: 1, strokeWidth: 1 },
  encoding: {
    ...encoding, fill: colour, shape: { field: "shape", type: "nominal", scale: null, legend: null },
    size: { condition: { test: HOT, value: size }, value: 75 }, stroke: { condition: { test: HOT, value: INK }, value: PAPER }, tooltip,
  },
});

export const labelled = (limit) => ({ field: "label", type: "ordinal", sort: { field: "at", op: "min" }, title: null,
  axis: { labelLimit: limit, domain: false, ticks: false } });
