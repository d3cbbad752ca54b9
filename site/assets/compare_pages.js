// The pages of a column chunk, looked at before they are read: how large they say that they are, how many values they
// say that they hold, and whether the runs in them hold no more. The reader takes each of these at its word, and a run of
// four bytes can claim a billion values. Only what feedrate writes is taken: pages of version 1, plain or by dictionary.

import { Malformed, Walker } from "./compare_thrift.js";

const [DATA, DICTIONARY] = [0, 2];
const PLAIN = 0;
const BY_DICTIONARY = new Set([2, 8]);
const WORTH = 64;
const many = (count) => count.toLocaleString("en");
const whole = (value) => Number.isInteger(value) && value >= 0;

export class OverCap extends Error {}

// Add up what a file takes altogether, so that many small pages are capped as one large one is.
export class Budget {
  constructor({ unpacked, pages }) {
    Object.assign(this, { most: unpacked, pages, spent: 0, seen: 0 });
  }

  take(bytes) {
    this.spent += bytes;
    if ((this.seen += 1) > this.pages) throw new OverCap(`its columns have more than ${many(this.pages)} pages`);
    if (this.spent > this.most) throw new OverCap(`its columns unpack to more than ${many(this.most)} bytes`);
  }
}

// Check every page of a chunk. `chunk`: where it lies and how it is stored; `unpack`: stored bytes and size → bytes.
export function checkPages(bytes, chunk, caps, budget, unpack) {
  const { start, end, rows, optional } = chunk;
  let [at, seen] = [start, 0];
  while (at < end) {
    const walker = new Walker(bytes, at, end, WORTH);
    const header = walker.struct(1);
    const [type, size, stored] = [header.get(1), header.get(2), header.get(3)];
    if (!whole(size) || !whole(stored) || stored > end - walker.at) throw new Malformed("a page goes beyond its column");
    if (size > caps.page) throw new OverCap(`a page unpacks to ${many(size)} bytes; at most ${many(caps.page)} are read`);
    budget.take(size);
    const about = header.get(type === DICTIONARY ? 7 : 5);
    const count = about?.get?.(1);
    const encoding = about?.get?.(2);
    if (!whole(count)) throw new Malformed(`a page of kind ${type}; expected a data page of version 1 or a dictionary`);
    const input = bytes.subarray(walker.at, walker.at + stored);
    if (type === DICTIONARY) {
      if (count > size) throw new Malformed(`a dictionary says that it holds ${count} values in ${size} bytes`);
    } else if (type === DATA) {
      seen += count;
      if (seen > rows) throw new Malformed(`a column has more values than its ${rows} rows`);
      checkValues(unpack(input, size), count, optional, encoding);
    } else {
      throw new Malformed(`a page of kind ${type}; expected a data page of version 1 or a dictionary`);
    }
    at = walker.at + stored;
  }
  if (seen !== rows) throw new Malformed(`a column has ${seen} values for ${rows} rows`);
}

// Levels say which values are there, then come the values.
function checkValues(page, count, optional, encoding) {
  let [at, there] = [0, count];
  if (optional && count) {
    if (page.length < 4) throw new Malformed("a page is too short");
    const length = new DataView(page.buffer, page.byteOffset).getUint32(0, true);
    if (length > page.length - 4) throw new Malformed("levels go beyond their page");
    there = runs(page.subarray(4, 4 + length), 1, count);
    at = 4 + length;
  }
  if (encoding === PLAIN) return;
  if (!BY_DICTIONARY.has(encoding)) throw new Malformed(`a page in encoding ${encoding}; expected plain values or a dictionary`);
  if (!there) return;
  const width = page[at];
  if (!(width <= 32)) throw new Malformed(`places in a dictionary of ${width} bits`);
  if (width) runs(page.subarray(at + 1), width, there);
}

// Walk over runs of repeated and of packed numbers; returns how many of them are odd, which of levels says how many
// values are there.
function runs(bytes, width, count) {
  const walker = new Walker(bytes, 0, bytes.length, 0);
  let [left, odd] = [count, 0];
  while (left > 0) {
    const head = walker.varint();
    if (head % 2) {
      const many = 8 * Math.floor(head / 2);
      if (many === 0 || many - left >= 8) throw new Malformed(`a run of ${many} values where ${left} are left`);
      const size = (many / 8) * width;
      // The last group may be cut off after the last value.
      const needed = Math.ceil((Math.min(many, left) * width) / 8);
      if (needed > walker.end - walker.at) throw new Malformed("a run goes beyond its page");
      if (width === 1) odd += ones(bytes, walker.at, Math.min(many, left));
      walker.at = Math.min(walker.end, walker.at + size);
      left -= many;
    } else {
      const many = head / 2;
      if (many === 0 || many > left) throw new Malformed(`a run of ${many} values where ${left} are left`);
      const at = walker.at;
      walker.skip(Math.ceil(width / 8));
      if (bytes[at] & 1) odd += many;
      left -= many;
    }
  }
  return odd;
}

function ones(bytes, at, bits) {
  let found = 0;
  for (let place = 0; place < bits; place += 1) found += (bytes[at + (place >> 3)] >> (place & 7)) & 1;
  return found;
}
