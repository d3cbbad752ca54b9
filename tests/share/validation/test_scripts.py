"""Runs of scripts: what a script cannot keep to is asked of none, and whatever a stranger changes is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from feedrate.attach import rows
from feedrate.schema.errors import InputError
from feedrate.share import submission
from feedrate.share.validation import validator
from feedrate.store import runs

HOSTILE = ("<script>alert(1)", "a b", "../../etc/passwd", "$(reboot)", "train.py;id", "x" * 61, "é.py")


@pytest.fixture(scope="module")
def source(fake_script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of a script with its ceilings."""
    return fake_script.write(tmp_path_factory.mktemp("script"), fake_script.Script(headspace=True))


def first(change: Callable[[Any], Any]) -> Any:
    """Change the first value of a column that is there."""

    def new(values: list[Any]) -> list[Any]:
        at = next(place for place, value in enumerate(values) if value is not None)
        return [*values[:at], change(values[at]), *values[at + 1 :]]

    return new


def every(value: Any) -> Any:
    """Put one value into all rows that have one."""
    return lambda values: [None if each is None else value for each in values]


def refusals(folder: Path) -> list[str]:
    """The rules that refuse a run."""
    return [finding.rule for finding in validator.judge(folder).findings]


@pytest.mark.parametrize(
    "what", [{}, {"workers": 0}, {"workers": 4, "prepare_ms": 1.0}, {"prepare_ms": 90.0, "hour": 7}]
)
def test_what_feedrate_run_writes_is_valid(fake_script: ModuleType, tmp_path: Path, what: dict[str, Any]) -> None:
    """Batches that are not full, stretches without a warm-up, work done ahead: no rule refuses them."""
    assert refusals(fake_script.write(tmp_path, fake_script.Script(**what))) == []


def test_a_sampler_that_does_not_say_its_size_is_valid(fake_script: ModuleType, tmp_path: Path) -> None:
    """The largest batch that came is the size; where a batch's preparation was not seen its stretch has no sums."""
    ended = fake_script.ended(fake_script.Script())
    loader = ended.report.loader
    settings, every_batch = {**loader.settings, "batch_size": None}, loader.batches
    batches = every_batch[every_batch["iterator"].ne(0) | every_batch["batch"].ne(60)]
    ended = replace(ended, report=replace(ended.report, loader=replace(loader, settings=settings, batches=batches)))
    stored = rows.save(ended, tmp_path, "train.py")
    assert refusals(stored.folder) == []
    trials, steps = stored.table("trials"), stored.table("steps")
    assert set(trials["batch_size"]) == {8}
    lacking = trials.loc[trials["worker_getitem_ns"].isna(), "trial_id"]
    assert len(lacking) == 1
    assert steps.loc[steps["trial_id"].isin(lacking), "worker_getitem_ns"].isna().all()


def test_phases_fill_each_step_whatever_their_order(fake_script: ModuleType, tmp_path: Path) -> None:
    """An optimizer that steps before the first gradient is counted once."""
    ended = fake_script.ended(fake_script.Script())
    loader = ended.report.loader
    steps = loader.steps.assign(forward_ns=loader.steps["ended_ns"] - loader.steps["got_ns"])
    ended = replace(ended, report=replace(ended.report, loader=replace(loader, steps=steps)))
    stored = rows.save(ended, tmp_path, "train.py")
    assert refusals(stored.folder) == []
    trials = stored.table("trials")
    phases = [f"host_{phase}_ns" for phase in ("fetch", "forward", "backward", "optimizer", "other")]
    assert np.array_equal(trials[phases].sum(axis=1), trials["wall_ns"])


BROKEN: list[tuple[str, str, str, Any]] = [
    ("cell", "trials", "script", every("other.py")),
    ("cell", "trials", "script", first(lambda _: "other.py")),
    ("cell", "trials", "script", every("<b>x")),
    ("cell", "trials", "workload", every("synthetic")),
    ("named", "trials", "suite", every("loader")),
    ("sums", "trials", "worker_getitem_ns", first(lambda value: value + 10_000)),
    ("sums", "trials", "worker_getitem_ns", first(lambda value: value - 10_000)),
    ("worked", "trials", "worker_getitem_ns", first(lambda value: value * 100)),
    ("range", "trials", "worker_getitem_ns", first(lambda _: -1)),
    ("samples", "trials", "samples", first(lambda value: value * 2)),
    ("stages", "steps", "worker_getitem_ns", first(lambda value: value + 5_000)),
    ("sums", "steps", "worker_getitem_ns", first(lambda value: value - 5_000)),
    ("ready", "steps", "batches_ready", first(lambda _: 5)),
    ("range", "steps", "batches_ready", first(lambda _: -1)),
]
"""Rule, table, column, and what becomes of it."""


@pytest.mark.parametrize(("rule", "table", "column", "change"), BROKEN)
def test_what_is_changed_is_refused(
    changed: Any, source: Path, rule: str, table: str, column: str, change: Any
) -> None:
    """Each column that came with scripts is held against others: a value that they do not give refuses the run."""
    assert rule in refusals(changed({column: change}, table, source=source))


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        *[("command", {"command": f"feedrate run -- {name}"}) for name in (*HOSTILE, "")],
        ("manifest_text", {"command": "feedrate run -- a\nb"}),
        ("command", {"command": "feedrate run --results / -- train.py"}),
        ("script", {"command": "feedrate run -- other.py"}),
        ("script", {"command": "make sweep"}),
        ("script", {"stop_reason": "target"}),
        ("script", {"profile": "quick"}),
        ("script", {"suites": {"script": {}, "loader": {}}}),
        ("manifest_name", {"stop_reason": "finished"}),
    ],
)
def test_a_manifest_says_what_its_rows_say(changed: Any, source: Path, rule: str, fields: dict[str, Any]) -> None:
    """Command, suites, profile and end are those of this one script; a name is nothing that a shell would expand."""
    assert refusals(changed(source=source, **fields)) == [rule]


def test_no_sweep_ends_as_a_script(changed: Any, run: Path) -> None:
    """A sweep whose manifest says that the script ended is refused."""
    assert refusals(changed(stop_reason="ended")) == ["script"]
    assert json.loads((run / "run.json").read_text())["command"] == "make sweep"


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_not_recorded(fake_script: ModuleType, tmp_path: Path, name: str) -> None:
    """A name that is no name is refused before anything is written."""
    with pytest.raises(InputError, match="--name"):
        rows.save(fake_script.ended(fake_script.Script()), tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_only_the_name_of_a_script_is_published(source: Path) -> None:
    """No file of a submission holds a path, an argument or a line of code; the report stays, and the text says so."""
    prepared = submission.prepare(runs.find(str(source)))
    assert [path.rpartition("/")[2] for path in prepared.files] == [
        *("run.json", "trials.parquet", "steps.parquet", "telemetry.parquet")
    ]
    assert "somebody" in runs.report_of(source).read_text()
    for data in prepared.files.values():
        assert not any(word in data for word in (b"somebody", b"secret", b"Image.open", b"Pictures"))
    assert "the loop of a training script (`feedrate run -- train.py`)" in prepared.body
