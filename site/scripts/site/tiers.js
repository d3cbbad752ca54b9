// Tables that name the tier of each run: check boxes leave the rows of some tiers. They are there only where a table has
// runs of several. Without this script every row is there.
import { make } from "../dom.js";

const TIERS = ["reference", "self-reported"];

function filtered(table) {
  const rows = [...table.tBodies[0].rows].map((row) => {
    const said = row.querySelector(".fr-tier")?.textContent ?? "";
    return { row, tiers: TIERS.filter((tier) => said.includes(tier)) };
  });
  const counts = TIERS.map((tier) => [tier, rows.filter(({ tiers }) => tiers.includes(tier)).length]).filter(([, count]) => count);
  if (counts.length < 2 || rows.length < 2) return;
  const said = make("p", { class: "fr-filter-said", "aria-live": "polite" });
  const boxes = make("fieldset", {}, make("legend", {}, "Tier"));
  const change = () => {
    const wanted = [...boxes.querySelectorAll("input:checked")].map(({ value }) => value);
    for (const { row, tiers } of rows) row.hidden = wanted.length > 0 && !tiers.some((tier) => wanted.includes(tier));
    const left = rows.filter(({ row }) => !row.hidden).length;
    said.textContent = wanted.length ? `${left} of ${rows.length} rows are shown.` : "";
  };
  boxes.append(...counts.map(([tier, count]) => make("label", {}, make("input", { type: "checkbox", value: tier, change }),
    make("span", {}, `${tier} `, make("small", {}, String(count))))));
  (table.closest(".fr-scroll") ?? table).before(make("div", { class: "fr-filter" }, boxes, said));
}

for (const table of document.querySelectorAll("table.fr-table")) if (table.querySelector("tbody .fr-tier")) filtered(table);
