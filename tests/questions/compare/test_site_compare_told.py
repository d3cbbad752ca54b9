"""What the scripts of the page Compare say of two runs, one at a time: nothing is cut off or made up in silence."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page

from feedrate.pages.runs import load_runs
from feedrate.pages.selection import select
from feedrate.pages.verdicts import load_verdicts
from feedrate.questions.compare import page as compare_page
from feedrate.questions.compare import terminal as compare_terminal
from feedrate.questions.compare.comparison import Comparison, Side
from feedrate.questions.explore.run_files import path_of, run_file
from feedrate.schema.columns import PROTOCOL_VERSION, SCHEMA_VERSION, TRIALS
from feedrate.schema.errors import InputError
from feedrate.store import marks
from feedrate.store.manifest import read_manifest
from feedrate.store.tables import MANIFEST_KEY

ABOUT = """async ([text, rules]) => {
  const { manifestOf, told } = await import("/compare/worker.js");
  try {
    return [told(manifestOf({ key_value_metadata: [{ key: "feedrate", value: text }] }, rules), rules), ""];
  } catch (error) {
    return [null, error.message];
  }
}"""
TEXT = """async ([name, given]) => {
  const made = (await import("/compare/views.js"))[name](...given);
  return made.map((part) => part.textContent).join(" ");
}"""

NUMBERS = "async (given) => (await import('/compare/views.js')).numbers(...given)"


@pytest.fixture(scope="module")
def manifest(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run of the newest schema says of itself."""
    folder: Path = fake_run.write(tmp_path_factory.mktemp("said"), fake_run.Fake(blocks=1, batches=(8,)))
    found: dict[str, Any] = json.loads(pq.read_schema(folder / "trials.parquet").metadata[MANIFEST_KEY])
    return found


def about(scripts: Page, manifest: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """What the Worker takes from a manifest, or why it refuses that."""
    said, refusal = scripts.evaluate(ABOUT, [json.dumps(manifest), compare_page.rules()])
    return said, refusal


def text(scripts: Page, name: str, *given: Any) -> str:
    """What a part of the page says."""
    return str(scripts.evaluate(TEXT, [name, list(given)]))


@pytest.mark.slow
@pytest.mark.parametrize("width", [250, 330, 700])
@pytest.mark.parametrize("ends", [(0.95, 1.1), (1.0, 1.1), (0.98, 1.08), (0.55, 1.3), (0.2, 1.0), (0.001, 1000.0)])
def test_an_axis_carries_numbers_that_do_not_touch(scripts: Page, ends: tuple[float, float], width: int) -> None:
    """However narrow or wide a range is, 1 and another number stand on its axis, each with room for its digits."""
    values = scripts.evaluate(NUMBERS, [*ends, width])
    assert {1}.issubset(values)
    assert len(values) >= 2
    places = [width * math.log(value / ends[0]) / math.log(ends[1] / ends[0]) for value in values]
    digits = [7 * len(f"{value:g}×") for value in values]
    for (at, wide), (after, wide_after) in pairwise(zip(places, digits, strict=True)):
        assert after - at > (wide + wide_after) / 2


def test_what_is_left_out_is_counted_as_a_whole(scripts: Page) -> None:
    """However many settings have a reason, all are counted; of very many the first are written out."""
    rows = [{"mode": "load", "batch_size": at, "reason": "only in A"} for at in range(300)]
    said = text(scripts, "leftOut", [*rows, {"mode": "load", "reason": "only in B"}], compare_page.rules())
    assert "300 settings: only in A" in said
    assert "and 100 more" in said
    assert "1 setting: only in B" in said


def test_claims_are_compared_between_the_runs_that_were_judged(scripts: Page) -> None:
    """A verdict is held against another only where both runs are published and were judged."""
    verdicts = {
        "x": {"one": "confirmed", "two": "refuted"},
        "y": {"one": "refuted", "two": "refuted", "three": "refuted"},
    }
    known = {"says": {"one": "One is so", "two": "Two is so", "three": "Three is so"}, "verdicts": verdicts}
    x, y, z = ({"about": {"run": name, "page": "run.html"}} for name in "xyz")
    file = {"about": {"run": "x"}}
    said = text(scripts, "claims", x, y, known)
    assert "Both tested 2 claims, 1 with the same verdict" in said
    assert "One is so" in said
    assert "Two is so" not in said
    for other, words in ((z, "No claim has a verdict that rests on both runs."), (file, "feedrate compare A B")):
        said = text(scripts, "claims", x, other, known)
        assert "Both tested" not in said
        assert words in said


@pytest.mark.slow
def test_verdicts_are_told_by_run(fake_run: ModuleType, tmp_path: Path) -> None:
    """Two runs of one machine are pooled: the index has the same verdicts under the id of either."""
    for run_id in ("20260102T030405Z-old", "20260103T030405Z-new"):
        fake_run.write(tmp_path, fake_run.Fake(run_id=run_id, workers=(0, 1, 2)))
    everyone = select(load_runs(tmp_path))
    texts = {path_of(view): run_file(view) for view in everyone.every}
    files = compare_page.page(everyone, load_verdicts(everyone.of_claims()), texts).files
    found = json.loads(str(files[compare_page.INDEX]))
    assert len(found["published"]) == 2
    of_old, of_new = (
        found["claims"]["verdicts"][run_id] for run_id in ("20260102T030405Z-old", "20260103T030405Z-new")
    )
    assert of_old == of_new
    assert of_old


def test_every_version_that_python_compares_is_compared(scripts: Page, manifest: dict[str, Any]) -> None:
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
    listed = scripts.evaluate(
        """async (sides) => {
          const { facts } = await import("/compare/views.js");
          const [told] = facts(...sides);
          return [...told.querySelector("table").querySelectorAll("td:first-child")].map((cell) => cell.textContent);
        }""",
        [about(scripts, one)[0] for one in (manifest, other)],
    )
    assert set(names) <= set(listed)


VERSIONS: list[dict[str, Any]] = [
    {},
    *({"schema_version": version} for version in (None, True, 0, "2", 10_000, SCHEMA_VERSION + 1)),
    {"schema_version": SCHEMA_VERSION - 1, "feedrate_version": "<b>9</b>"},
    {"schema_version": "<b>1</b>"},
    *({"protocol_version": version} for version in (None, PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1)),
]


@pytest.mark.slow
@pytest.mark.parametrize("change", VERSIONS)
def test_versions_are_read_by_the_rules_of_the_package(
    change: dict[str, Any], scripts: Page, manifest: dict[str, Any]
) -> None:
    """A file is refused for its version where the package refuses it, and only there; None is missing."""
    whole = manifest | change
    stored = {name: value for name, value in whole.items() if name not in change or value is not None}
    try:
        read_manifest(json.dumps(stored), "x")
        refused = False
    except InputError:
        refused = True
    said, refusal = about(scripts, stored)
    assert (said is None) == refused, refusal
    assert (refusal == "") == (not refused)
    assert "<b>" not in refusal
