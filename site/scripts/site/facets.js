// Figures that show one of their pictures at a time: lists choose which one, and whose lines are in it. Without this script
// all are there.

const EVERY = "all";

function sift(figure) {
  const pictures = [...figure.querySelectorAll(".fr-panel[data-facets]")].map((panel) => (
    { panel, facets: JSON.parse(panel.dataset.facets), chart: panel.querySelector(".fr-chart") }));
  const lists = new Map([...figure.querySelectorAll("select[data-facet]")].map((list) => [list.dataset.facet, list]));
  let [shown] = pictures;

  const told = (facets) => Object.entries(facets).filter(([, value]) => typeof value === "string");

  // The picture that has what was chosen, and of those the one most like what was shown.
  const turn = (name, value) => {
    const alike = ({ facets }) => told(facets).filter(([key, own]) => own === shown.facets[key]).length;
    [shown] = pictures.filter(({ facets }) => facets[name] === value).sort((one, other) => alike(other) - alike(one));
    for (const { panel } of pictures) panel.hidden = panel !== shown.panel;
    for (const [key, chosen] of told(shown.facets)) if (lists.has(key)) lists.get(key).value = chosen;
    offer();
  };

  // Of the machines those that have a line in the picture.
  const offer = () => {
    const machines = lists.get("machine");
    if (!machines) return;
    for (const option of machines.options) option.disabled = option.value !== EVERY && !shown.facets.machine.includes(option.value);
    if (machines.selectedOptions[0].disabled) machines.value = EVERY;
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

  for (const [name, list] of lists) {
    list.addEventListener("change", () => {
      if (name !== "machine") turn(name, list.value);
      redraw().catch((error) => console.error("feedrate: this picture keeps all its lines:", error));
    });
  }
  offer();
}

for (const figure of document.querySelectorAll(".fr-figure:has(.fr-facets)")) sift(figure);
