// One trials.parquet, opened with care: every cap holds before anything is unpacked, and only the columns that are asked
// for are read. What comes out is a table: an object of columns, in which null and NaN are null.

import { Budget, OverCap, checkPages } from "./compare_pages.js";
import { Malformed, Walker } from "./compare_thrift.js";
import { decompress } from "./vendor/fzstd/index.js";
import { parquetMetadata, parquetRead, snappyUncompress } from "./vendor/hyparquet/index.js";

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
const many = (count) => count.toLocaleString("en");
// A whole number of the reader's as a number; NaN what is none, so that a list of one is not taken for it.
const whole = (value) => (typeof value === "bigint" || Number.isInteger(value) ? Number(value) : NaN);

function unpacked(codec, input, size) {
  const page = UNPACK[codec](input, size);
  if (page.length !== size) throw new Malformed(`a page unpacks to ${page.length} bytes where it says ${size}`);
  return page;
}

function atMost(count, cap, what) {
  if (count > cap) throw new OverCap(`${many(count)} ${what}; at most ${many(cap)} are read`);
}

export class TrialsFile {
  // `dtypes`: every column of the table of trials, name to type; `caps`: of harness/incoming/caps.py.
  constructor(buffer, dtypes, caps) {
    Object.assign(this, { buffer, bytes: new Uint8Array(buffer), dtypes, caps, budget: new Budget(caps) });
    const end = this.footer();
    this.metadata = parquetMetadata(buffer);
    const { schema, row_groups: groups, num_rows: rows } = this.metadata;
    this.rows = whole(rows);
    this.within(schema?.length - 1, groups?.length, this.rows);
    this.columns = this.schema();
    this.groups = this.rowGroups(end);
  }

  // The footer, walked over before it is parsed; returns where it begins.
  footer() {
    const { bytes, caps } = this;
    atMost(bytes.length, caps.bytes, "bytes");
    const view = new DataView(this.buffer);
    if (bytes.length < 12 || view.getUint32(0, true) !== MAGIC || view.getUint32(bytes.length - 4, true) !== MAGIC) {
      throw new Malformed("it does not begin and end as a parquet file does");
    }
    const length = view.getUint32(bytes.length - 8, true);
    const start = bytes.length - 8 - length;
    if (start < 4) throw new Malformed(`its footer is said to have ${many(length)} bytes, more than the file`);
    atMost(length, caps.footer, "bytes of footer");
    const found = new Walker(bytes, start, bytes.length - 8, caps.values).struct();
    this.within(found.get(2)?.count - 1, found.get(4)?.count, found.get(3));
    return start;
  }

  // What the footer declares, by the walk and again by the reader, which need not understand the same bytes alike.
  within(columns, groups, rows) {
    const { caps } = this;
    for (const [count, cap, what] of [[columns, caps.columns, "columns"], [groups, caps.groups, "row groups"], [rows, caps.rows, "rows"]]) {
      if (!Number.isInteger(count) || count < 0) throw new Malformed(`it does not say how many ${what} it has`);
      atMost(count, cap, what);
    }
  }

  // A flat table whose columns have the types that feedrate writes; others than feedrate's are never read.
  schema() {
    const [root, ...fields] = this.metadata.schema;
    if (root?.num_children !== fields.length) throw new Malformed("its columns lie within others; expected a flat table");
    const found = new Map();
    for (const { name, type, num_children, repetition_type } of fields) {
      if (num_children || repetition_type === "REPEATED") throw new Malformed("its columns lie within others; expected a flat table");
      if (found.has(name)) throw new Malformed("it has two columns of one name");
      if (Object.hasOwn(this.dtypes, name) && type !== STORED[this.dtypes[name]]) {
        throw new Malformed(`column ${name} is stored as ${type}; expected ${this.dtypes[name]}`);
      }
      found.set(name, { optional: repetition_type !== "REQUIRED", place: found.size });
    }
    return found;
  }

  rowGroups(end) {
    let from = 0;
    const found = this.metadata.row_groups.map((source) => {
      const { num_rows, columns } = source;
      const rows = whole(num_rows);
      if (!(rows >= 0) || columns.length !== this.columns.size) throw new Malformed("a row group has other columns than the file");
      const chunks = columns.map(({ meta_data: about }) => {
        const start = Number(about?.dictionary_page_offset || about?.data_page_offset);
        const stop = start + Number(about?.total_compressed_size);
        if (!(start >= 4 && stop >= start && stop <= end)) throw new Malformed("a column lies outside the file");
        if (!UNPACK[about.codec]) throw new Malformed("it is compressed in a way that feedrate never writes; expected ZSTD");
        return { start, end: stop, codec: about.codec, told: about.statistics, name: about.path_in_schema.join(".") };
      });
      if (chunks.some(({ name }, place) => this.columns.get(name)?.place !== place)) throw new Malformed("a row group has its columns in another order");
      const group = { from, rows, chunks, source };
      from += rows;
      return group;
    });
    if (from !== this.rows) throw new Malformed(`its row groups have ${many(from)} rows, the file ${many(this.rows)}`);
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
    for (const name of wanted) this.check(name, groups);
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
    if ([...left.values()].some(Boolean)) throw new Malformed("a column has more or fewer values than rows");
  }

  // Whether every row group says of a column that it holds one value or none, which then need not be unpacked. Of floating
  // numbers only that there are none is taken: what a group says of their least and most leaves out what is no number.
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

  check(name, groups) {
    const { place, optional } = this.columns.get(name);
    for (const { chunks, rows } of groups) {
      const { start, end, codec } = chunks[place];
      checkPages(this.bytes, { start, end, rows, optional }, this.caps, this.budget, (input, size) => unpacked(codec, input, size));
    }
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
    if (kind && typeof value !== kind) throw new Malformed("a column holds other values than its type says");
    column[from + at] = typed ? Number(value) : value;
  }
}
