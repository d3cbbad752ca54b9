// The Claims page: check boxes leave some of the claims, in the list, in the pictures and in their table. What is chosen
// stands in the address, so that it can be sent to somebody. A link to a claim shows it, and folded.js unfolds it. Without
// this script every claim is there, folded.
function init() {
  const form = document.getElementById("fr-filter");
  const claims = [...document.querySelectorAll(".fr-claim")];
  if (!claims.length) return;
  /** @type {HTMLInputElement[]} */
  const boxes = form ? Array.from(form.getElementsByTagName("input")) : [];
  const charts = [...document.querySelectorAll("#claims .fr-chart")].map((chart) => ({ chart, spec: null, shown: null, kept: null }));

  const chosen = (name) => new Set(boxes.filter((box) => box.name === name && box.checked).map((box) => box.value));

  // A claim stays if one of its sources was chosen and one machine's verdict fits; of its machines, those that fit.
  function sift() {
    const [verdicts, sources, devices] = ["verdict", "source", "device"].map(chosen);
    const fits = (wanted, value) => !wanted.size || wanted.has(value);
    const kept = new Set();
    for (const claim of claims) {
      const said = !sources.size || claim.dataset.sources.split(" ").some((name) => sources.has(name));
      let left = 0;
      for (const found of claim.querySelectorAll(".fr-on")) {
        const data = found.dataset;
        found.hidden = !(said && fits(verdicts, data.verdict) && fits(devices, data.device));
        if (found.hidden) continue;
        left += 1;
        kept.add([claim.dataset.claim, data.machine, data.device].join(" "));
      }
      claim.hidden = !left && boxes.length > 0;
    }
    for (const group of document.querySelectorAll(".fr-claims")) {
      group.hidden = [...group.querySelectorAll(".fr-claim")].every((claim) => claim.hidden);
      group.previousElementSibling.toggleAttribute("hidden", group.hidden);
    }
    rows(kept);
    const count = claims.filter((claim) => !claim.hidden).length;
    if (form) form.querySelector(".fr-filter-said").textContent = boxes.some((box) => box.checked)
      ? `${count} of ${claims.length} claims are shown.` : "";
    for (const each of charts) {
      redraw(each, kept).catch((error) => console.error("feedrate: this picture keeps all its rows:", error));
    }
  }

  // A group of which no row is left goes with its heading.
  function rows(kept) {
    const data = document.querySelector("#claims .fr-data");
    if (data && boxes.some((box) => box.checked)) window.feedrate.fill(data);
    for (const group of document.querySelectorAll("#claims-table tbody")) {
      const own = [...group.querySelectorAll("[data-row]")];
      for (const row of own) row.hidden = !kept.has(row.dataset.row);
      group.hidden = own.every((row) => row.hidden);
    }
  }

  // A picture is right as it stands until something is chosen; then its specification is loaded, and it follows.
  async function redraw(each, kept) {
    each.kept = kept;
    if (!each.shown && !boxes.some((box) => box.checked)) return;
    each.spec ??= await window.feedrate.specification(each.chart);
    if (each.kept !== kept) return;
    const { machine, device, row } = each.spec.usermeta;
    const spec = structuredClone(each.spec);
    let all = 0;
    let left = 0;
    for (const values of Object.values(spec.datasets ?? {})) {
      if (!values[0]?.claim) continue;
      const some = values.filter((value) => kept.has([value.claim, machine, device].join(" ")));
      [all, left] = [values.length, some.length];
      values.splice(0, values.length, ...some);
    }
    each.chart.parentElement.hidden = !left;
    each.label ??= each.chart.getAttribute("aria-label");
    each.chart.setAttribute("aria-label", left < all ? `${left} of ${all} effects; the table has them.` : each.label);
    each.chart.parentElement.querySelector(".fr-message").hidden = left < all;
    const shown = spec.datasets ? JSON.stringify(spec.datasets) : "";
    const before = each.shown ?? JSON.stringify(each.spec.datasets);
    each.shown = shown;
    if (!left || shown === before) return;
    spec.height -= row * (all - left);
    window.feedrate.enliven(each.chart, spec);
  }

  // An address is a choice, or a claim, or another place on the page, which leaves what was chosen.
  function read() {
    const hash = location.hash.slice(1);
    if (hash.includes("=")) choose(new URLSearchParams(hash));
    sift();
    const target = document.getElementById(hash);
    if (!target?.classList.contains("fr-claim") || !target.hidden) return;
    choose(new URLSearchParams());
    sift();
    target.scrollIntoView();
  }

  function choose(wanted) {
    for (const box of boxes) box.checked = (wanted.get(box.name) ?? "").split(",").includes(box.value);
  }

  function write() {
    const parts = ["verdict", "source", "device"].flatMap((name) => {
      const values = [...chosen(name)];
      return values.length ? [`${name}=${values.map(encodeURIComponent).join(",")}`] : [];
    });
    history.replaceState(null, "", parts.length ? `#${parts.join("&")}` : location.pathname + location.search);
    sift();
  }

  if (form) {
    form.hidden = false;
    form.addEventListener("change", write);
  }
  window.addEventListener("hashchange", read);
  read();
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", init);
else init();
