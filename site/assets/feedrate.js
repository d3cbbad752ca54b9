// Pictures are static until they are pointed at or focused; then Vega draws them anew in place, with numbers on hover.
// The picture has the same size before and after, so nothing on the page moves. Without this script nothing is lost but
// the hover.
(() => {
  "use strict";
  const here = document.currentScript.src;
  let vega = null;
  let theme = null;

  const load = () => (vega ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = new URL("vega.js", here).href;
    script.onload = () => resolve(window.vegaEmbed);
    script.onerror = () => { vega = null; reject(new Error("vega.js did not load")); };
    document.head.append(script);
  }));

  // The interpreter (ast) needs no eval, which the content security policy forbids.
  const options = () => ({
    mode: "vega-lite", renderer: "svg", ast: true, actions: false, defaultStyle: false, config: theme,
    tooltip: { disableDefaultStyle: true, theme: "custom" },
  });

  // Another script may ask for a picture of some of its rows: then `given` is what is drawn, in place of what is there.
  async function enliven(chart, given) {
    if (chart.dataset.state && !given) return;
    chart.dataset.state ??= "loading";
    const turn = chart.dataset.turn = String(1 + Number(chart.dataset.turn ?? 0));
    try {
      const embed = await load();
      const live = document.createElement("div");
      live.className = "fr-live fr-next";
      live.setAttribute("aria-hidden", "true");
      chart.append(live);
      const before = [...chart.querySelectorAll(".fr-static, .fr-live:not(.fr-next)")];
      const shown = [...chart.querySelectorAll(".fr-static")].find((picture) => picture.offsetWidth > 0);
      if (shown) chart.dataset.width = shown.firstElementChild.getAttribute("width");
      const spec = given ?? JSON.parse(chart.parentElement.querySelector(".fr-spec").textContent);
      spec.width = Number(chart.dataset.width);
      const result = await embed(live, spec, options());
      if (chart.dataset.turn !== turn) { result.finalize(); live.remove(); return; }
      for (const picture of before) picture.remove();
      live.classList.remove("fr-next");
      chart.dataset.state = "live";
      chart.view?.finalize();
      chart.view = result;
    } catch (error) {
      chart.querySelector(".fr-next")?.remove();
      if (chart.dataset.state === "loading") delete chart.dataset.state;
      console.error("feedrate: this picture stays static:", error);
    }
  }

  function init() {
    const text = document.getElementById("fr-theme");
    if (!text) return;
    theme = JSON.parse(text.textContent);
    for (const chart of document.querySelectorAll(".fr-chart")) {
      const start = () => enliven(chart);
      for (const event of ["pointerenter", "focus", "pointerdown"]) chart.addEventListener(event, start, { once: true });
      chart.addEventListener("fr-rows", (event) => enliven(chart, event.detail));
    }
  }

  if (window.document$) window.document$.subscribe(init);
  else if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", init);
  else init();
})();
