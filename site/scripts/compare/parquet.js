// One trials.parquet, opened with care: every cap holds before anything is unpacked, and only the columns that are asked
// for are read. What comes out is a table: an object of columns, in which null and NaN are null.

import { decompress } from "fzstd";
import { parquetMetadata, parquetRead, snappyUncompress } from "hyparquet";
import { many } from "../dom.js";

// A walk over Thrift's compact protocol that builds almost nothing: a few bytes of a footer can declare lists of billions of
// elements. What does not stand in the bytes is refused here, before a reader that believes declarations sees it.
// https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md

const [STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, , STRUCT] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
const LAST_FIELD = 0x7fff;

// Why a file is not read, in words for whoever gave it.
export class Refusal extends Error {}

export class Walker {
  // `most`: values that may be walked over altogether.
  constructor(bytes, at, end, most) {
    this.bytes = bytes;
    this.at = at;
    this.end = end;
    this.left = most;
  }

  byte() {
    if (this.at >= this.end) throw new Refusal("it ends in the middle of a value");
    return this.bytes[this.at++];
  }

  skip(count) {
    if (count > this.end - this.at) throw new Refusal(`a value of ${count} bytes goes beyond the end`);
    this.at += count;
  }

  // An unsigned number of at most 64 bits, as a double: what is not exact is beyond every cap.
  varint() {
    let [value, scale] = [0, 1];
    for (let count = 0; count < 10; count += 1) {
      const byte = this.byte();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 128;
    }
    throw new Refusal("a number has more than ten bytes");
  }

  zigzag() {
    const value = this.varint();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }

  // A struct as a Map from field to value: numbers and truths as they are, structs as Maps, lists as { count }, which no
  // number can be taken for. Text is passed over. `deep` says how far structs are kept. Fields ascend, as every writer has
  // them: one that came twice, or whose number a reader of 32 bits takes for another's, would hide one that was looked at.
  struct(deep = 0) {
    const found = new Map();
    for (let field = 0; ;) {
      const head = this.byte();
      const type = head & 0x0f;
      if (type === STOP) return found;
      const last = field;
      field = head >> 4 ? field + (head >> 4) : this.zigzag();
      if (!(field > last && field <= LAST_FIELD)) throw new Refusal(`a field of number ${field} after one of number ${last}`);
      const value = this.value(type, deep - 1);
      if (deep >= 0) found.set(field, value);
    }
  }

  value(type, deep) {
    if ((this.left -= 1) < 0) throw new Refusal("it holds too many values");
    switch (type) {
      case TRUE: return true;
      case FALSE: return false;
      case BYTE: return this.byte();
      case I16: case I32: case I64: return this.zigzag();
      case DOUBLE: this.skip(8); return null;
      case BINARY: { const count = this.varint(); this.skip(count); return null; }
      case LIST: case SET: return this.list();
      case STRUCT: return this.struct(deep);
      default: throw new Refusal(`there is no type ${type}`);
    }
  }

  // Each element takes a byte at least, so that no list is longer than what is left.
  list() {
    const head = this.byte();
    const [type, short] = [head & 0x0f, head >> 4];
    const count = short === 15 ? this.varint() : short;
    if (count > this.end - this.at) throw new Refusal(`a list of ${count} values goes beyond the end`);
    const each = type === TRUE || type === FALSE ? BYTE : type;
    for (let place = 0; place < count; place += 1) this.value(each, -1);
    return { count };
  }
}

// The pages of a column chunk, looked at before they are read: their size, how many values they say that they hold, and
// whether the runs in them hold no more. The reader takes each of these at its word, and a run of four bytes can claim a
// billion values. Only what feedrate writes is taken: pages of version 1, plain or by dictionary.

const [DATA, DICTIONARY] = [0, 2];
const PLAIN = 0;
const BY_DICTIONARY = new Set([2, 8]);
const WORTH = 64;
const natural = (value) => Number.isInteger(value) && value >= 0;

export function atMost(count, cap, what) {
  if (count > cap) throw new Refusal(`${many(count)} ${what}; at most ${many(cap)} are read`);
}

