"""What the scripts of the page Compare say of two runs, one at a time: nothing is cut off or made up in silence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, Page

from feedrate.pages.runs import load_runs
from feedrate.pages.selection import select
from feedrate.pages.verdicts import load_verdicts
from feedrate.questions.compare import page as compare_page
from feedrate.questions.compare import terminal as compare_terminal
from feedrate.questions.compare.comparison import Comparison, Side
from feedrate.schema.columns import PROTOCOL_VERSION, SCHEMA_VERSION, TRIALS
from feedrate.schema.errors import InputError
from feedrate.site import scripts
from feedrate.site.serve import served
from feedrate.store import marks
from feedrate.store.manifest import read_manifest
from feedrate.store.tables import MANIFEST_KEY

REASONS = 80
CALL = """async ([module, name, given]) => (await import(`/compare/${module}.js`))[name](...given)"""
ABOUT = """async ([text, index]) => {
  const { Run } = await import("/compare/run.js");
  try {
    return [new Run(null, index).said({ rows: 1, text: () => text }), ""];
  } catch (error) {
    return [null, error.message];
  }
}"""
TEXT = """async ([name, given]) => {
  const made = (await import("/compare/views.js"))[name](...given);
  return made.map((part) => part.textContent).join(" ");
}"""


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of a folder in which the scripts and what they import lie."""
    folder = tmp_path_factory.mktemp("scripts")
    scripts.bundle(folder, ("compare/run.js", "compare/views.js", "compare/worker.js", "compare/sides.js"))
    with served(folder) as address:
        opened = browser.new_page()
        opened.goto(address)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def manifest(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run of the newest schema says of itself."""
    folder: Path = fake_run.write(tmp_path_factory.mktemp("said"), fake_run.Fake(blocks=1, batches=(8,)))
    found: dict[str, Any] = json.loads(pq.read_schema(folder / "trials.parquet").metadata[MANIFEST_KEY])
    return found


def about(page: Page, manifest: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """What the Worker takes from a manifest, or why it refuses that."""
    said, refusal = page.evaluate(ABOUT, [json.dumps(manifest), compare_page.reader()])
    return said, refusal


def call(page: Page, module: str, name: str, *given: Any) -> Any:
    """What a function of a script gives."""
    return page.evaluate(CALL, [module, name, list(given)])


def text(page: Page, name: str, *given: Any) -> str:
    """What a part of the page says."""
    return str(page.evaluate(TEXT, [name, list(given)]))


def test_what_is_left_out_is_counted_as_a_whole(page: Page) -> None:
    """However many reasons there are, all cells are counted, and reasons that are not written out are too."""
    cells = [{"device": "cpu", "axes": {"mode": "load"}, "reason": f"different: {at}"} for at in range(REASONS)]
    unmatched = {"cells": [], "unmatched": [*cells, cells[0]], "overall": {}, "kinds": []}
    found = call(page, "worker", "summarizeComparison", unmatched, compare_page.reader())
    said = text(page, "leftOut", found)
    assert f"{REASONS + 1} cells of either run cannot be held" in said
    assert f"and {REASONS - compare_page.SHOWN['reasons']} more reasons" in said


def test_tasks_that_are_not_written_out_are_counted(page: Page) -> None:
    """More best settings than the page lists are counted, each with its interval, its blocks and its rivals.

    A stage of one cell names its blocks, one of several its cells and the range of their ratios.
    """
    cell = {"cell_id": "a", "axes": {"mode": "load"}, "samples_per_s": 100.0, "lo": 90.0, "hi": 110.0, "n": 8}
    task = {"a": cell, "b": cell | {"cell_id": "b"}, "ratio": 1.0, "lo": 0.9, "hi": 1.1, "a_on_b": 0.87, "b_on_a": None}
    most = compare_page.SHOWN["listed"]
    best = [task | {"candidates_a": 12, "candidates_b": 9}] * (most + 3)
    explained = {"stages": [], "held": [], "best": best}
    found = call(page, "worker", "summarizeExplanation", explained, compare_page.reader())
    said = text(page, "settings", found, {"kinds": {}})
    assert "and 3 more tasks" in said
    for wanted in ("100 (90 – 110)", "8 and 8", "(of 12 settings)", "A’s on B: 87 %"):
        assert wanted in said, wanted
    assert "B’s on A" not in said
    stage = {"stage": "read", "a": 1.0, "b": 2.0, "ratio": 2.0, "lo": 1.9, "hi": 2.1}
    one = stage | {"cells": 1, "n_a": 8, "n_b": 5, "least": 2.0, "most": 2.0}
    several = stage | {"cells": 3, "least": 1.25, "most": 2.75}
    said = text(page, "why", {"stages": [one, several], "held": []}, {"stages": {}})
    for wanted in ("8 and 5 blocks of one cell", "3 cells", "1.25 – 2.75"):
        assert wanted in said, wanted


@pytest.mark.parametrize("cells", [1, 2])
def test_the_choice_of_cells_is_spoken_of_where_there_is_one(page: Page, cells: int) -> None:
    """One cell has no interval over cells, and none is explained; an emulated step is, where there is one."""
    tally = {"faster": cells, "slower": 0, "same": 0, "open": 0}
    over = {"ratio": 1.5, "lo": 1.2, "hi": 1.9, "cells": cells, **tally}
    found = {"count": cells, "overall": over, "kinds": [{"kind": "train", **over}], "repeated": {}}
    given = {"words": {"kinds": {}}, "tones": compare_page._tones()}
    assert ("choice of cells" in text(page, "whole", found, given, False)) == (cells > 1)
    assert "emulated" not in text(page, "whole", found, given, False)
    found["kinds"].append({"kind": "emulated", **over})
    assert "where it is the bottleneck the ratio is one" in text(page, "whole", found, given, False)


def test_claims_are_compared_between_the_runs_that_were_judged(page: Page) -> None:
    """A verdict is held against another only where both runs are among those that are pooled."""
    verdicts = {
        "x": {"one": "confirmed", "two": "refuted"},
        "y": {"one": "refuted", "two": "refuted", "three": "refuted"},
    }
    known = {"says": {"one": "One is so", "two": "Two is so", "three": "Three is so"}, "verdicts": verdicts}
    v, x, y, z = ({"published": {"run": name}} for name in "vxyz")
    said = text(page, "claims", x, y, known)
    assert (
        "Of 2 claims that this site judges by these runs and the others of their machines, 1 have the same verdict"
        in said
    )
    assert "One is so" in said
    assert "Two is so" not in said
    said = text(page, "claims", x, z, known)
    assert "of which B is none" in said
    assert "same verdict" not in said
    assert "of which A and B are none" in text(page, "claims", v, z, known)
    assert "feedrate compare" in text(page, "claims", x, {}, known)


def test_verdicts_are_told_by_run(fake_run: ModuleType, tmp_path: Path) -> None:
    """Two runs of one machine are pooled: the index has the same verdicts under the id of either."""
    for run_id in ("20260102T030405Z-old", "20260103T030405Z-new"):
        fake_run.write(tmp_path, fake_run.Fake(run_id=run_id, workers=(0, 1, 2)))
    everyone = select(load_runs(tmp_path))
    files = compare_page.page(everyone, load_verdicts(everyone.of_claims())).files
    found = json.loads(str(files[compare_page.INDEX]))
    assert len(found["published"]) == 2
    of_old, of_new = (
        found["claims"]["verdicts"][run_id] for run_id in ("20260102T030405Z-old", "20260103T030405Z-new")
    )
    assert of_old == of_new
    assert of_old


def test_every_version_that_python_compares_is_compared(page: Page, manifest: dict[str, Any]) -> None:
    """What ran on both machines in different versions or settings: the page lists what the terminal lists."""
    other = json.loads(json.dumps(manifest))
    other["software"] = {name: f"{value}.other" for name, value in other["software"].items()}
    more = {"cudnn": 91000, "power_limit_w": 300.0, "pcie_width": 16, "driver": "580.1", "persistent": True}
    other["runtime"] |= more
    assert "pcie_width" not in manifest["runtime"]
    none = pd.DataFrame(columns=[column.name for column in TRIALS])
    manifests = (read_manifest(json.dumps(one), "x") for one in (manifest, other))
    sides = [Side(one, lambda _: none, marks.Beside()) for one in manifests]
    found: Any = SimpleNamespace(changed=None)
    lines = compare_terminal.facts(Comparison(*sides, found, none, {}, ())).lines
    (line,) = [line for line in lines if line.startswith("Versions differ too")]
    names = [part.split(" ")[0] for part in line.split(": ", 1)[1].split("; ")]
    assert {"cudnn", "power_limit_w", "pcie_width", "torch"} <= set(names)
    held = [{"about": about(page, one)[0]} for one in (manifest, other)]
    listed = page.evaluate(
        """async ([a, b, asked]) => {
          const { facts } = await import("/compare/views.js");
          return [...facts(a, b, asked)[1].querySelectorAll("td:first-child")].map((cell) => cell.textContent);
        }""",
        [*held, compare_page.reader()["facts"]],
    )
    assert set(names) <= set(listed)


VERSIONS: list[dict[str, Any]] = [
    {},
    *({"schema_version": version} for version in (None, True, 0, "2", 10_000, SCHEMA_VERSION + 1)),
    {"schema_version": SCHEMA_VERSION - 1, "feedrate_version": "<b>9</b>"},
    {"schema_version": "<b>1</b>"},
    *({"protocol_version": version} for version in (None, PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1)),
]


@pytest.mark.parametrize("change", VERSIONS)
def test_versions_are_read_by_the_rules_of_the_package(
    change: dict[str, Any], page: Page, manifest: dict[str, Any]
) -> None:
    """A file is refused for its version where the package refuses it, and only there; None is missing."""
    whole = manifest | change
    stored = {name: value for name, value in whole.items() if name not in change or value is not None}
    try:
        read_manifest(json.dumps(stored), "x")
        refused = False
    except InputError:
        refused = True
    said, refusal = about(page, stored)
    assert (said is None) == refused, refusal
    assert (refusal == "") == (not refused)
    assert "<b>" not in refusal


def test_a_file_without_a_hash_is_not_in_the_address(page: Page) -> None:
    """Where the browser cannot hash, the address names no file: a number of this page would be another's elsewhere."""
    call(page, "sides", "write", {"a": "run:x", "b": "file:1"})
    found = page.evaluate("location.hash")
    assert "run" in found
    assert "file" not in found


SIDES = """async (published) => {
  const { Sides } = await import("/compare/sides.js");
  const sides = new Sides(published, { chosen() {}, files() {}, turned() {} });
  const offered = () => [...sides.selects.a.querySelectorAll("optgroup option")].map((option) => option.value);
  const pick = sides.tiers.querySelector("select");
  const choose = (tier) => { pick.value = tier; pick.dispatchEvent(new Event("change")); return offered(); };
  return [sides.tiers.hidden, choose("reference"), choose("self-reported"), choose("")];
}"""
TOLD = """async (held) => {
  const { Sides } = await import("/compare/sides.js");
  const sides = new Sides([], { chosen() {}, files() {}, turned() {} });
  sides.tell("a", held);
  return sides.about.a.textContent;
}"""


def test_published_runs_can_be_chosen_by_tier(page: Page) -> None:
    """Runs of one tier can be offered alone where there are several tiers; where there is one, nothing is to choose."""
    runs = [
        {"key": f"run:{at}", "run": str(at), "name": "m", "device": "cpu", "tier": "self-reported"} for at in range(2)
    ]
    runs.append(runs[0] | {"key": "run:2", "run": "2", "tier": "reference"})
    every = ["run:0", "run:1", "run:2"]
    assert page.evaluate(SIDES, runs) == [False, every[2:], every[:2], every]
    assert page.evaluate(SIDES, runs[:2])[0] is True


def test_a_side_says_who_vouches_for_it(page: Page, manifest: dict[str, Any]) -> None:
    """A published run shows its tier and label, a file that it has none; hardware threads are not called cores."""
    said, _ = about(page, manifest)
    held = {"about": said, "name": "mine.parquet", "cells": 3, "bytes": 1000, "sha256": ""}
    told = page.evaluate(TOLD, held)
    assert "of no tier" in told
    assert "only a page that came over https" in told
    assert f"{manifest['machine']['cores_logical']} hardware thread" in told
    given = held | {"published": {"page": "runs/x.html", "tier": "reference", "label": "the lab’s"}}
    told = page.evaluate(TOLD, given)
    assert "reference" in told
    assert "“the lab’s”" in told
    assert "of no tier" not in told
