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

  async function enliven(chart) {
    if (chart.dataset.state) return;
    chart.dataset.state = "loading";
    try {
      const embed = await load();
      const live = document.createElement("div");
      live.className = "fr-live";
      live.setAttribute("aria-hidden", "true");
      chart.append(live);
      const still = [...chart.querySelectorAll(".fr-static")];
      const shown = still.find((picture) => picture.offsetWidth > 0);
      const spec = JSON.parse(chart.parentElement.querySelector(".fr-spec").textContent);
      spec.width = Number(shown.firstElementChild.getAttribute("width"));
      const result = await embed(live, spec, options());
      for (const picture of still) picture.remove();
      chart.dataset.state = "live";
      chart.view = result;
    } catch (error) {
      chart.querySelector(".fr-live")?.remove();
      delete chart.dataset.state;
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
    }
  }

  if (window.document$) window.document$.subscribe(init);
  else if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", init);
  else init();
})();
