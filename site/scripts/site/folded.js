// Folded parts. What they hold is text until it is wanted, as most elements of a page would else be cells of tables that few
// unfold. A link to what lies in one unfolds it, who looks for words finds those in all, and on paper all but claims are unfolded:
// of these a row each is enough, and of those that a reader unfolded all.
let folded = [];

// Make text into what it stands for, once. Without scripts the browser does it.
function fill(part) {
  for (const kept of part.querySelectorAll("noscript")) {
    const holder = document.createElement("template");
    holder.innerHTML = kept.textContent;
    kept.replaceWith(holder.content);
  }
}

function unfold(part) {
  fill(part);
  part.open = true;
}

// Where no element has the name, a folded part may hold it.
function find(name) {
  const holds = (kept) => kept.textContent.includes(` id="${name}"`);
  const there = () => document.getElementById(name);
  if (!there()) [...document.querySelectorAll("noscript")].filter(holds).forEach((kept) => fill(kept.parentElement));
  return there();
}

function lead() {
  const target = location.hash.length > 1 && find(location.hash.slice(1));
  let part = target && target.closest("details");
  if (!part) return;
  for (; part; part = part.parentElement.closest("details")) unfold(part);
  target.scrollIntoView();
}

// A click comes before what it opens is seen, a toggle after, whoever opened it.
document.addEventListener("click", ({ target }) => {
  const summary = target instanceof Element && target.closest("summary");
  if (summary) fill(summary.parentElement);
});
document.addEventListener("toggle", ({ target }) => { if (target instanceof HTMLDetailsElement && target.open) fill(target); }, true);
document.addEventListener("keydown", ({ key, ctrlKey, metaKey }) => {
  if (key === "F3" || ((ctrlKey || metaKey) && key === "f")) fill(document);
});
window.addEventListener("hashchange", lead);
window.addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open]):not(.fr-claim)")];
  folded.forEach(unfold);
});
window.addEventListener("afterprint", () => {
  for (const part of folded) part.open = false;
});
window.feedrate.fill = fill;
document.querySelectorAll("details[open]").forEach(fill); // a reader may have been quicker than this script
lead();
