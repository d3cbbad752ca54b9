// Every page: pictures that come alive, folded parts, the drawer of a phone, citations, tiers, the filters of claims and figures, cores for a GPU.

import "./figures.js";
import "./folded.js";
import "./claims.js";
import "./cite.js";
import "./tiers.js";
import "./cores.js";
import "./facets.js";

// The drawer of a phone is opened by a label, which is no button to a keyboard and to those who hear a page.
const drawer = /** @type {HTMLInputElement} */ (document.getElementById("__drawer"));
const button = document.querySelector(".md-header__button[for=__drawer]");
const tell = () => button.setAttribute("aria-expanded", String(drawer.checked));
for (const [name, value] of [["tabindex", "0"], ["role", "button"], ["aria-label", "Navigation"]]) {
  button.setAttribute(name, value);
}
// The theme presses a label for the key Enter.
button.addEventListener("keydown", (event) => {
  if (event.key !== " ") return;
  event.preventDefault();
  button.click();
});
drawer.addEventListener("change", tell);
tell();
