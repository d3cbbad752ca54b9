// The control bar. Every control is native and labelled; one that could change nothing is not shown.

import { NONE, counts } from "../cells.js";
import { make, many, picked, plural } from "../dom.js";
import { MOST_PANELS } from "./choices.js";

const toggled = (list, value, on) => (on ? [...list, value] : list.filter((each) => each !== value));
const tick = (given, ...inside) => make("label", { class: "fr-explore-tick" }, make("input", { type: "checkbox", ...given }), make("span", {}, inside));

export class Controls {
  // `changed` gets a function that changes the state, and whether that reaches further than the view.
  constructor(index, changed) {
    this.index = index;
    this.changed = changed;
    this.open = new Set();
    this.form = make("form", { class: "fr-explore-bar", "aria-label": "What is drawn", submit: (event) => event.preventDefault() });
  }

  // Draw the bar anew for a state; the control that has the focus keeps it.
  show(state, { rows, names, measures, ran, steep }) {
    const { index } = this;
    const { name, value, type } = /** @type {any} */ (document.activeElement ?? {});
    const label = (each) => [each, index.measures.find((measure) => measure.name === each).label];
    const same = (list) => list.map((each) => [each, each]);
    const few = names.filter((each) => counts(rows, each).length <= MOST_PANELS && ![state.x, state.colour].includes(each));
    this.form.replaceChildren(
      make("div", { class: "fr-explore-picks" }, this.pick("What ran", "ran", index.ran.filter((each) => ran.includes(each.name)).map((each) => [each.name, each.label]), state, true),
        this.pick("Measure", "metric", measures.map(label), state), this.pick("Along x", "x", same(names), state),
        this.pick("Colour", "colour", [["", "one colour"], ...same(names.filter((each) => each !== state.x))], state),
        this.pick("A panel for each", "facet", [["", "one panel"], ...same(few)], state),
        steep ? tick({ name: "log", checked: state.log, change: ({ target }) => this.changed((next) => { next.log = target.checked; }) }, "log scale") : []),
      this.runs(state), this.filters(state, rows, names));
    const again = [...this.form.elements].find((/** @type {any} */ each) => name && each.name === name && (type !== "checkbox" || each.value === value));
    /** @type {any} */ (again)?.focus();
  }

  pick(title, name, options, state, far = false) {
    const select = make("select", { name, change: ({ target }) => this.changed((next) => { next[name] = target.value; }, far) },
      options.map(([value, words]) => make("option", { value, selected: value === state[name] }, words)));
    const box = picked(title, select);
    box.hidden = options.length < 2;
    return box;
  }

  fold(name, said, ...inside) {
    return make("details", { class: `fr-explore-fold fr-explore-${name}`, open: this.open.has(name),
      toggle: ({ target }) => (target.open ? this.open.add(name) : this.open.delete(name)) }, make("summary", {}, said), inside);
  }

  runs(state) {
    const words = ({ label, suites, day, name }) => `${label || suites.join(", ")}, ${day}, ${name}`;
    const chosen = this.index.runs.filter(({ run }) => state.runs.includes(run));
    const box = this.fold("runs", `Runs: ${chosen.map(words).join("; ") || "none"}`, make("div", { class: "fr-explore-list" }, this.index.runs.map((about) =>
      tick({ name: "run", value: about.run, checked: state.runs.includes(about.run),
        change: ({ target }) => this.changed((next) => { next.runs = toggled(next.runs, about.run, target.checked); }, true) },
      `${words(about)} `, make("small", {}, `${plural(about.count, "setting")}, `, make("a", { href: about.page }, about.run))))));
    box.hidden = this.index.runs.length < 2;
    return box;
  }

  filters(state, rows, names) {
    const words = [...state.filters].map(([name, values]) => `${name} ${[...values].filter((each) => each !== NONE).join(" or ") || "nothing"}`);
    const fields = names.map((name) => {
      const values = counts(rows, name);
      const set = (kept) => this.changed((next) => (kept.length === values.length ? next.filters.delete(name) : next.filters.set(name, new Set(kept))));
      const kept = values.map(([said]) => said).filter((said) => state.filters.get(name)?.has(said) ?? true);
      return make("fieldset", {}, make("legend", {}, name), values.map(([said, count]) =>
        tick({ name, value: said, checked: kept.includes(said), change: ({ target }) => set(toggled(kept, said, target.checked)) }, `${said} `, make("small", {}, many(count)))),
      make("button", { type: "button", name: `all ${name}`, disabled: kept.length === values.length, "aria-label": `all values of ${name}`, click: () => set(values.map(([said]) => said)) }, "all"));
    });
    const box = this.fold("filters", `Filters: ${words.join("; ") || "none"}`, make("div", { class: "fr-filter fr-explore-values" }, fields));
    box.hidden = !names.length;
    return box;
  }
}
