// The page Explore. A change goes one way: the state, the cells that it leaves, the pictures and the table, the address.

import { copyLink, format, make, many, parsed, plural, read } from "../dom.js";
import { View, resized, walk } from "../picture.js";
import { PAGE, Table } from "../table.js";
import { base, offered, ranIn, resolve, separate, settleAxes, settleFilters, settleMeasures, settleRuns } from "./choices.js";
import { Controls } from "./controls.js";
import { Library, explainEmpty, filtered, texts, warnings } from "./data.js";
import { MOST_MARKS, columns, csv, distinguishing, drawBeside, drawMain, readout, records, series, sorted } from "./views.js";

class Explorer {
  constructor(library, root) {
    this.library = library;
    this.hot = -1;
    this.told = [];
    this.failed = "";
    const pointed = (id) => this.point(id);
    const seen = { pointed, pressed: (id) => this.table.reveal(id) };
    const view = (name, marks) => new View(`fr-explore-${name}`, `fr-explore-view fr-explore-${name}`,
      { ...seen, walked: (event) => walk(event, marks(), this.hot, pointed) });
    this.controls = new Controls(library, (kind, touch) => this.after(() => this.apply(kind, touch)));
    this.left = view("main", () => this.drawn);
    this.right = view("beside", () => this.page);
    this.table = new Table({ pointed, sorted: (name) => this.sort(name), turned: () => this.draw() });
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
    const [copy, said] = copyLink(() => "Copied. The link keeps its meaning when there are more results.");
    return make("p", { class: "fr-explore-take" }, copy, press("Download CSV", () => this.download("csv")),
      press("Download JSON", () => this.download("json")), make("a", { href: location.pathname }, "Start anew"), said);
  }

  async open() {
    Object.assign(this, await resolve(this.library, location.hash));
    this.table.from = 0;
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
      settleAxes(cells, rows, state);
      settleFilters(cells, rows, state, seen);
    }
    separate(state);
    this.state = state;
    this.cells = cells;
    this.table.from = 0;
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
    const known = settleMeasures(cells, rows, state);
    const measure = library.measure(state.metric, state.ran);
    const column = cells.measures.get(state.metric);
    const passed = filtered(cells, state.filters, rows);
    const have = column ? passed.filter((row) => !Number.isNaN(column.mean[row])) : passed.slice(0, 0);
    const order = sorted(cells, have, { ...state.sort, along: [state.facet, state.colour, state.x] });
    if (this.table.from >= order.length) this.table.from = 0;
    this.order = order;
    this.drawn = order.slice(0, MOST_MARKS);
    this.page = order.slice(this.table.from, this.table.from + PAGE);
    this.names = names;
    this.measures = this.shown(measure);
    this.tones = state.colour ? series(cells, rows, state.colour, library.index) : null;
    this.write(rows);
    this.controls.show(state, this.scoped, known);
    this.say(rows, passed, have);
    this.views.hidden = this.table.scroll.hidden = this.table.pages.hidden = !order.length;
    if (!order.length) return;
    const different = distinguishing(cells, order, this.names);
    this.table.draw({ columns: columns(cells, this.measures, different), rows: order, sort: state.sort,
      caption: `${measure.label}: the cells that were chosen` });
    await Promise.all([drawMain(this.left, this, measure), drawBeside(this.right, this)]);
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
    else if (!passed.length) lines.push(explainEmpty(state.filters, (filters) => filtered(cells, filters, rows).length));
    else if (missing) lines.push(`${plural(missing, "cell")} without this measure ${missing === 1 ? "is" : "are"} left out.`);
    if (have.length > MOST_MARKS) {
      lines.push(`The first ${plural(MOST_MARKS, "mark")} of ${many(have.length)} are drawn, in the order of the table, which `
        + "pages through all: filter to see the others.");
    }
    const there = texts(cells, rows, "run");
    const idle = rows.length ? state.runs.filter((id) => !there.includes(id)) : [];
    if (idle.length) lines.push(`Of this kind (${library.ran.get(state.ran)}) there is nothing in ${idle.length === 1 ? "run" : "runs"} ${idle.join(", ")}.`);
    lines.push(warnings(cells, have));
    this.problems.replaceChildren(...lines.filter(Boolean).map((line) => make("p", {}, line)));
    this.problems.hidden = !this.problems.childElementCount;
  }

  // The whole choice into the address, filters of every axis that varies included: what is not filtered names all its values.
  write(rows) {
    const { cells, state } = this;
    const { by, descending } = state.sort;
    const filtered = new Set([...this.names.filter((name) => name !== "machine" && name !== "run"), ...state.filters.keys()]);
    const values = (name) => {
      const wanted = state.filters.get(name);
      return [...new Set([...texts(cells, rows, name), ...(wanted ?? [])])].filter((text) => wanted?.has(text) ?? true);
    };
    const address = format([
      ["machine", state.machines], ["run", state.runs], ["ran", [state.ran]], ["metric", [state.metric]], ["beside", [state.beside]],
      ["x", [state.x]], ["colour", [state.colour || "none"]], ["facet", [state.facet || "none"]],
      ["y_scale", [state.log ? "log" : "linear"]], ["sort", by ? [by, descending ? "descending" : "ascending"] : ["x"]],
      ...[...filtered].map((name) => [name, values(name)]),
    ]);
    if (location.hash !== address) history.replaceState(null, "", address);
  }

  sort(name) {
    const { by, descending } = this.state.sort;
    this.state.sort = by === name && !descending ? { by: "", descending: true } : { by: name, descending: by !== name };
    this.table.from = 0;
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

  download(kind) {
    const lines = records(this.cells, this.order, this.measures);
    const text = kind === "csv" ? csv(lines) : `${JSON.stringify({ link: location.href, rows: lines }, null, 1)}\n`;
    const address = URL.createObjectURL(new Blob([text], { type: kind === "csv" ? "text/csv" : "application/json" }));
    make("a", { href: address, download: `feedrate-explore.${kind}` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }
}

async function start() {
  const root = document.getElementById("fr-explore");
  const plain = document.getElementById("fr-explore-plain");
  try {
    const explorer = new Explorer(new Library(await read(root.dataset.index)), root);
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

start();
