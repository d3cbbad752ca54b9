// Folded parts: a link to what lies in one unfolds it, and on paper all are unfolded. After claims.js, which shows a claim
// that a link names even where check boxes have left it out.
(() => {
  "use strict";
  let folded = [];

  function lead() {
    const target = document.getElementById(location.hash.slice(1));
    let part = target?.closest("details");
    if (!part) return;
    for (; part; part = part.parentElement.closest("details")) part.open = true;
    target.scrollIntoView();
  }

  window.addEventListener("hashchange", lead);
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const part of folded) part.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const part of folded) part.open = false;
  });
  lead();
})();
