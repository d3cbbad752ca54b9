// Pictures are static until they are pointed at or focused; then Vega and the page's specifications are loaded and the
// picture is drawn anew in place, with numbers on hover. It has the same size before and after, so nothing on the page
// moves. Without this script nothing is lost but the hover. Other scripts draw with `window.feedrate`.
import { make } from "../dom.js";

const vega = new URL("../../vega.js", /** @type {HTMLScriptElement} */ (document.currentScript).src).href;
const loading = new Map();

// A script that is loaded once, when it is first needed; one that did not load is tried again.
function load(address) {
  if (!loading.has(address)) {
    loading.set(address, new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = address;
      script.onload = resolve;
      script.onerror = () => { loading.delete(address); reject(new Error(`${address} did not load`)); };
      document.head.append(script);
    }));
  }
  return loading.get(address);
}

// Draw a specification in a place. The interpreter (ast) needs no eval, which the content security policy forbids.
async function embed(place, spec) {
  await load(vega);
  return window.vegaEmbed(place, spec, {
    mode: "vega-lite", renderer: "svg", ast: true, actions: false, defaultStyle: false, config: window.feedrateTheme,
    tooltip: { disableDefaultStyle: true, theme: "custom" },
  });
}

// What a chart of this page is drawn from: a copy, for the caller to change.
async function specification(chart) {
  await load(new URL(document.querySelector("meta[name=fr-charts]").getAttribute("content"), location.href).href);
  const found = window.feedrateCharts[chart.dataset.chart];
  if (!found) throw new Error(`no specification of ${chart.dataset.chart}`);
  return structuredClone(found);
}

// Where another script asks for a picture of some of its rows, `given` is what is drawn in place of what is there.
async function enliven(chart, given) {
  if (chart.dataset.state && !given) return;
  chart.dataset.state ??= "loading";
  const turn = chart.dataset.turn = String(1 + Number(chart.dataset.turn ?? 0));
  let live = null;
  try {
    const spec = given ?? await specification(chart);
    live = make("div", { class: "fr-live fr-next", "aria-hidden": "true" });
    chart.append(live);
    const before = [...chart.querySelectorAll(".fr-static, .fr-live:not(.fr-next)")];
    const shown = [...chart.querySelectorAll(".fr-static")].find((picture) => picture.offsetWidth > 0);
    if (shown) chart.dataset.width = shown.firstElementChild.getAttribute("width");
    const result = await embed(live, { ...spec, width: Number(chart.dataset.width) });
    if (chart.dataset.turn !== turn) { result.finalize(); live.remove(); return; }
    for (const picture of before) picture.remove();
    live.classList.remove("fr-next");
    chart.dataset.state = "live";
    chart.view?.finalize();
    chart.view = result;
  } catch (error) {
    live?.remove();
    if (chart.dataset.state === "loading") delete chart.dataset.state;
    console.error("feedrate: this picture stays static:", error);
  }
}

for (const chart of document.querySelectorAll(".fr-chart")) {
  for (const event of ["pointerenter", "focus", "pointerdown"]) chart.addEventListener(event, () => enliven(chart));
}
window.feedrate = { embed, enliven, specification };