// Levels say which values are there, then come the values.
function checkValues(page, count, optional, encoding) {
  let [at, there] = [0, count];
  if (optional && count) {
    if (page.length < 4) throw new Refusal("a page is too short");
    const length = new DataView(page.buffer, page.byteOffset).getUint32(0, true);
    if (length > page.length - 4) throw new Refusal("levels go beyond their page");
    there = runs(page.subarray(4, 4 + length), 1, count);
    at = 4 + length;
  }
  if (encoding === PLAIN) return;
  if (!BY_DICTIONARY.has(encoding)) throw new Refusal(`a page in encoding ${encoding ?? "unknown"}; expected plain values or a dictionary`);
  if (!there) return;
  const width = page[at];
  if (!(width <= 32)) throw new Refusal(`places in a dictionary of ${width} bits`);
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
      if (many === 0 || many - left >= 8) throw new Refusal(`a run of ${many} values where ${left} are left`);
      const size = (many / 8) * width;
      // The last group may be cut off after the last value.
      const needed = Math.ceil((Math.min(many, left) * width) / 8);
      if (needed > walker.end - walker.at) throw new Refusal("a run goes beyond its page");
      if (width === 1) {
        for (let bit = 0; bit < Math.min(many, left); bit += 1) odd += (bytes[walker.at + (bit >> 3)] >> (bit & 7)) & 1;
      }
      walker.at = Math.min(walker.end, walker.at + size);
      left -= many;
    } else {
      const many = head / 2;
      if (many === 0 || many > left) throw new Refusal(`a run of ${many} values where ${left} are left`);
      const at = walker.at;
      walker.skip(Math.ceil(width / 8));
      if (bytes[at] & 1) odd += many;
      left -= many;
    }
  }
  return odd;
}

// A page's checksum is the CRC-32 of its bytes as they are stored, as gzip has it.
// https://github.com/apache/parquet-format#checksumming

const CRC = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = (value >>> 1) ^ (value & 1 ? 0xedb88320 : 0);
  return value;
});

function crc32(bytes, from, to) {
  let value = -1;
  for (let at = from; at < to; at += 1) value = (value >>> 8) ^ CRC[(value ^ bytes[at]) & 0xff];
  return ~value;
}

const MAGIC = 0x31524150;
// Longer words that a row group says are its least and most may have been cut off.
const WHOLE = 40;
const STORED = { string: "BYTE_ARRAY", int64: "INT64", float64: "DOUBLE", bool: "BOOLEAN" };
const UNPACK = {
  ZSTD: (input, size) => decompress(input, new Uint8Array(size)),
  SNAPPY: (input, size) => { const page = new Uint8Array(size); snappyUncompress(input, page); return page; },
  UNCOMPRESSED: (input) => input,
};
const COMPRESSORS = Object.fromEntries(Object.keys(UNPACK).map((codec) => [codec, (input, size) => unpacked(codec, input, size)]));

function unpacked(codec, input, size) {
  const page = UNPACK[codec](input, size);
  if (page.length !== size) throw new Refusal(`a page unpacks to ${page.length} bytes where it says ${size}`);
  return page;
}

export class TrialsFile {
  // `dtypes`: every column of the table of trials, name to type; `caps`: of share/validation/caps.py.
  constructor(buffer, dtypes, caps) {
    this.buffer = buffer;
    this.bytes = new Uint8Array(buffer);
    this.dtypes = dtypes;
    this.caps = caps;
    this.unpacked = 0;
    this.pages = 0;
    const end = this.footer();
    this.metadata = parquetMetadata(buffer);
    this.rows = Number(this.metadata.num_rows);
    this.columns = this.schema();
    this.groups = this.rowGroups(end);
  }

  // The footer, walked over before it is parsed; returns where it begins.
  footer() {
    const { bytes, caps } = this;
    const view = new DataView(this.buffer);
    if (bytes.length < 12 || view.getUint32(0, true) !== MAGIC || view.getUint32(bytes.length - 4, true) !== MAGIC) {
      throw new Refusal("it does not begin and end as a parquet file does");
    }
    const length = view.getUint32(bytes.length - 8, true);
    const start = bytes.length - 8 - length;
    if (start < 4) throw new Refusal(`its footer is said to have ${many(length)} bytes, more than the file`);
    atMost(length, caps.footer, "bytes of footer");
    const found = new Walker(bytes, start, bytes.length - 8, caps.values).struct();
    const [columns, groups, rows] = [found.get(2)?.count - 1, found.get(4)?.count, found.get(3)];
    for (const [count, cap, what] of [[columns, caps.columns, "columns"], [groups, caps.groups, "row groups"], [rows, caps.rows, "rows"]]) {
      if (!natural(count)) throw new Refusal(`it does not say how many ${what} it has`);
      atMost(count, cap, what);
    }
    return start;
  }

