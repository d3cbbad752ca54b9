// The Claims page: check boxes leave some of the claims, in the list, in the pictures and in their table. What is chosen
// stands in the address, so that it can be sent to somebody. A link to a claim shows it, and folded.js unfolds it. Without
// this script every claim is there, folded.
import { format, parse } from "../dom.js";

const NAMES = ["verdict", "source", "device"];
const form = document.getElementById("fr-filter");
const claims = [...document.querySelectorAll(".fr-claim")];
const boxes = /** @type {HTMLInputElement[]} */ ([...form?.getElementsByTagName("input") ?? []]);
const charts = [...document.querySelectorAll("#claims .fr-chart")].map((chart) => ({ chart, spec: null, shown: null, kept: null }));

const chosen = (name) => new Set(boxes.filter((box) => box.name === name && box.checked).map((box) => box.value));

// A claim stays if one of its sources was chosen and one machine's verdict fits; of its machines, those that fit.
function sift() {
  const [verdicts, sources, devices] = NAMES.map(chosen);
  const fits = (wanted, value) => !wanted.size || wanted.has(value);
  const some = boxes.some((box) => box.checked);
  const kept = new Set();
  for (const claim of claims) {
    const said = claim.dataset.sources.split(" ").some((name) => fits(sources, name));
    const found = [...claim.querySelectorAll(".fr-on")];
    for (const each of found) {
      const { verdict, device, machine } = each.dataset;
      each.hidden = !(said && fits(verdicts, verdict) && fits(devices, device));
      if (!each.hidden) kept.add([claim.dataset.claim, machine, device].join(" "));
    }
    claim.hidden = found.every((each) => each.hidden) && boxes.length > 0;
  }
  for (const more of document.querySelectorAll(".fr-more")) {
    more.hidden = [...more.querySelectorAll(".fr-claim")].every((claim) => claim.hidden);
    if (some && !more.hidden) more.setAttribute("open", "");
  }
  for (const group of document.querySelectorAll(".fr-claims")) {
    group.hidden = [...group.querySelectorAll(".fr-claim")].every((claim) => claim.hidden);
    group.previousElementSibling.toggleAttribute("hidden", group.hidden);
  }
  const data = document.querySelector("#claims .fr-data");
  if (data && some) window.feedrate.fill(data);
  // A group of which no row is left goes with its heading.
  for (const group of document.querySelectorAll("#claims-table tbody")) {
    const own = [...group.querySelectorAll("[data-row]")];
    for (const row of own) row.hidden = !kept.has(row.dataset.row);
    group.hidden = own.every((row) => row.hidden);
  }
  const count = claims.filter((claim) => !claim.hidden).length;
  if (form) form.querySelector(".fr-filter-said").textContent = some ? `${count} of ${claims.length} claims are shown.` : "";
  for (const each of charts) {
    redraw(each, kept, some).catch((error) => console.error("feedrate: this picture keeps all its rows:", error));
  }
}

// A picture is right as it stands until something is chosen; then its specification is loaded, and it follows.
async function redraw(each, kept, some) {
  each.kept = kept;
  if (!each.shown && !some) return;
  each.spec ??= await window.feedrate.specification(each.chart);
  if (each.kept !== kept) return;
  const { machine, device, row } = each.spec.usermeta;
  const spec = structuredClone(each.spec);
  let [all, left] = [0, 0];
  for (const values of Object.values(spec.datasets ?? {})) {
    if (!values[0]?.claim) continue;
    const rows = values.filter((value) => kept.has([value.claim, machine, device].join(" ")));
    [all, left] = [values.length, rows.length];
    values.splice(0, values.length, ...rows);
  }
  const frame = each.chart.parentElement;
  frame.hidden = !left;
  frame.querySelector(".fr-message").hidden = left < all;
  each.label ??= each.chart.getAttribute("aria-label");
  each.chart.setAttribute("aria-label", left < all ? `${left} of ${all} effects; the table has them.` : each.label);
  const shown = spec.datasets ? JSON.stringify(spec.datasets) : "";
  const before = each.shown ?? JSON.stringify(each.spec.datasets);
  each.shown = shown;
  if (!left || shown === before) return;
  spec.height -= row * (all - left);
  window.feedrate.enliven(each.chart, spec);
}

function choose(wanted) {
  for (const box of boxes) box.checked = wanted.get(box.name)?.includes(box.value) ?? false;
  sift();
}

// An address is a choice, or a claim, or another place on the page, which leaves what was chosen.
function read() {
  const wanted = parse(location.hash);
  if (wanted) choose(wanted);
  else sift();
  const target = document.getElementById(location.hash.slice(1));
  if (!target?.classList.contains("fr-claim") || !target.hidden) return;
  choose(new Map());
  target.scrollIntoView();
}

function write() {
  const pairs = NAMES.map((name) => [name, [...chosen(name)]]).filter(([, values]) => values.length);
  history.replaceState(null, "", pairs.length ? format(pairs) : location.pathname + location.search);
  sift();
}

if (claims.length) {
  if (form) {
    form.hidden = false;
    form.addEventListener("change", write);
  }
  window.addEventListener("hashchange", read);
  read();
}
