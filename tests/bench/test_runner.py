"""make bench: sections that can be chosen, figures that say whether they were met, a record of what was found."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from feedrate.bench import runner
from feedrate.bench.session import Figure, Session
from feedrate.schema.errors import EnvironmentFault, FeedrateError, InputError, TrialError
from feedrate.store import runs
from feedrate.store.bench_record import SECTIONS, BenchRecord

Measure = Callable[..., BenchRecord]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sections that measure nothing and note here that they ran."""
    names: list[str] = []

    def measure(name: str, session: Session) -> list[Figure]:
        assert session.folder.is_dir()
        names.append(name)
        return [Figure(f"a figure of {name}", "≤ 1", "2 (n = 3)", True)]

    monkeypatch.setattr(runner, "MEASURES", {name: partial(measure, name) for name in runner.MEASURES})
    return names


@pytest.fixture
def measure(tmp_path: Path, ran: list[str]) -> Measure:
    """Benches with such sections."""
    return lambda only="": runner.measure(Console(file=io.StringIO()), only, tmp_path)


def test_sections_are_measured_in_their_order(measure: Measure, ran: list[str], tmp_path: Path) -> None:
    """Without a choice all are; the record is whole, and is read back as it was; a choice measures nothing else."""
    record = measure()
    assert tuple(ran) == SECTIONS == record.sections == tuple(promise.section for promise in record.promises)
    assert runs.benches(tmp_path) == [record]
    assert measure("site, accuracy").sections == tuple(ran[len(SECTIONS) :]) == ("accuracy", "site")


@pytest.mark.parametrize(("error", "met"), [(TrialError, False), (EnvironmentFault, None)])
def test_a_section_that_fails_loses_no_figure(
    measure: Measure, ran: list[str], monkeypatch: pytest.MonkeyPatch, error: type[FeedrateError], met: bool | None
) -> None:
    """Its reason stands in the record, as missed or as what this machine cannot do, behind what was taken before."""

    def fails(session: Session) -> Iterator[Figure]:
        yield Figure("first", "≤ 1", "1", True)
        raise error(f"nothing works on {session.machine_id}")

    monkeypatch.setitem(runner.MEASURES, "speed", fails)
    record = measure()
    assert ran == [name for name in SECTIONS if name != "speed"]
    first, failed = record.section("speed")
    assert first.met
    assert (failed.met, failed.measured) == (met, f"nothing works on {record.machine.machine_id}")


def test_an_unknown_section_is_refused_before_anything_runs(measure: Measure, ran: list[str], tmp_path: Path) -> None:
    """The message names the sections that there are, and the one that was probably meant."""
    with pytest.raises(InputError, match=r"no section 'acuracy'.*did you mean 'accuracy'"):
        measure("acuracy")
    assert (ran, list(tmp_path.iterdir())) == ([], [])


def test_a_sweep_is_not_disturbed(measure: Measure, ran: list[str], tmp_path: Path) -> None:
    """While a sweep holds the machine nothing is benched: both would measure each other."""
    machine_id = measure("speed").machine.machine_id
    with runs.machine_lock(tmp_path, machine_id), pytest.raises(InputError, match="another sweep is running"):
        measure("speed")
    assert ran == ["speed"]


@pytest.mark.parametrize(("met", "word"), [(True, "met"), (False, "MISSED"), (None, "not here")])
def test_a_missed_target_is_printed_as_missed(measure: Measure, met: bool | None, word: str) -> None:
    """Each figure is printed with its target and verdict; what cannot be measured here is neither met nor missed."""
    record, printed = measure("speed"), io.StringIO()
    promise = record.promises[0].model_copy(update={"met": met})
    runner.show(record.model_copy(update={"promises": (promise,)}), Console(file=printed, width=120))
    (line,) = (line for line in printed.getvalue().splitlines() if "a figure of speed" in line)
    assert line.rstrip().endswith(word)
    assert "≤ 1" in line
    assert "2 (n = 3)" in line
