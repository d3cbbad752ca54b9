"""The README says what the records say."""

from __future__ import annotations

import re

from harness import readme
from harness.registry import ROOT
from harness.store import benches, runs
from harness.store_beside import standing


def test_every_number_comes_from_the_run_it_names() -> None:
    """Table, caption and findings are recomputed from what they name and must be the same to the letter.

    From nothing else: whoever sweeps has a run more under results/ than the README knows.
    """
    shown = readme.shown()
    named = re.search(r"run `([^`]+)`", shown)
    assert named, "README.md names no run"
    sources = set(re.findall(r"`([^`]+)`", shown))
    every = [run for run in standing(runs(ROOT / "results")) if run.manifest.run_id in sources]
    (run,) = [run for run in every if run.manifest.run_id == named[1]]
    records = [bench for bench in benches(ROOT / "results") if bench.name in sources]
    assert shown == readme.block(run, every, records)


def test_the_figure_is_drawn() -> None:
    """The opening figure is an SVG that stands in the repository."""
    assert readme.FIGURE.read_text(encoding="utf-8").startswith("<svg")


def test_named_targets_exist() -> None:
    """Every `make` command of README and CONTRIBUTING is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text()
        named = set(re.findall(r"^make ([a-z0-9-]+)|`make ([a-z0-9-]+)", text, re.MULTILINE))
        assert {a or b for a, b in named} <= targets, name


def test_results_stay_small() -> None:
    """What is committed under results/ is at most 30 MB, no file more than 5 MB."""
    sizes = [path.stat().st_size for path in (ROOT / "results").rglob("*") if path.is_file()]
    assert sum(sizes) <= 30e6
    assert max(sizes) <= 5e6