  // A flat table whose columns have the types that feedrate writes; others than feedrate's are never read.
  schema() {
    const [root, ...fields] = this.metadata.schema;
    if (root?.num_children !== fields.length) throw new Refusal("its columns lie within others; expected a flat table");
    const found = new Map();
    for (const { name, type, num_children, repetition_type } of fields) {
      if (num_children || repetition_type === "REPEATED") throw new Refusal("its columns lie within others; expected a flat table");
      if (found.has(name)) throw new Refusal("it has two columns of one name");
      if (Object.hasOwn(this.dtypes, name) && type !== STORED[this.dtypes[name]]) {
        throw new Refusal(`column ${name} is stored as ${type}; expected ${this.dtypes[name]}`);
      }
      found.set(name, { optional: repetition_type !== "REQUIRED", place: found.size });
    }
    return found;
  }

  rowGroups(end) {
    let from = 0;
    const found = this.metadata.row_groups.map((source) => {
      const { num_rows, columns } = source;
      const rows = Number(num_rows);
      if (!(rows >= 0) || columns.length !== this.columns.size) throw new Refusal("a row group has other columns than the file");
      const chunks = columns.map(({ meta_data: about }) => {
        const start = Number(about?.dictionary_page_offset || about?.data_page_offset);
        const stop = start + Number(about?.total_compressed_size);
        if (!(start >= 4 && stop >= start && stop <= end)) throw new Refusal("a column lies outside the file");
        if (!UNPACK[about.codec]) throw new Refusal("it is compressed in a way that feedrate never writes; expected ZSTD");
        return { start, end: stop, codec: about.codec, told: about.statistics, name: about.path_in_schema.join(".") };
      });
      if (chunks.some(({ name }, place) => this.columns.get(name)?.place !== place)) throw new Refusal("a row group has its columns in another order");
      const group = { from, rows, chunks, source };
      from += rows;
      return group;
    });
    if (from !== this.rows) throw new Refusal(`its row groups have ${many(from)} rows, the file ${many(this.rows)}`);
    return found;
  }

  // The text under a key of the file's own metadata.
  text(key) {
    return this.metadata.key_value_metadata?.find((pair) => pair.key === key)?.value;
  }

  // Read columns up to a row (of its row group the rest as well). What the file lacks is left out.
  async read(names, stop = this.rows) {
    const groups = this.groups.filter(({ from, rows }) => from < stop && rows);
    const rows = groups.reduce((sum, group) => sum + group.rows, 0);
    const there = names.filter((name) => this.columns.has(name));
    const found = Object.fromEntries(there.map((name) => [name, empty(this.dtypes[name], rows)]));
    const wanted = there.filter((name) => !this.constant(name, groups, found[name]));
    for (const name of there) this.check(name, groups);
    if (wanted.length) {
      const metadata = { ...this.metadata, row_groups: groups.map(({ source }) => source), num_rows: BigInt(rows) };
      await this.unpack(wanted, metadata, found);
    }
    return found;
  }

  // Let the reader read what has been checked. It does not pass on what goes wrong where it hands over what it has read.
  async unpack(names, metadata, found) {
    const { buffer, caps, dtypes } = this;
    const left = new Map(names.map((name) => [name, Number(metadata.num_rows)]));
    let fault = null;
    const onChunk = ({ columnName: name, columnData, rowStart }) => {
      try {
        fill(found[name], dtypes[name], columnData, rowStart, caps.text);
        left.set(name, left.get(name) - columnData.length);
      } catch (error) {
        fault ??= error;
      }
    };
    const file = { byteLength: buffer.byteLength, slice: (from, to) => buffer.slice(from, to) };
    await parquetRead({ file, metadata, columns: names, compressors: COMPRESSORS, onChunk });
    if (fault) throw fault;
    if ([...left.values()].some(Boolean)) throw new Refusal("a column has more or fewer values than rows");
  }

