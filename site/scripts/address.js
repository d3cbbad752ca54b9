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

export function format(pairs) {
  return `#${[...pairs].map(([name, values]) => `${encode(name)}=${values.map(encode).join(",")}`).join("&")}`;
}
