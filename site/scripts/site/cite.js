// Citations: a page cannot know under which address it will be published, so its citations name the place below the
// site's own. Here the address is made whole, and each form gets a button that copies it. Without this script the text
// can be selected as it stands.
// The canonical address, where the site was built for one; else the one that is open. A file has none to cite.
function whole(below) {
  const page = document.querySelector("link[rel=canonical]")?.getAttribute("href") ?? location.href;
  if (!/^https?:/.test(page)) return below;
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

function init() {
  for (const address of document.querySelectorAll(".fr-address")) address.textContent = whole(address.textContent);
  for (const list of document.querySelectorAll(".fr-forms")) {
    const said = list.nextElementSibling;
    for (const item of list.querySelectorAll("[data-form]")) {
      const form = item.dataset.form;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Copy";
      button.setAttribute("aria-label", `Copy as ${form}: ${list.dataset.what}`);
      button.addEventListener("click", () => copy(item.querySelector("pre"), said, form));
      item.querySelector("dt").append(button);
    }
  }
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", init);
else init();
