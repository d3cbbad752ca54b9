// Elements made of names, properties and text. Text is never markup.

export function make(tag, given = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name === "class") made.className = value;
    else if (typeof value === "function") made.addEventListener(name, value);
    else if (typeof value === "boolean") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...inside.flat().filter((part) => part !== null));
  return made;
}

// A list or a field with its name.
export const picked = (name, control) => make("label", { class: "fr-explore-pick" }, make("span", {}, name), control);

// A button that copies the address of the page, and the place that says so; `copied` gives the words.
export function copyLink(copied) {
  const said = make("span", { role: "status" });
  const button = make("button", { type: "button", click: async () => {
    said.textContent = await navigator.clipboard.writeText(location.href)
      .then(copied, () => "The browser forbids copying: the address bar has the link.");
  } }, "Copy a link to this");
  button.hidden = !navigator.clipboard;
  return [button, said];
}

// Deferred scripts have run by then: site/figures.js, which draws, is one.
export const parsed = /* @__PURE__ */ new Promise((resolve) => { document.addEventListener("DOMContentLoaded", resolve, { once: true }); });
