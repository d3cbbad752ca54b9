// The page Explore. A change goes one way: the state, the cells that it leaves, the pictures and the table, the address.

import { make, save } from "../dom.js";
import { complete, format } from "./address.js";
import { MOST_MARKS, columns, readout, records, resized, series, sorted, telling } from "./charts.js";
import { Controls, base, offered, ranIn, resolve, settleAxes, settleFilters, settleMeasures, settleRuns } from "./choices.js";
import { Library, caution, csv, held, nothing, passing, plural } from "./data.js";
import { PAGE, Table, View } from "./table.js";

class Explorer {
  constructor(library, root) {
    this.library = library;
    this.from = 0;
    this.hot = -1;
    this.told = [];
    this.failed = "";
    const seen = { pointed: (id) => this.point(id), pressed: (id) => this.reveal(id), walked: (event) => this.walk(event) };
    this.controls = new Controls(library, (kind, touch) => this.change(kind, touch));
    this.left = new View("main", seen);
    this.right = new View("beside", seen);
    this.table = new Table({ ...seen, sorted: (name) => this.sort(name), turned: (from) => { this.from = from; this.draw(); } });
    this.problems = make("div", { class: "fr-explore-problems", role: "status" });
    this.readout = make("p", { class: "fr-explore-readout", "aria-live": "polite" });
    this.views = make("div", { class: "fr-explore-views" }, this.left.box, this.right.box);
    this.left.box.append(this.readout, this.actions());
    this.app = make("div", { class: "fr-explore-app fr-explore-waiting" }, this.controls.form, this.problems, this.views, this.table.pages, this.table.scroll);
    root.append(this.app);
    resized(this.views, () => {
      this.left.wide = this.right.wide = 0;
      if (this.state) this.after(() => this.draw());
    });
  }

  actions() {
    const press = (text, click) => make("button", { type: "button", click }, text);
    const said = make("span", { role: "status" });
    const copy = press("Copy a link to this", async () => {
      try {
        await navigator.clipboard.writeText(location.href);
        said.textContent = "Copied. The link keeps its meaning when there are more results.";
      } catch {
        said.textContent = "The browser forbids copying: the address bar has the link.";
      }
    });
    copy.hidden = !navigator.clipboard;
    return make("p", { class: "fr-explore-take" }, copy, press("Download CSV", () => this.download("csv")),
      press("Download JSON", () => this.download("json")), make("a", { href: location.pathname }, "Start anew"), said);
  }

  async open() {
    Object.assign(this, await resolve(this.library, location.hash));
    this.from = 0;
    this.failed = "";
    await this.draw();
  }

  // The address has changed by hand or by a link. A place on the page leaves what was chosen, and drawing says it again.
  moved() {
    const chosen = !location.hash || location.hash.includes("=");
    return this.after(() => (chosen ? this.open() : this.draw()));
  }

  // One act after the other, each from what the one before left; one that fails leaves that as it was, and is said.
  after(act) {
    this.turn = (this.turn ?? Promise.resolve()).then(act).catch(async (error) => {
      console.error("feedrate:", error);
      this.failed = `That cannot be shown: ${error.message}`;
      await this.draw().catch((again) => console.error("feedrate:", again));
    });
    return this.turn;
  }

  change(kind, touch) {
    return this.after(() => this.apply(kind, touch));
  }

  // `kind` says how far a change reaches: another view of the same cells, other cells, or cells to be read first.
  async apply(kind, touch) {
    performance.mark("fr-explore-change");
    const state = { ...this.state, filters: new Map(this.state.filters) };
    const seen = new Set(this.names);
    let { cells } = this;
    touch(state);
    if (kind === "machines") {
      cells = await this.library.cells(state.machines);
      settleRuns(cells, state);
    }
    const { rows } = this.scope(cells, state);
    if (kind !== "view" && rows.length) {
      settleAxes(this.library, cells, rows, state);
      settleFilters(this.library, cells, rows, state, seen);
    }
    if (state.colour === state.x) state.colour = "";
    if ([state.x, state.colour].includes(state.facet)) state.facet = "";
    this.state = state;
    this.cells = cells;
    this.from = 0;
    this.told = [];
    this.failed = "";
    await this.draw();
    performance.measure("fr-explore", "fr-explore-change");
  }

  // What the choice of runs and of what ran leaves; filters do not change it.
  scope(cells, state) {
    const key = JSON.stringify([state.runs, state.ran]);
    if (this.scoped?.cells !== cells || this.scoped.key !== key) {
      const rows = base(cells, state);
      this.scoped = { cells, key, rows, names: offered(cells, rows), ran: ranIn(cells, state.runs, this.library.index) };
    }
    return this.scoped;
  }

  async draw() {
    const { state, cells, library } = this;
    const { rows, names } = this.scope(cells, state);
    const known = settleMeasures(library, cells, rows, state);
    const measure = library.measure(state.metric, state.ran);
    const column = cells.measures.get(state.metric);
    const passed = passing(cells, state.filters, rows);
    const have = column ? passed.filter((row) => !Number.isNaN(column.mean[row])) : passed.slice(0, 0);
    const order = sorted(cells, have, state);
    if (this.from >= order.length) this.from = 0;
    this.order = order;
    this.drawn = order.slice(0, MOST_MARKS);
    this.page = order.slice(this.from, this.from + PAGE);
    this.names = names;
    this.measures = this.shown(measure);
    this.tones = state.colour ? series(cells, rows, state.colour, library.index) : null;
    this.write(rows);
    this.controls.show(state, this.scoped, known);
    this.say(rows, passed, have);
    this.views.hidden = this.table.scroll.hidden = this.table.pages.hidden = !order.length;
    if (!order.length) return;
    const different = telling(cells, order, this.names);
    this.table.draw({ columns: columns(cells, this.measures, different), rows: order, from: this.from, sort: state.sort,
      caption: `${measure.label}: the cells that were chosen` });
    await Promise.all([this.left.drawMain(this, measure), this.right.drawBeside(this)]);
  }