  // Whether every row group says of a column that it holds one value or none, whose pages are checked and not read. Of floats
  // only that there are none is taken: their least and most leave out what is no number.
  constant(name, groups, column) {
    const { place } = this.columns.get(name);
    const said = groups.map(({ chunks, rows }) => {
      const told = chunks[place].told;
      const nulls = Number(told?.null_count ?? NaN);
      if (nulls === rows) return [null];
      const { min_value: least, max_value: most } = told ?? {};
      const word = typeof least === "string" && least.length <= WHOLE;
      const plain = word || typeof least === "bigint" || typeof least === "boolean";
      return nulls === 0 && plain && least === most ? [least] : null;
    });
    if (!said.every(Boolean)) return false;
    groups.forEach(({ from, rows }, at) => {
      if (said[at][0] !== null) column.fill(typeof said[at][0] === "bigint" ? Number(said[at][0]) : said[at][0], from, from + rows);
    });
    return true;
  }

  // Look at every page of a column.
  check(name, groups) {
    const { place, optional } = this.columns.get(name);
    for (const { chunks, rows } of groups) {
      const { start, end, codec } = chunks[place];
      let [at, seen] = [start, 0];
      while (at < end) {
        const { next, count } = this.checkPage(at, end, codec, seen, rows, optional);
        [at, seen] = [next, seen + count];
      }
      if (seen !== rows) throw new Refusal(`a column has ${seen} values for ${rows} rows`);
    }
  }

  // Pages are added up over all columns, so that many small ones are capped as one large one is.
  checkPage(at, end, codec, seen, rows, optional) {
    const { bytes, caps } = this;
    const walker = new Walker(bytes, at, end, WORTH);
    const header = walker.struct(1);
    const [type, size, stored] = [1, 2, 3].map((field) => header.get(field));
    if (!natural(size) || !natural(stored) || stored > end - walker.at) throw new Refusal("a page goes beyond its column");
    if (size > caps.page) throw new Refusal(`a page unpacks to ${many(size)} bytes; at most ${many(caps.page)} are read`);
    if ((this.pages += 1) > caps.pages) throw new Refusal(`its columns have more than ${many(caps.pages)} pages`);
    if ((this.unpacked += size) > caps.unpacked) throw new Refusal(`its columns unpack to more than ${many(caps.unpacked)} bytes`);
    const about = header.get(type === DICTIONARY ? 7 : 5);
    const [count, encoding] = [1, 2].map((field) => about?.get?.(field));
    if (!natural(count) || ![DATA, DICTIONARY].includes(type)) {
      throw new Refusal(`a page of kind ${type}; expected a data page of version 1 or a dictionary`);
    }
    const next = walker.at + stored;
    const crc = header.get(4);
    if (crc !== crc32(bytes, walker.at, next)) {
      throw new Refusal(`a page ${crc === undefined ? "has no checksum" : "fails its checksum"}: it was changed after it was written`);
    }
    if (type === DICTIONARY) {
      if (count > size) throw new Refusal(`a dictionary says that it holds ${count} values in ${size} bytes`);
      return { next, count: 0 };
    }
    if (seen + count > rows) throw new Refusal(`a column has more values than its ${rows} rows`);
    checkValues(unpacked(codec, bytes.subarray(walker.at, next), size), count, optional, encoding);
    return { next, count };
  }
}

// Numbers in typed arrays, NaN where there is none; words and truths in lists, null where there is none.
const empty = (dtype, rows) => (dtype === "int64" || dtype === "float64" ? new Float64Array(rows).fill(NaN) : new Array(rows).fill(null));

function fill(column, dtype, data, from, longest) {
  const typed = column instanceof Float64Array;
  const kind = typed ? "" : dtype === "bool" ? "boolean" : "string";
  for (let at = 0; at < data.length; at += 1) {
    const value = data[at];
    if (value === undefined || value === null) continue;
    if (typeof value === "string" && value.length > longest) atMost(value.length, longest, "characters of one text");
    if (kind && typeof value !== kind) throw new Refusal("a column holds other values than its type says");
    column[from + at] = typed ? Number(value) : value;
  }
}
