// The address of the page holds the whole choice by names and values, never by places in a list: "#x=batch_size&…".
// A value is a word of its own; several are parted by commas, and what a value holds of these signs is encoded.


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
  const found = new Map();
  for (const part of text.split("&").filter(Boolean)) {
    const at = part.indexOf("=");
    const values = at < 0 ? "" : part.slice(at + 1);
    found.set(decode(at < 0 ? part : part.slice(0, at)), values ? values.split(",").map(decode) : []);
  }
  return found;
}

export function format(pairs) {
  return `#${[...pairs].map(([name, values]) => `${encode(name)}=${values.map(encode).join(",")}`).join("&")}`;
}

// Everything that the state says, filters of every axis that varies included: what is not filtered names all its values.
export function complete(state, offered) {
  const { by, descending } = state.sort;
  return new Map(/** @type {[string, string[]][]} */ ([
    ["machine", state.machines],
    ["run", state.runs],
    ["ran", [state.ran]],
    ["metric", [state.metric]],
    ["beside", [state.beside]],
    ["x", [state.x]],
    ["colour", [state.colour || "none"]],
    ["facet", [state.facet || "none"]],
    ["y_scale", [state.log ? "log" : "linear"]],
    ["sort", by ? [by, descending ? "descending" : "ascending"] : ["x"]],
    ...[...offered].map(([name, texts]) => [name, texts.filter((text) => state.filters.get(name)?.has(text) ?? true)]),
  ]));
}
