"""Every number of the Claims page, computed anew from the runs' files by a script that knows nothing of feedrate."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from feedrate.pages.runs import RunView
from feedrate.pages.verdicts import Verdicts, load_verdicts
from feedrate.questions.claims.numbers import RECOMPUTE, numbers
from feedrate.schema.plugins import ROOT
from feedrate.store import runs

pytestmark = pytest.mark.slow  # it judges every committed run

RESULTS = ROOT / "results"


def verdicts(results: Sequence[runs.Run]) -> Verdicts:
    newest_first = sorted(results, key=lambda run: run.manifest.started_at, reverse=True)
    return load_verdicts([RunView(run) for run in newest_first])


def recomputed(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What the script prints of such a file; it finds no feedrate beside it."""
    file = folder / "numbers.json"
    file.write_text(text, encoding="utf-8")
    command = [sys.executable, "-I", str(RECOMPUTE), str(file), str(RESULTS)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_number_is_found_again(tmp_path: Path) -> None:
    """Ratios, intervals, sides and counts of all effects, cases, parts and asides of committed runs, to nine digits."""
    text = numbers(verdicts(runs.runs(RESULTS)))
    done = recomputed(text, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    tested = sum(len(place["effects"]) + len(place["facts"]) for place in json.loads(text))
    compared = int(done.stdout.split()[0])
    assert tested > 100
    assert compared > 3 * tested  # of a case alone in its block there is no interval
    assert done.stdout.endswith("0 differ\n")


CHANGED = (("effects", "ratio", 0), ("effects", "hi", 1), ("effects", "n", 2), ("facts", "n", 0))
"""Kind, key and which one of them."""


def test_a_number_that_is_not_the_runs_is_named(tmp_path: Path) -> None:
    """Of one run, changed by a thousandth, or a count by one: the script says which, and fails."""
    of_claims = (run for run in runs.runs(RESULTS) if "claims" in run.manifest.suites)
    smallest = min(of_claims, key=lambda run: (run.folder / "trials.parquet").stat().st_size)
    machine: dict[str, Any]
    (machine,) = json.loads(numbers(verdicts([smallest])))
    wrong = []
    for kind, key, place in CHANGED:
        number = [number for number in machine[kind] if key in number][place]
        number[key] = number[key] + 1 if key == "n" else number[key] * 1.001
        wrong.append(f"{number['name']}: {key}")
    done = recomputed(json.dumps([machine]), tmp_path)
    first, *rest = done.stdout.splitlines()
    assert done.returncode == 1
    assert first.endswith(f" {len(wrong)} differ")
    assert all(any(name in line for line in rest) for name in wrong), done.stdout


def test_it_is_short_and_stands_alone() -> None:
    """At most 100 lines, and nothing is imported but the standard library, NumPy, pandas and SciPy."""
    text = RECOMPUTE.read_text(encoding="utf-8")
    imported = re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE)
    assert set(imported) <= {"json", "sys", "pathlib", "typing", "numpy", "pandas", "scipy"}
    assert len(text.splitlines()) <= 100
