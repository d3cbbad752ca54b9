// Citations name the place below the site's own address, under which nobody knows where it will be published. Here the
// address is made whole, and each form gets a button that copies it.
import { make } from "../dom.js";

// The canonical address, where the site was built for one; else the one that is open. A file has none to cite, and
// this machine's own leads nobody else there.
function whole(below) {
  const page = document.querySelector("link[rel=canonical]")?.getAttribute("href") ?? location.href;
  if (!/^https?:/.test(page) || /^https?:\/\/(localhost|127\.|\[::1\])/.test(page)) return below;
  const { base } = JSON.parse(document.getElementById("__config").textContent);
  return new URL(`${base}/${below}`, page).href;
}

async function copy(text, said, form) {
  try {
    await navigator.clipboard.writeText(text.textContent);
    said.textContent = `${form} copied.`;
  } catch {
    // No clipboard (an address that is not secure, or the reader forbids it): what is selected can be copied by hand.
    getSelection().selectAllChildren(text);
    said.textContent = `${form} is selected: copy it with Ctrl+C.`;
  }
}

for (const address of document.querySelectorAll(".fr-address")) address.textContent = whole(address.textContent);
for (const item of document.querySelectorAll(".fr-forms [data-form]")) {
  const list = /** @type {HTMLElement} */ (item.closest(".fr-forms"));
  const { form } = item.dataset;
  item.querySelector("dt").append(make("button", {
    type: "button", "aria-label": `Copy as ${form}: ${list.dataset.what}`,
    click: () => copy(item.querySelector("pre"), list.nextElementSibling, form),
  }, "Copy"));
}
