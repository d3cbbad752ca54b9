// A picture that is drawn once for its shape and given new rows as often as they change. It says which mark is pointed
// at, and shows which one is looked at elsewhere.

const WAIT_MS = 120;

export class Picture {
  // `pointed` is told the id of the mark under the pointer, or -1; `pressed` that of one that was clicked.
  constructor(place, { pointed, pressed }) {
    Object.assign(this, { place, pointed, pressed, shape: "", result: null, turn: 0, hot: -1, over: -1 });
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
    const live = document.createElement("div");
    live.className = "fr-explore-next";
    live.setAttribute("aria-hidden", "true");
    this.place.append(live);
    const result = await window.feedrate.embed(live, { ...spec, data: { ...spec.data, values: rows } });
    if (turn !== this.turn) {
      result.finalize();
      live.remove();
      return;
    }
    this.result?.finalize();
    for (const before of [...this.place.children]) if (before !== live) before.remove();
    live.className = "fr-explore-live";
    Object.assign(this, { shape, result });
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

  show(id) {
    if (id === this.hot) return;
    this.hot = id;
    if (this.result) this.result.view.signal("hot", id).runAsync();
  }

  clear() {
    this.turn += 1;
    this.result?.finalize();
    this.place.replaceChildren();
    Object.assign(this, { shape: "", result: null });
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
