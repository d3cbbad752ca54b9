"""make bench: sections that can be chosen, figures that say whether they were met, a record of what was found."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
from rich.console import Console

from feedrate.bench import runner
from feedrate.bench.session import Figure, Session
from feedrate.schema.errors import EnvironmentFault, FeedrateError, InputError, TrialError
from feedrate.store import runs
from feedrate.store.bench_record import SECTIONS, WitnessedTrial

TRIAL = WitnessedTrial(
    cell_id="a",
    cell={},
    repeat=0,
    samples=1000,
    wall_ns=10**9,
    witness_ns=10**9,
    epoch_steps=8,
    epochs_samples=100,
    epochs_witness_ns=10**9,
    estimates={"wall_clock": 1000.0},
)


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sections that measure nothing and say that they ran."""
    ran: list[str] = []

    def measure(name: str, session: Session) -> list[Figure]:
        assert session.folder.is_dir()
        ran.append(name)
        if name == "accuracy":
            session.witnessed.append(TRIAL)
        return [Figure(f"a figure of {name}", "≤ 1", "2 (n = 3)", True)]

    monkeypatch.setattr(runner, "MEASURES", {name: partial(measure, name) for name in runner.MEASURES})
    return ran


def test_all_sections_are_measured_in_their_order(stubbed: list[str], tmp_path: Path) -> None:
    """Without a choice everything is; the record is whole, and is read back as it was."""
    record = runner.measure(Console(file=io.StringIO()), results=tmp_path)
    assert tuple(stubbed) == SECTIONS
    assert record.sections == SECTIONS
    assert [p.section for p in record.promises] == list(SECTIONS)
    assert runs.benches(tmp_path) == [record]
    assert record.took_s >= 0


@pytest.mark.parametrize(("error", "met"), [(TrialError, False), (EnvironmentFault, None)])
def test_a_section_that_fails_loses_no_other(
    stubbed: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: type[FeedrateError], met: bool | None
) -> None:
    """Its reason stands in the record, as missed or as what this machine cannot do; those around it are measured."""

    def fails(session: Session) -> NoReturn:
        raise error(f"nothing works on {session.machine_id}")

    monkeypatch.setitem(runner.MEASURES, "speed", fails)
    record = runner.measure(Console(file=io.StringIO()), results=tmp_path)
    assert stubbed == [name for name in SECTIONS if name != "speed"]
    (failed,) = record.section("speed")
    assert (failed.met, failed.measured) == (met, f"nothing works on {record.machine.machine_id}")
    assert record.witnessed


def test_one_section_alone(stubbed: list[str], tmp_path: Path) -> None:
    """A choice measures that and nothing else, and the record says so; without accuracy it holds no trials."""
    record = runner.measure(Console(file=io.StringIO()), "instrumentation", tmp_path)
    assert stubbed == ["instrumentation"]
    assert (record.sections, record.witnessed) == (("instrumentation",), ())
    assert runner.chosen("tuning, accuracy") == ("accuracy", "tuning")


def test_an_unknown_section_is_refused_before_anything_runs(stubbed: list[str], tmp_path: Path) -> None:
    """The message names the sections that there are, and the one that was probably meant."""
    with pytest.raises(InputError, match=r"no section 'acuracy'.*did you mean 'accuracy'"):
        runner.measure(Console(file=io.StringIO()), "acuracy", tmp_path)
    assert stubbed == []
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_is_not_disturbed(stubbed: list[str], tmp_path: Path) -> None:
    """While a sweep holds the machine nothing is benched: both would measure each other."""
    console = Console(file=io.StringIO())
    machine_id = runner.measure(console, "speed", tmp_path).machine.machine_id
    with runs.machine_lock(tmp_path, machine_id), pytest.raises(InputError, match="another sweep is running"):
        runner.measure(console, "speed", tmp_path)
    assert stubbed == ["speed"]


def test_a_missed_target_is_printed_as_missed(stubbed: list[str], tmp_path: Path) -> None:
    """Each figure is printed with its target and verdict; what cannot be measured here is neither met nor missed."""
    record = runner.measure(Console(file=io.StringIO()), "speed", tmp_path)
    for met, word in ((True, "met"), (False, "MISSED"), (None, "not here")):
        printed = io.StringIO()
        promise = record.promises[0].model_copy(update={"met": met})
        runner.show(record.model_copy(update={"promises": (promise,)}), Console(file=printed, width=120))
        (line,) = (line for line in printed.getvalue().splitlines() if "a figure of speed" in line)
        assert "≤ 1" in line
        assert "2 (n = 3)" in line
        assert line.rstrip().endswith(word)
