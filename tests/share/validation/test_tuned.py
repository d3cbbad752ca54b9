"""Runs of searches: what feedrate tune writes is valid, and what a stranger changes of what was found is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from feedrate.schema.plugins import ROOT
from feedrate.share import submission
from feedrate.share.validation import validator
from feedrate.store import runs

STRANGE = "0123456789ab"
"""The id of no cell of the run."""


@pytest.fixture(scope="module")
def source(fake_tuned: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of a search."""
    folder: Path = fake_tuned.write(tmp_path_factory.mktemp("tuned"), fake_tuned.Search(fails=4))
    return folder


def refusals(folder: Path) -> list[str]:
    """The rules that refuse a run."""
    return [finding.rule for finding in validator.judge(folder).findings]


def test_what_feedrate_tune_writes_is_valid(source: Path) -> None:
    """A search with failed trials and settings that were set aside; and the one that an earlier feedrate wrote."""
    found = json.loads((source / "run.json").read_text())
    assert found["tuned"][0]["audits"]
    assert found["tuned"][0]["aside"]
    assert found["outcomes"]["error"] > 0
    golden = runs.runs(ROOT / "tests" / "golden" / "v5_tune")[0].folder
    assert refusals(source) == refusals(golden) == []


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("tuned", {"recommended": STRANGE}),
        ("tuned", {"present": STRANGE}),
        ("tuned", {"audits": [{"cell_id": STRANGE, "predicted": 0.5, "measured": 0.5}]}),
        ("tuned", {"trials": 3}),
        ("tuned", {"known": False}),
        ("tuned", {"bound_pct": 99.0}),
        ("tuned", {"bound_pct": None}),
        ("tuned", {"gain": [2.0, 2.5, 3.0]}),
        ("tuned", {"gain": [0.0, 0.0, 3.0]}),
        ("tuned", {"aside": [{"count": 1_000, "reason": "too many"}]}),
        ("manifest_range", {"gain": [-1.0, -2.0, 3.0]}),
        ("manifest_range", {"within_pct": -3.0}),
        ("manifest_range", {"settings": 10**8}),
        ("manifest_name", {"recommended": "../../etc"}),
        ("manifest_text", {"aside": [{"count": 1, "reason": "a\nb"}]}),
    ],
    ids=str,
)
def test_what_was_found_is_held_against_the_trials(changed: Any, source: Path, rule: str, change: Any) -> None:
    """Settings are cells that were tried, numbers lie where they can, and what is known follows from the bound."""
    (found,) = json.loads((source / "run.json").read_text())["tuned"]
    assert refusals(changed(source=source, tuned=[found | change])) == [rule]


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("tuned", {"tuned": []}),
        ("command", {"command": "feedrate tune -- $(reboot)"}),
        ("command", {"command": "feedrate tune --within 5 -- train.py"}),
        ("script", {"command": "feedrate tune -- other.py"}),
        ("script", {"command": "feedrate run -- train.py"}),
        ("script", {"stop_reason": "ended"}),
        ("script", {"profile": "script"}),
    ],
    ids=str,
)
def test_a_search_says_that_it_is_one(changed: Any, source: Path, rule: str, fields: dict[str, Any]) -> None:
    """Command, suite, profile, end and what was found are those of a search of one script."""
    assert refusals(changed(source=source, **fields)) == [rule]


def test_no_sweep_has_found_what_a_search_finds(changed: Any, source: Path) -> None:
    """A sweep that found settings which it does not have is refused."""
    found = json.loads((source / "run.json").read_text())["tuned"]
    assert refusals(changed(tuned=found)) == ["tuned"]


def test_only_the_name_of_a_script_is_published(source: Path) -> None:
    """No file of a submission holds a path or an argument, and its text says what was searched."""
    prepared = submission.prepare(runs.find(str(source)))
    for data in prepared.files.values():
        assert b"somebody" not in data
        assert b"secret" not in data
    said = "settings of a training script's loader (`feedrate tune -- train.py`)"
    assert said in prepared.body
