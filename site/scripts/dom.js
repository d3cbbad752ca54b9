// What the site's pages share: elements made of names, properties and text, which is never markup; numbers in words; and
// the address of a page.

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
  } }, "Copy link");
  button.hidden = !navigator.clipboard;
  return [button, said];
}

// Deferred scripts have run by then: site/figures.js, which draws, is one.
export const parsed = /* @__PURE__ */ new Promise((resolve) => { document.addEventListener("DOMContentLoaded", resolve, { once: true }); });

const FORMAT = 1;

// What the site wrote for a page, by its address.
export async function read(address) {
  const answer = await fetch(new URL(address, document.baseURI));
  if (!answer.ok) throw new Error(`${address}: ${answer.status} ${answer.statusText}`);
  const found = await answer.json();
  if (found.format !== FORMAT) throw new Error(`${address}: its format is ${found.format}; expected ${FORMAT}`);
  return found;
}

// Numbers and counts in words.

const digits = (count) => new Intl.NumberFormat("en", { maximumSignificantDigits: count });
const [three, five] = [digits(3), digits(5)];

export const number = (value) => (Number.isFinite(value) ? three.format(value) : "–");
export const fine = (value) => (Number.isFinite(value) ? five.format(value) : "–");
const two = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

// A ratio: two decimals near 1, three digits far from it.
const bare = (ratio) => (ratio >= 0.1 && ratio < 100 ? two.format(ratio) : number(ratio));
export const times = (ratio) => (Number.isFinite(ratio) ? `${bare(ratio)}×` : "–");
export const between = (lo, hi) => (Number.isFinite(lo) && Number.isFinite(hi) ? `${bare(lo)}–${bare(hi)}` : "no interval");

export const many = (count) => count.toLocaleString("en");
export const plural = (count, noun) => `${many(count)} ${noun}${count === 1 ? "" : "s"}`;

// The address of a page holds the whole choice by names and values, never by places in a list: "#x=batch_size&…". Values
// are parted by commas; what a name or a value holds of these signs is encoded.

const encode = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16)}`);

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// A fragment as a map of names to lists of values; null where it is no choice but a place on the page, or nothing.
export function parse(fragment) {
  const text = fragment.replace(/^#/, "");
  if (!text.includes("=")) return null;
  return new Map(text.split("&").filter(Boolean).map((part) => {
    const [, name, values] = /^([^=]*)=?(.*)$/.exec(part);
    return [decode(name), values ? values.split(",").map(decode) : []];
  }));
}

// A page that draws opens with its choice wherever its address leads, and what it drew moved the place that this names.
export async function opened(open) {
  const name = location.hash.slice(1);
  await open();
  if (!name.includes("=")) document.getElementById(name)?.scrollIntoView();
  window.addEventListener("hashchange", open);
}

export function format(pairs) {
  return `#${[...pairs].map(([name, values]) => `${encode(name)}=${values.map(encode).join(",")}`).join("&")}`;
}
