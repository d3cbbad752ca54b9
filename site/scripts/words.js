// Numbers and counts in words, the same on every page.

const digits = (count) => new Intl.NumberFormat("en", { maximumSignificantDigits: count });
const [three, five] = [digits(3), digits(5)];

export const number = (value) => (Number.isFinite(value) ? three.format(value) : "–");
export const fine = (value) => (Number.isFinite(value) ? five.format(value) : "–");
export const many = (count) => count.toLocaleString("en");
export const plural = (count, noun) => `${many(count)} ${noun}${count === 1 ? "" : "s"}`;
