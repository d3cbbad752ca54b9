// Figures that show one of their pictures at a time: lists choose which one, and whose lines are in it. Without this script
// the first is there, and the table has the numbers of all.
import { make } from "../dom.js";

const EVERY = "all";

function sift(figure) {
  const pictures = [...figure.querySelectorAll(".fr-panel[data-facets]")].map((panel) => (
    { panel, facets: JSON.parse(panel.dataset.facets), chart: panel.querySelector(".fr-chart") }));
  const machines = [...figure.querySelectorAll(".fr-legend li")].map((item) => item.textContent.trim());
  const lists = new Map();
  let shown = pictures[0];

  const list = (name, values, change) => {
    if (values.length < 2) return [];
    const select = make("select", { change: () => change(select.value) }, values.map((value) => make("option", { value }, value)));
    lists.set(name, select);
    return [make("label", {}, name, select)];
  };

  // The picture that has what was chosen, and of those the one most like what was shown.
  const turn = (name, value) => {
    const alike = ({ facets }) => Object.keys(facets).filter((key) => facets[key] === shown.facets[key]).length;
    [shown] = pictures.filter(({ facets }) => facets[name] === value).sort((one, other) => alike(other) - alike(one));
    for (const { panel } of pictures) panel.hidden = panel !== shown.panel;
    for (const [key, chosen] of Object.entries(shown.facets)) if (lists.has(key)) lists.get(key).value = chosen;
    redraw().catch((error) => console.error("feedrate: this picture keeps all its lines:", error));
  };

  const redraw = async () => {
    const machine = lists.get("machine")?.value ?? EVERY;
    if (machine === EVERY && !shown.chart.dataset.state) return;
    const spec = await window.feedrate.specification(shown.chart);
    for (const rows of Object.values(spec.datasets ?? {})) {
      if (machine !== EVERY && rows[0]?.machine) rows.splice(0, rows.length, ...rows.filter((row) => row.machine === machine));
    }
    await window.feedrate.enliven(shown.chart, spec);
  };

  const facets = Object.keys(shown.facets).flatMap((name) => (
    list(name, [...new Set(pictures.map((picture) => picture.facets[name]))], (value) => turn(name, value))));
  const whose = list("machine", machines.length > 1 ? [EVERY, ...machines] : [], () => redraw());
  if (lists.size) figure.querySelector(".fr-panels").before(make("div", { class: "fr-facets" }, facets, whose));
}

for (const figure of document.querySelectorAll(".fr-figure:has(.fr-panel[data-facets])")) sift(figure);