  // The measures that the pictures show, the main one first.
  shown(measure) {
    const { library, state, cells, order } = this;
    const other = state.beside === "phases"
      ? [...new Set(library.index.phases.map((phase) => phase.measure))] : [state.beside];
    const known = (name) => order.some((row) => !Number.isNaN(cells.measures.get(name)?.mean[row] ?? NaN));
    const there = other.filter((name) => name !== measure.name && known(name));
    return [measure, ...there.map((name) => library.measure(name, state.ran))];
  }

  // What a reader must know beside the pictures: what a link names in vain, what leaves nothing, what is not drawn.
  say(rows, passed, have) {
    const { state, cells, told, failed, library } = this;
    const lines = told.length ? [failed, `This link names what is not here: ${told.join(", ")}.`] : [failed];
    const missing = passed.length - have.length;
    if (!state.machines.length) lines.push("No machine is chosen.");
    else if (!state.runs.length) lines.push("No run is chosen.");
    else if (!rows.length) lines.push(`No cell of ${plural(state.runs.length, "chosen run")} is of this kind: ${library.ran.get(state.ran)}.`);
    else if (!passed.length) lines.push(nothing(state.filters, (filters) => passing(cells, filters, rows).length));
    else if (missing) lines.push(`${plural(missing, "cell")} without this measure ${missing === 1 ? "is" : "are"} left out.`);
    if (have.length > MOST_MARKS) {
      lines.push(`The first ${plural(MOST_MARKS, "mark")} of ${have.length.toLocaleString("en")} are drawn, in the order of the table, which `
        + "pages through all: filter to see the others.");
    }
    const there = held(cells, rows, "run").map(([id]) => id);
    const idle = rows.length ? state.runs.filter((id) => !there.includes(id)) : [];
    if (idle.length) lines.push(`Of this kind (${library.ran.get(state.ran)}) there is nothing in ${idle.length === 1 ? "run" : "runs"} ${idle.join(", ")}.`);
    lines.push(caution(cells, have));
    this.problems.replaceChildren(...lines.filter(Boolean).map((line) => make("p", {}, line)));
    this.problems.hidden = !this.problems.childElementCount;
  }

  // The whole choice into the address, filters of every axis that varies by all their values.
  write(rows) {
    const { cells, state } = this;
    const varies = this.names.filter((name) => name !== "machine" && name !== "run");
    const values = (name) => [...new Set([...held(cells, rows, name).map(([text]) => text), ...(state.filters.get(name) ?? [])])];
    const address = format(complete(state, new Map([...varies, ...state.filters.keys()].map((name) => [name, values(name)]))));
    if (location.hash !== address) history.replaceState(null, "", address);
  }

  sort(name) {
    const { by, descending } = this.state.sort;
    this.state.sort = by === name && !descending ? { by: "", descending: true } : { by: name, descending: by !== name };
    this.from = 0;
    return this.draw();
  }

  // Tie a mark to its row and to its mark in the other picture, and say its numbers.
  point(id) {
    if (id === this.hot) return;
    this.hot = id;
    for (const part of [this.left.picture, this.right.picture, this.table]) part.show(id);
    const measures = this.measures.slice(0, this.state.beside === "phases" ? 1 : 2);
    this.readout.textContent = id < 0 ? "" : readout(this.cells, id, measures, this.names);
  }

  // A mark that was pressed is shown in the table.
  async reveal(id) {
    this.from = PAGE * Math.floor(this.order.indexOf(id) / PAGE);
    await this.draw();
    this.table.focus(id);
  }

  walk(event) {
    const list = event.currentTarget === this.left.chart ? this.drawn : this.page;
    const [at, last] = [list.indexOf(this.hot), list.length - 1];
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.point(-1);
    if (to === undefined) return;
    event.preventDefault();
    this.point(list[Math.max(0, Math.min(last, to))]);
  }

  download(kind) {
    const rows = records(this.cells, this.order, this.measures);
    if (kind === "csv") save("feedrate-explore.csv", "text/csv", csv(rows));
    else save("feedrate-explore.json", "application/json", `${JSON.stringify({ link: location.href, rows }, null, 1)}\n`);
  }
}

async function start() {
  const root = document.getElementById("fr-explore");
  const plain = document.getElementById("fr-explore-plain");
  try {
    const explorer = new Explorer(await Library.open(root.dataset.index), root);
    await parsed;
    plain.hidden = true;
    await explorer.open();
    // All is seen at once, when it is drawn, so that nothing moves.
    root.querySelector(".fr-explore-wait").remove();
    explorer.app.classList.remove("fr-explore-waiting");
    window.addEventListener("hashchange", () => explorer.moved());
  } catch (error) {
    plain.hidden = false;
    root.querySelector(".fr-explore-wait")?.remove();
    root.prepend(make("p", { class: "fr-missing", role: "alert" }, `The numbers cannot be shown: ${error.message}`));
    console.error("feedrate:", error);
  }
}

// Deferred scripts have run by then: site/figures.js, which draws, is one.
const parsed = new Promise((resolve) => { document.addEventListener("DOMContentLoaded", resolve, { once: true }); });
start();
