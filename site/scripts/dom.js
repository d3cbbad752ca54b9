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

// A box that unfolds; its summary is text that can change.
export function fold(name, inside, open = false) {
  const said = make("span");
  const box = make("details", { class: `fr-explore-fold fr-explore-${name}`, open }, make("summary", {}, said), inside);
  return { box, say: (text) => { said.textContent = text; } };
}

export function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
