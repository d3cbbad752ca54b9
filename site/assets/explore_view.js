// One picture with its title, what its marks have in common, its legend and its message.

import { Picture } from "./explore_charts.js";
import { NONE, held } from "./explore_data.js";
import { make } from "./explore_dom.js";
import { besides, marks, segments, telling } from "./explore_marks.js";
import { beside, main, phases } from "./explore_specs.js";
import { PAGE } from "./explore_table.js";
import { message, withUnit } from "./explore_words.js";

const GLYPHS = {
  circle: "●", square: "■", "triangle-up": "▲", diamond: "◆", cross: "✚", "triangle-down": "▼", "triangle-right": "▶",
};
const OTHER = { colour: "var(--fr-muted)", shape: "circle" };
// What is said of all marks even where no cell of the runs differs in it.
const ALWAYS = ["workload", "patch_size", "model", "step_ms"];
const WIDE = 900;
const NARROW = 560;
// Width of a letter of a tick's label, in pixels.
const LETTER = 7;
const WALK = "Arrow keys go from mark to mark.";

export class View {
  // `walked` gets a key press on the picture; `pointed` and `pressed` as for a Picture.
  constructor(name, { walked, pointed, pressed }) {
    const id = `fr-explore-${name}`;
    const [place, title] = [make("div", { class: "fr-explore-place" }), make("h2", { id })];
    Object.assign(this, { title, about: make("p", { class: "fr-explore-about" }), legend: make("ul", { class: "fr-legend" }) });
    this.chart = make("div", { class: "fr-explore-chart", role: "img", tabindex: "0", keydown: walked, blur: () => pointed(-1) }, place);
    this.said = make("p", { class: "fr-message" });
    this.box = make("section", { class: `fr-explore-view fr-explore-${name}`, "aria-labelledby": id },
      title, this.about, this.legend, this.chart, this.said);
    this.picture = new Picture(place, { pointed, pressed });
  }

  tell(title, about, entries, said, more = "") {
    this.title.textContent = title;
    this.about.textContent = about;
    this.said.textContent = `${said} ${more}`.trim();
    this.chart.setAttribute("aria-label", `${title}, ${about}. ${said} ${WALK}`);
    this.legend.hidden = !entries || entries.length < 2;
    this.legend.replaceChildren(...(entries ?? []).map(({ label, colour, shape = "square", sleeps = false }) => {
      const sign = make("span", { "aria-hidden": "true", class: sleeps ? "fr-explore-sleep" : "" }, GLYPHS[shape]);
      sign.style.color = colour;
      return make("li", {}, sign, label);
    }));
  }

  // Asked for once: asking makes the browser lay the page out.
  get width() {
    return (this.wide ||= this.box.clientWidth);
  }

  // The chosen measure of all cells against the chosen axis. A scene holds what is chosen and what it leaves.
  drawMain(scene, measure) {
    const { state, cells, drawn, names, tones } = scene;
    const some = telling(cells, drawn, names);
    const facets = state.facet ? held(cells, drawn, state.facet).length : 1;
    const columns = Math.min(facets, this.width >= WIDE ? 3 : this.width >= NARROW ? 2 : 1);
    const width = facets > 1 ? Math.floor((this.width - 64 - 22 * (columns - 1)) / columns) : this.width;
    const numeric = typeof cells.dims.get(state.x)?.values[0] === "number";
    const lines = numeric && held(cells, drawn, state.x).length > 1;
    const entries = tones && held(cells, drawn, state.colour).map(([name]) => ({
      label: `${state.colour} ${name}`, ...(tones.get(name) ?? OTHER),
    }));
    const said = message(cells, drawn, measure, cells.measures.get(measure.name), some);
    this.tell(`${measure.label} by ${state.x}`, common(scene), entries, said,
      lines ? `Lines join cells that differ in ${state.x} alone.` : "");
    const ticks = held(cells, drawn, state.x).map(([text]) => text);
    const tilted = ticks.length * LETTER * Math.max(...ticks.map((text) => text.length)) > width;
    const log = state.log && measure.logs;
    const spec = main({ width, columns, x: state.x, y: withUnit(measure), log, faceted: facets > 1, lines, tilted });
    return this.picture.draw(spec, marks(cells, drawn, state, measure, tones, some.length ? some : names));
  }

  // The phases, or another measure, of the rows of the table that are shown.
  drawBeside(scene) {
    const { state, cells, page, names, tones, order, from, library } = scene;
    const some = telling(cells, page, names);
    const shape = { width: this.width, limit: Math.max(90, Math.round(this.width * 0.42)), count: page.length };
    const rows = order.length > PAGE ? `, rows ${from + 1} to ${from + page.length} of the table` : "";
    const about = `The cells${some.length ? ` by ${some.join(" · ")}` : ""}${rows}`;
    if (state.beside === "phases") {
      const { rows: drawn, unit, used } = segments(cells, page, state, library.index, some);
      const said = "Bars are means over blocks; the thin line is the 95 % interval of the whole.";
      this.tell("Where a sample’s time goes", about, used, drawn.length ? said : "Phases were not observed here.");
      return this.drawRows(drawn, phases({ ...shape, x: `time per sample (${unit})`, edge: library.index.edge }));
    }
    const measure = library.measure(state.beside, state.ran);
    const drawn = besides(cells, page, state, measure, tones, some);
    this.tell(measure.label, about, null, drawn.length
      ? message(cells, drawn.map(({ id }) => id), measure, cells.measures.get(measure.name), some)
      : `None of these cells has ${measure.label}.`);
    return this.drawRows(drawn, beside({ ...shape, x: withUnit(measure) }));
  }

  drawRows(drawn, spec) {
    this.chart.hidden = !drawn.length;
    return drawn.length ? this.picture.draw(spec, drawn) : this.picture.clear();
  }
}

// What all marks have in common, so that nobody takes a sleep for a model or a cold cache for a warm one.
function common({ state, cells, drawn, names, library }) {
  const still = [...ALWAYS, ...names.filter((name) => !ALWAYS.includes(name))].map((name) => [name, held(cells, drawn, name)]);
  const one = still.filter(([, there]) => there.length === 1 && there[0][0] !== NONE);
  const said = one.map(([name, [[text]]]) => (name === "workload" ? text : `${name} ${text}`));
  return [library.ran.get(state.ran), ...said].join(", ");
}
