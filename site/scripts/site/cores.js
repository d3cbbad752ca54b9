// The page "How many cores does a GPU need?": a slider is the GPU's rate, and the table follows. Its scale is logarithmic:
// a place is a thousand times the logarithm of the rate.
import { many, number } from "../dom.js";

for (const box of document.querySelectorAll(".fr-cores")) {
  const slider = /** @type {HTMLInputElement} */ (box.querySelector("input"));
  const shown = /** @type {HTMLOutputElement} */ (box.querySelector("output"));
  let table = box.nextElementSibling; // its own machine's
  while (!table.matches(".fr-scroll")) table = table.nextElementSibling;
  const cells = [...table.querySelectorAll("[data-core]")];
  const show = (rate) => {
    shown.value = many(rate);
    slider.setAttribute("aria-valuetext", many(rate));
    for (const cell of cells) {
      const [core, cores] = [Number(cell.dataset.core), Number(cell.dataset.cores)];
      const idle = Math.max(0, 1 - (core * cores) / rate);
      cell.textContent = cell.classList.contains("fr-cores-idle") ? `${Math.round(100 * idle)}\u00a0%` : number(rate / core);
    }
  };
  slider.addEventListener("input", () => show(Number((10 ** (Number(slider.value) / 1000)).toPrecision(3))));
  for (const button of box.querySelectorAll("button")) {
    button.addEventListener("click", () => {
      slider.value = String(1000 * Math.log10(Number(button.dataset.rate)));
      show(Number(button.dataset.rate));
    });
  }
}
