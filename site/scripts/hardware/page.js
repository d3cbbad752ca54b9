// The search among all machines, below Compare: a row a machine and device, in one file that is read when somebody first types.

import { make, many, picked, plural, read } from "../dom.js";

const [SHOWN, PAUSE_MS] = [100, 200];
const HINT = "Words of a processor, an accelerator, a machine’s or a run’s id: all machines are searched.";

const named = (cell) => (typeof cell === "string" ? cell : cell[0]);

function start() {
  const root = document.getElementById("fr-hardware");
  const table = /** @type {HTMLTableElement} */ (document.querySelector(".fr-machines table"));
  const heads = [...table.tHead.rows[0].cells];
  const listed = [...table.tBodies[0].rows];
  const status = make("p", { class: "fr-note", role: "status" }, HINT);
  let [timer, turn, loading] = [0, 0, null];
  const words = make("input", { type: "search", name: "find", maxlength: "200", autocomplete: "off", input: () => {
    clearTimeout(timer);
    timer = setTimeout(search, PAUSE_MS);
  } });

  // Each row beside what is searched in it.
  async function load() {
    status.textContent = "Reading …";
    const { rows } = await read(root.dataset.index);
    return rows.map((cells) => [cells.map(named).join("\n").toLowerCase(), cells]);
  }

  async function search() {
    turn += 1;
    const [mine, asked] = [turn, words.value.toLowerCase().split(/\s+/).filter(Boolean)];
    try {
      loading ??= load();
      const rows = asked.length ? (await loading).filter(([text]) => asked.every((word) => text.includes(word))) : null;
      if (mine !== turn) return;
      table.tBodies[0].replaceChildren(...(rows ? rows.slice(0, SHOWN).map(([, cells]) => line(cells)) : listed));
      status.textContent = rows ? counted(rows.length) : HINT;
    } catch (error) {
      loading = null; // the next letter tries again
      status.textContent = `Machines cannot be searched: ${error.message}. Type again in a minute.`;
    }
  }

  const line = (cells) => make("tr", { role: "row" }, cells.map((cell, at) => make("td",
    { role: "cell", class: heads[at].className, "data-label": heads[at].textContent },
    make("div", {}, typeof cell === "string" ? cell : make("a", { href: cell[1] }, cell[0])))));

  root.replaceChildren(make("form", { role: "search", "aria-label": "Machines", submit: (event) => {
    event.preventDefault();
    search();
  } }, picked("Find machines", words)), status);
}

const counted = (count) => (count > SHOWN ? `${plural(count, "row")}, of which ${many(SHOWN)} are shown: say more.`
  : count ? `${plural(count, "row")}.` : "No machine matches. Try fewer words.");

start();
