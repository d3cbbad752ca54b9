// Which files can hold the runs that are asked for, from what the index says of each.

// Files that are read as soon as something is asked for; more are read when a reader says so. Runs that are shown.
export const [AT_ONCE, SHOWN] = [3, 200];

export const newest = (rows) => rows.sort((one, other) => (one.started_at < other.started_at ? 1 : -1));

// A machine's id: words of its hardware, its number of cores, a hash (harness/feedrate/machine/identity.py).
const MACHINE = /^(.+)-(\d+)c-[0-9a-f]{8}$/;
const NO_NAME = /^(\d+x|unknown)$/;

// `exact`: pairs of a column and its value. A word that some name of hardware holds is one of hardware; any other may be of
// an id, which the index does not know: but the id of a machine begins with words of its hardware.
export function plan(files, text, exact) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const holds = (file, word) => ["gpu", "cpu"].some((name) => file[name]?.some((value) => value.toLowerCase().includes(word)));
  const known = (word) => files.some((file) => holds(file, word));
  const [hardware, others] = [words.filter(known), words.filter((word) => !known(word))];
  const ids = others.map((word) => MACHINE.exec(word)).filter(Boolean);
  const named = [...hardware, ...ids.flatMap(([, name]) => name.split("-").filter((part) => !NO_NAME.test(part) && known(part)))];
  const values = [...exact, ...ids.map(([, , cores]) => ["cores", cores])];
  const can = (file) => values.every(([name, value]) => file[name]?.includes(value) ?? true)
    && named.every((word) => !file.gpu || !file.cpu || holds(file, word));
  return { files: files.filter(can), asked: { exact, hardware, others } };
}
