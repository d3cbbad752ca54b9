"""A check is a plug-in whose finding becomes a trial's row."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from feedrate.schema import plugins
from feedrate.schema.axes import BY_NAME
from feedrate.schema.columns import MEASURED
from feedrate.schema.errors import InputError
from feedrate.sweep.launcher import Template
from feedrate.trial.checks import Finding, run_check
from feedrate.trial.job import Job, Reporter

NAMES = plugins.names("feedrate.trial.checks")


def reported(**cell: Any) -> dict[str, Any]:
    """What a check reports."""
    reading, writing = os.pipe()
    try:
        run_check(Job("trial", cell={"mode": "check", **cell}), Reporter(writing))
        return json.loads(os.read(reading, 1 << 16))
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_a_check(name: str) -> None:
    """Each file has a function check; what it needs it declares without being imported."""
    assert callable(plugins.load("feedrate.trial.checks", name).check)
    assert plugins.declared("feedrate.trial.checks", name, "DEVICE") in (None, "cuda")


def test_the_axis_names_them() -> None:
    """The axis check knows every file, and its default is one of them."""
    assert BY_NAME["check"].choices is not None
    assert BY_NAME["check"].choices() == NAMES
    assert BY_NAME["check"].default in NAMES


def test_a_finding_becomes_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check reports its fact, its value and its evidence, in columns of the table, and nothing that was timed."""
    found = Finding(False, 0.25, "A quarter of it.")
    monkeypatch.setattr(plugins.load("feedrate.trial.checks", "next_epoch"), "check", lambda job: found)
    answer = reported(check="next_epoch")
    assert answer["event"] == "result"
    assert answer["row"] == {"fact": False, "fact_value": 0.25, "evidence": "A quarter of it."}
    assert answer["row"].keys() <= {column.name for column in MEASURED}


def test_an_unknown_check_is_refused() -> None:
    """A name that is no check is named, with those that are."""
    with pytest.raises(InputError, match=r"unknown name 'flatness'.*termination"):
        reported(check="flatness")


@pytest.mark.slow
def test_checks_run_as_trials(tmp_path: Path) -> None:
    """From the template, as in a sweep: a check that finds the opposite of its claim is a good trial; nothing is left.

    The template ignores SIGINT, which its children inherit; the script under watch must feel it all the same.
    """
    cells = (
        ({"check": "next_epoch", "persistent_workers": True}, True),
        ({"check": "termination", "ends_by": "sigint", "guarded": False}, False),
        ({"check": "pin_everything"}, None),
    )
    with Template() as template:
        for cell, fact in cells:
            job = {"kind": "trial", "cell": {"mode": "check", **cell}, "data_root": str(tmp_path)}
            answer = template.run(json.dumps(job), timeout_s=240, watch=lambda *_: None)
            assert answer.outcome == ("error" if fact is None else "ok"), answer.message
            assert answer.result.get("row", {}).get("fact") is fact
            assert (answer.left_processes, answer.left_shm_segments) == (0, 0)
