"""Many broken and hostile files through the Worker of the page Compare, in one browser."""

from __future__ import annotations

import re
import shutil
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
import visits
from dropping import ready
from playwright.sync_api import Browser

from feedrate.questions.compare import page as compare_page
from feedrate.site import scripts
from feedrate.site.serve import served

pytestmark = pytest.mark.slow

FILES = 22
"""Two of each kind of damage."""
SECONDS = 10
"""Deadline of the Worker here: so many files may not each take what one may."""
MEMORY = 2 * 2**30
"""Bytes that a process of the browser may hold."""
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
    told.push([said, performance.now() - begun]);
  }
  return told;
}"""


def most_memory() -> int:
    """Bytes that a process of the browser has held at most, at any time."""
    sizes = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "chrom" in process.name():
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
                sizes += [1024 * int(size) for size in re.findall(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)]
        except (psutil.Error, OSError):
            continue
    return max(sizes)


@pytest.mark.timeout(600)
def test_broken_files_are_refused(
    sites: dict[str, Any], browser: Browser, fake_run: ModuleType, corpus: ModuleType, tmp_path: Path
) -> None:
    """Each is refused with a reason or compared: no script of theirs runs, no hang over the cap, memory bounded."""
    folder = tmp_path / "site"
    shutil.copytree(sites["main"].folder, folder, ignore=shutil.ignore_patterns("figures", "runs"))
    scripts.bundle(folder / "assets" / "scripts", ("compare/page.js", "compare/comparison.js", "compare/worker.js"))
    run: Path = fake_run.write(
        tmp_path / "results", fake_run.Fake(batches=(8, 32), workers=(0, 2), blocks=3, fails="none")
    )
    valid = (run / "trials.parquet").read_bytes()
    damaged = [("valid", valid), *islice(corpus.mutated(valid, 7), FILES)]
    assert {name.partition("/")[0] for name, _ in damaged} == {"valid", *corpus.KINDS}
    (folder / "fuzz").mkdir()
    for place, (_, content) in enumerate(damaged):
        (folder / "fuzz" / f"{place}.parquet").write_bytes(content)
    with served(folder) as address:
        seen = visits.visit(browser, visits.Site(sites["main"].results, folder, address))
        page = ready(seen.open("compare.html"))
        title = page.title()
        files = [f"{place}.parquet" for place in range(len(damaged))]
        answers = page.evaluate(READ, [files, SECONDS, f"{seen.origin}{SCRIPTS}", compare_page.INDEX])
        assert most_memory() < MEMORY
        assert page.title() == title
    outcomes = [(name, said, took) for (name, _), (said, took) in zip(damaged, answers, strict=True)]
    assert outcomes[0][1] == ""
    assert [name for name, _, took in outcomes if took > 1000 * SECONDS + 3000] == []
    assert [name for name, said, _ in outcomes if not said and name.startswith(BROKEN)] == []
    assert [said for _, said, _ in outcomes if said and not said.startswith("Refused: ")] == []
    assert [said for _, said, _ in outcomes if RAW.search(said)] == []
