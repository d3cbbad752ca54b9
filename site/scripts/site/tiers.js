// Tables that name the tier of each run: check boxes leave the rows of some tiers. They are there only where a table has
// runs of several. Without this script every row is there.
const TIERS = ["reference", "self-reported"];

function make(tag, given, ...inside) {
  const made = Object.assign(document.createElement(tag), given);
  made.append(...inside);
  return made;
}

// The rows of a table, each with the tiers that it names.
function named(table) {
  return [...table.tBodies[0].rows].map((row) => {
    const said = row.querySelector(".fr-tier")?.textContent ?? "";
    return { row, tiers: TIERS.filter((tier) => said.includes(tier)) };
  });
}

function box(tier, rows, change) {
  const input = make("input", { type: "checkbox", value: tier });
  input.addEventListener("change", change);
  const count = rows.filter(({ tiers }) => tiers.includes(tier)).length;
  return make("label", {}, input, make("span", {}, `${tier} `, make("small", {}, String(count))));
}

function filtered(table) {
  const rows = named(table);
  const there = TIERS.filter((tier) => rows.some(({ tiers }) => tiers.includes(tier)));
  if (there.length < 2 || rows.length < 2) return;
  const said = make("p", { className: "fr-filter-said" });
  said.setAttribute("aria-live", "polite");
  const boxes = make("fieldset", {}, make("legend", { textContent: "Tier" }));
  const sift = () => {
    const wanted = [...boxes.querySelectorAll("input:checked")].map(({ value }) => value);
    for (const { row, tiers } of rows) row.hidden = wanted.length > 0 && !tiers.some((tier) => wanted.includes(tier));
    const left = rows.filter(({ row }) => !row.hidden).length;
    said.textContent = wanted.length ? `${left} of ${rows.length} rows are shown.` : "";
  };
  boxes.append(...there.map((tier) => box(tier, rows, sift)));
  const place = table.closest(".fr-scroll") ?? table;
  place.before(make("div", { className: "fr-filter" }, boxes, said));
}

function init() {
  for (const table of document.querySelectorAll("table.fr-table")) {
    if (!table.dataset.sifted && table.querySelector("tbody .fr-tier")) {
      table.dataset.sifted = "yes";
      filtered(table);
    }
  }
}

if (window.document$) window.document$.subscribe(init);
else if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", init);
else init();
