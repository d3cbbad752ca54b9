"""Hundreds of broken and hostile files through the Worker of the page Compare, in one browser."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
import visits
from playwright.sync_api import Browser

from feedrate.questions.compare import page as compare_page
from feedrate.site import scripts
from feedrate.site.serve import served

pytestmark = pytest.mark.slow

LEAST = 150
EVERY = 14
"""One file in so many is tried."""
SECONDS = 10
"""Deadline of the Worker here: so many files may not each take what one may."""
MEMORY = 2 * 2**30
"""Bytes that a process of the browser may hold."""
A_BATCH = 100
BROKEN = ("truncated/", "magic/")
"""No parquet files at all. Of others the page reads some columns only, and need not see what is wrong with the rest."""
RAW = re.compile("DataView|undefined|[Cc]annot |not a function|invalid|[Tt]hrift|must be an")
"""What a parser's own errors look like: of use to nobody who reads the page."""
SCRIPTS = "assets/scripts/compare/"
READ = """async ([names, seconds, scripts, index]) => {
  const { readFile } = await import(`${scripts}page.js`);
  const { compare } = await import(`${scripts}comparison.js`);
  const { rules } = await (await fetch(index)).json();
  rules.caps.seconds = seconds;
  const told = [];
  for (const name of names) {
    const blob = await (await fetch(`fuzz/${name}`)).blob();
    const begun = performance.now();
    let said = "";
    try {
      const file = await readFile(blob, rules);
      window.valid ??= file;
      if (!(compare(window.valid, file, rules).overall.cells >= 0)) throw new TypeError("nothing was compared");
    } catch (error) {
      said = `${error.constructor === Error ? "Refused" : "Broken"}: ${error.message}`;
    }
    told.push([name, said, performance.now() - begun]);
  }
  return told;
}"""

Fuzzing = tuple[visits.Visit, Path]


@pytest.fixture(scope="module")
def valid(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small file as feedrate writes it."""
    results = tmp_path_factory.mktemp("valid")
    folder: Path = fake_run.write(results, fake_run.Fake(batches=(8, 32), workers=(0, 2), blocks=3, fails="none"))
    return (folder / "trials.parquet").read_bytes()


def written(corpus: ModuleType, valid: bytes, folder: Path) -> dict[str, str]:
    """Write the valid file as number 0 and mutated ones after it; file to what was done to it."""
    folder.mkdir()
    (folder / "0.parquet").write_bytes(valid)
    names = {"0.parquet": "valid"}
    for place, (name, content) in enumerate(corpus.mutated(valid, 7), 1):
        if place % EVERY:
            continue
        (folder / f"{place}.parquet").write_bytes(content)
        names[f"{place}.parquet"] = name
    return names


def most_memory() -> int:
    """Bytes that a process of the browser has held at most, at any time."""
    sizes = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "chrom" in process.name():
                told = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
                sizes += [1024 * int(size) for size in re.findall(r"^VmHWM:\s+(\d+) kB", told, re.MULTILINE)]
        except (psutil.Error, OSError):
            continue
    return max(sizes)


@pytest.fixture
def fuzzing(sites: dict[str, Any], browser: Browser, tmp_path: Path) -> Iterator[Fuzzing]:
    """The page on a copy of a site, into whose folder files can be put."""
    folder = tmp_path / "site"
    shutil.copytree(sites["main"].folder, folder)
    scripts.bundle(folder / "assets" / "scripts", ("compare/page.js", "compare/comparison.js", "compare/worker.js"))
    with served(folder) as address:
        seen = visits.visit(browser, visits.Site(sites["main"].results, folder, address))
        page = seen.open("compare.html")
        page.locator(".fr-compare-drop").wait_for()
        yield seen, folder


@pytest.mark.timeout(1800)
def test_hundreds_of_broken_files_are_refused(fuzzing: Fuzzing, corpus: ModuleType, valid: bytes) -> None:
    """Each is refused with a reason or compared: no script of theirs runs, no hang over the cap, memory bounded."""
    seen, folder = fuzzing
    names = written(corpus, valid, folder / "fuzz")
    assert len(names) > LEAST
    title = seen.page.title()
    found: list[tuple[str, str, float]] = []
    memory, every = 0, list(names)
    for at in range(0, len(every), A_BATCH):
        given = [every[at : at + A_BATCH], SECONDS, f"{seen.origin}{SCRIPTS}", compare_page.INDEX]
        found += [tuple(each) for each in seen.page.evaluate(READ, given)]
        memory = max(memory, most_memory())
    assert [name for name, _, _ in found] == every
    late = {names[name]: took for name, _, took in found if took > 1000 * SECONDS + 3000}
    assert late == {}
    broken = {names[name] for name, said, _ in found if not said and names[name].startswith(BROKEN)}
    assert broken == set()
    assert [said for _, said, _ in found if said and not said.startswith("Refused: ")] == []
    assert [said for _, said, _ in found if RAW.search(said)] == []
    refused = sum(bool(said) for _, said, _ in found)
    print(f"{len(found)} files: {refused} refused, {len(found) - refused} compared; memory {memory / 2**20:.0f} MiB")
    assert found[0][1] == ""
    assert memory < MEMORY
    assert seen.page.title() == title
