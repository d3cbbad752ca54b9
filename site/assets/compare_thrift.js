// A walk over Thrift's compact protocol that builds almost nothing: parquet's footer and page headers are written in it,
// and a few bytes of it can declare lists of billions of elements. What does not stand in the bytes is refused here,
// before a reader that believes declarations sees it.
// https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md

const [STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, , STRUCT] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
const DEEPEST = 12;
const LAST_FIELD = 0x7fff;

export class Malformed extends Error {}

export class Walker {
  // `most`: values that may be walked over altogether.
  constructor(bytes, at, end, most) {
    Object.assign(this, { bytes, at, end, left: most });
  }

  byte() {
    if (this.at >= this.end) throw new Malformed("it ends in the middle of a value");
    return this.bytes[this.at++];
  }

  skip(count) {
    if (count > this.end - this.at) throw new Malformed(`a value of ${count} bytes goes beyond the end`);
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
    throw new Malformed("a number has more than ten bytes");
  }

  zigzag() {
    const value = this.varint();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  }

  // A struct as a Map from field to value: numbers and truths as they are, structs as Maps, lists as { count }, which no
  // number can be taken for. Text is passed over. `deep` says how far structs are kept; below it they are walked over only.
  // Fields ascend, as every writer has them: one that came twice, or whose number a reader of 32 bits takes for another's,
  // would put a value in the place of one that was looked at.
  struct(deep = 0, depth = 0) {
    if (depth > DEEPEST) throw new Malformed(`values lie within values more than ${DEEPEST} deep`);
    const found = new Map();
    for (let field = 0; ;) {
      const head = this.byte();
      const type = head & 0x0f;
      if (type === STOP) return found;
      const last = field;
      field = head >> 4 ? field + (head >> 4) : this.zigzag();
      if (!(field > last && field <= LAST_FIELD)) throw new Malformed(`a field of number ${field} after one of number ${last}`);
      const value = this.value(type, deep - 1, depth + 1);
      if (deep >= 0) found.set(field, value);
    }
  }

  value(type, deep, depth) {
    if ((this.left -= 1) < 0) throw new Malformed("it holds too many values");
    switch (type) {
      case TRUE: return true;
      case FALSE: return false;
      case BYTE: return this.byte();
      case I16: case I32: case I64: return this.zigzag();
      case DOUBLE: this.skip(8); return null;
      case BINARY: { const count = this.varint(); this.skip(count); return null; }
      case LIST: case SET: return this.list(depth);
      case STRUCT: return this.struct(deep, depth);
      default: throw new Malformed(`there is no type ${type}`);
    }
  }

  // Each element takes a byte at least, so that no list is longer than what is left.
  list(depth) {
    if (depth > DEEPEST) throw new Malformed(`values lie within values more than ${DEEPEST} deep`);
    const head = this.byte();
    const [type, short] = [head & 0x0f, head >> 4];
    const count = short === 15 ? this.varint() : short;
    if (count > this.end - this.at) throw new Malformed(`a list of ${count} values goes beyond the end`);
    const each = type === TRUE || type === FALSE ? BYTE : type;
    for (let place = 0; place < count; place += 1) this.value(each, -1, depth + 1);
    return { count };
  }
}
