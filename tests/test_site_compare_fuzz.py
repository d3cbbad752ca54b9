"""Thousands of broken and hostile files through the Worker of the page Compare, in one browser."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
import visits
from playwright.sync_api import Browser, Page

from harness.pages import compare
from harness.site_serve import served

LEAST = 2_000
SAMPLE = 70
SECONDS = 10
"""Deadline of the Worker here: so many files may not each take what one may."""
MEMORY = 2 * 2**30
"""Bytes that a process of the browser may hold."""
A_BATCH = 100
BROKEN = ("truncated/", "magic/")
"""No parquet files at all. Of others the page reads some columns only, and need not see what is wrong with the rest."""
READ = """async ([names, seconds, script, index]) => {
  const { Reader } = await import(script);
  const given = (await (await fetch(index)).json()).reader;
  given.caps.seconds = seconds;
  window.fuzzed ??= new Reader(given);
  const found = [];
  for (const name of names) {
    const blob = await (await fetch(`fuzz/${name}`)).blob();
    const begun = performance.now();
    let said = "";
    try {
      await window.fuzzed.open(name, { blob });
      if (name === "0.parquet") { found.push([name, said, performance.now() - begun]); continue; }
      await window.fuzzed.compare("0.parquet", name);
      await window.fuzzed.explain("0.parquet", name);
      window.fuzzed.close(name);
    } catch (error) {
      said = `${error.constructor.name}: ${error.message}`;
      window.fuzzed.close(name);
    }
    found.push([name, said, performance.now() - begun]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def valid(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small file as feedrate writes it."""
    results = tmp_path_factory.mktemp("valid")
    folder: Path = fake_run.write(results, fake_run.Fake(batches=(8, 32), workers=(0, 2), blocks=3, fails="none"))
    return (folder / "trials.parquet").read_bytes()


def written(corpus: ModuleType, valid: bytes, folder: Path, most: int | None = None) -> dict[str, str]:
    """Write the valid file as number 0 and mutated ones after it, so many at most; file to what was done to it."""
    folder.mkdir()
    (folder / "0.parquet").write_bytes(valid)
    names = {"0.parquet": "valid"}
    for place, (name, content) in enumerate(itertools.islice(corpus.mutated(valid, 7), most), 1):
        (folder / f"{place}.parquet").write_bytes(content)
        names[f"{place}.parquet"] = name
    return names


def most_memory() -> int:
    """Bytes that the largest process below this one holds."""
    sizes = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "chrom" in process.name():
                sizes.append(process.memory_info().rss)
        except psutil.Error:
            continue
    return max(sizes, default=0)


def read(page: Page, names: list[str], address: str) -> list[tuple[str, str, float]]:
    """Open and compare files in the page: name, refusal, milliseconds."""
    given = [names, SECONDS, f"{address}assets/compare_reader.js", compare.INDEX]
    return [tuple(each) for each in page.evaluate(READ, given)]


@pytest.fixture
def fuzzing(sites: dict[str, Any], browser: Browser, tmp_path: Path) -> Iterator[tuple[visits.Visit, Path]]:
    """The page on a copy of a site, into whose folder files can be put."""
    folder = tmp_path / "site"
    shutil.copytree(sites["main"].folder, folder)
    with served(folder) as address:
        seen = visits.visit(browser, visits.Site(sites["main"].results, folder, address))
        page = seen.open("compare.html")
        page.locator(".fr-compare-drop").wait_for()
        yield seen, folder


def tried(seen: visits.Visit, names: dict[str, str]) -> tuple[list[tuple[str, str, float]], int]:
    """Read all files, a batch at a time: what became of each, and the most memory that was seen."""
    found, memory, every = [], 0, list(names)
    for at in range(0, len(every), A_BATCH):
        found += read(seen.page, every[at : at + A_BATCH], seen.origin)
        memory = max(memory, most_memory())
    return found, memory


def judge(seen: visits.Visit, corpus: ModuleType, names: dict[str, str], title: str) -> None:
    """Read files and hold what became of them against what must."""
    found, memory = tried(seen, names)
    assert [name for name, _, _ in found] == list(names)
    late = {names[name]: took for name, _, took in found if took > 1000 * SECONDS + 3000}
    assert late == {}
    broken = {names[name] for name, said, _ in found if not said and names[name].startswith(BROKEN)}
    assert broken == set()
    assert all(said == "" or said.startswith("Refused: ") for _, said, _ in found)
    refused = sum(bool(said) for _, said, _ in found)
    slow = sorted(found, key=lambda each: each[2])[-3:]
    print(
        f"{len(found)} files: {refused} refused, {len(found) - refused} compared; slowest "
        f"{[(names[name], round(took)) for name, _, took in slow]}; most memory {memory / 2**20:.0f} MiB"
    )
    assert found[0][1] == ""
    assert memory < MEMORY
    assert seen.page.title() == title


def test_a_sample_of_broken_files_is_refused(
    fuzzing: tuple[visits.Visit, Path], corpus: ModuleType, valid: bytes
) -> None:
    """The first files of every kind are refused with a reason or compared; no script of theirs runs."""
    seen, folder = fuzzing
    judge(seen, corpus, written(corpus, valid, folder / "fuzz", SAMPLE), seen.page.title())
    assert [problem for problem in seen.problems if "fuzz" not in problem] == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_thousands_of_broken_files_are_refused(
    fuzzing: tuple[visits.Visit, Path], corpus: ModuleType, valid: bytes
) -> None:
    """All of the corpus, likewise: no hang over the cap, memory bounded."""
    seen, folder = fuzzing
    names = written(corpus, valid, folder / "fuzz")
    assert len(names) > LEAST
    judge(seen, corpus, names, seen.page.title())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_hostile_words_are_shown_as_words(
    fuzzing: tuple[visits.Visit, Path], corpus: ModuleType, valid: bytes, tmp_path: Path
) -> None:
    """Files whose strings are scripts, markup, formulas and control characters, one by one: words, or refused."""
    seen, _ = fuzzing
    page, title = seen.page, seen.page.title()
    count = 0
    for name, content in corpus.mutated(valid, 7):
        if not name.startswith("texts/"):
            continue
        path = tmp_path / "hostile.parquet"
        path.write_bytes(content)
        count += 1
        page.locator("#fr-compare-input").set_input_files(path)
        page.locator(".fr-compare-status", has_text="Reading").wait_for(state="detached")
        if count % 10 == 0:
            assert page.title() == title
            assert page.locator(".fr-compare script, .fr-compare img, .fr-compare iframe, .fr-compare b").count() == 0
    assert count > 20
    assert seen.problems == []
