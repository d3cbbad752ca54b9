// Pictures of rows that change: Observable Plot in the site's type and colours, with the numbers of the mark under the pointer.

import { plot, pointer, tip } from "@observablehq/plot";
import { make } from "./dom.js";

const SYMBOLS = { "triangle-up": "triangle", "triangle-down": "wye", "triangle-right": "star" };
const GLYPHS = {
  circle: "●", square: "■", "triangle-up": "▲", diamond: "◆", cross: "✚", "triangle-down": "Y", "triangle-right": "★",
};
const WAIT_MS = 120;

export const symbol = (row) => SYMBOLS[row.shape] ?? row.shape;

// Plot names its own style sheet after the class, and the site's policy allows it by its hash: site/publish.py.
export const draw = (options) => plot({ className: "fr-plot", style: { font: "12px Helvetica, Arial, sans-serif", overflow: "visible" }, ...options });

export const hover = (rows, channels) => tip(rows, pointer({ ...channels, title: "tip", lineWidth: 22, fontSize: 12, preferredAnchor: "bottom" }));

// A picture with its title, what its marks have in common, a legend, and its message in words.
export class View {
  constructor(id) {
    this.title = make("h2", { id });
    this.about = make("p", { class: "fr-explore-about" });
    this.legend = make("ul", { class: "fr-legend" });
    this.chart = make("div", { class: "fr-explore-chart", role: "img" });
    this.said = make("p", { class: "fr-message" });
    this.box = make("section", { class: "fr-explore-view", "aria-labelledby": id }, this.title, this.about, this.legend, this.chart, this.said);
    this.redraw = null;
    let [before, timer] = [0, 0];
    new ResizeObserver(() => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        if (Math.abs(this.box.clientWidth - before) > 1) this.redraw?.();
        before = this.box.clientWidth;
      }, WAIT_MS);
    }).observe(this.box);
  }

  // `entries` of the legend: label, colour, shape; `picture` gives an SVG for a width.
  show({ title, about, said, entries, picture }) {
    this.title.textContent = title;
    this.about.textContent = about;
    this.said.textContent = said;
    this.chart.setAttribute("aria-label", `${title}, ${about}. ${said} The table below has every number.`);
    this.legend.hidden = entries.length < 2;
    this.legend.replaceChildren(...entries.map(({ label, colour, shape }) => {
      const sign = make("span", { "aria-hidden": "true" }, GLYPHS[shape]);
      sign.style.color = colour;
      return make("li", {}, sign, label);
    }));
    this.redraw = () => {
      const drawn = picture(this.box.clientWidth);
      drawn.setAttribute("aria-hidden", "true");
      this.chart.replaceChildren(drawn);
    };
    this.redraw();
  }
}
