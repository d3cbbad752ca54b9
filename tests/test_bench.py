"""make bench: sections that can be chosen, figures that say whether they were met, a record of what was found."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats

from harness import bench, store
from harness.axes import cell_id
from harness.bench import accuracy, calibration, instrumentation, simulated
from harness.bench.place import Place
from harness.bench_record import SECTIONS, Promise, WitnessedTrial
from harness.errors import EnvironmentFault, FeedrateError, InputError, TrialError


def promise(section: str, met: bool | None = True) -> Promise:
    return Promise(section=section, what=f"a figure of {section}", target="≤ 1", measured="2 (n = 3)", met=met)


def trial(ours: float, cell: str = "a") -> WitnessedTrial:
    """A trial of 1 s by the witness, whose throughput by feedrate is ``ours`` times the truth."""
    wall_ns = round(1e9 / ours)
    return WitnessedTrial(
        cell_id=cell,
        cell={},
        repeat=0,
        samples=1000,
        wall_ns=wall_ns,
        witness_ns=10**9,
        epoch_steps=8,
        epochs_samples=100,
        epochs_witness_ns=10**9,
        estimates={"wall_clock": 1000 * 1e9 / wall_ns},
    )


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sections that measure nothing and say that they ran."""
    ran: list[str] = []

    def section(name: str) -> Callable[[Place], list[Promise]]:
        def measure(place: Place) -> list[Promise]:
            assert place.folder.is_dir()
            ran.append(name)
            return [promise(name)]

        return measure

    monkeypatch.setattr(bench, "TAKEN", {name: section(name) for name in bench.TAKEN})
    monkeypatch.setattr(accuracy, "measure", lambda place: ([*section("accuracy")(place)], [trial(1.001)]))
    return ran


def test_all_sections_are_measured_in_their_order(stubbed: list[str], tmp_path: Path) -> None:
    """Without a choice everything is; the record is whole, and is read back as it was."""
    record = bench.measure(Console(file=io.StringIO()), results=tmp_path)
    assert tuple(stubbed) == SECTIONS
    assert record.sections == SECTIONS
    assert [p.section for p in record.promises] == list(SECTIONS)
    assert store.benches(tmp_path) == [record]
    assert record.took_s >= 0


@pytest.mark.parametrize(("error", "met"), [(TrialError, False), (EnvironmentFault, None)])
def test_a_section_that_fails_loses_no_other(
    stubbed: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: type[FeedrateError], met: bool | None
) -> None:
    """Its reason stands in the record, as missed or as what this machine cannot do; those around it are measured."""

    def fails(place: Place) -> NoReturn:
        raise error(f"nothing works on {place.machine_id}")

    monkeypatch.setitem(bench.TAKEN, "storage", fails)
    record = bench.measure(Console(file=io.StringIO()), results=tmp_path)
    assert stubbed == [name for name in SECTIONS if name != "storage"]
    (failed,) = record.section("storage")
    assert (failed.met, failed.measured) == (met, f"nothing works on {record.machine.machine_id}")
    assert record.witnessed


def test_one_section_alone(stubbed: list[str], tmp_path: Path) -> None:
    """A choice measures that and nothing else, and the record says so; without accuracy it holds no trials."""
    record = bench.measure(Console(file=io.StringIO()), "instrumentation", tmp_path)
    assert stubbed == ["instrumentation"]
    assert (record.sections, record.witnessed) == (("instrumentation",), ())
    assert bench.chosen("statistics, accuracy") == ("accuracy", "statistics")


def test_an_unknown_section_is_refused_before_anything_runs(stubbed: list[str], tmp_path: Path) -> None:
    """The message names the sections that there are, and the one that was probably meant."""
    with pytest.raises(InputError, match=r"no section 'acuracy'.*did you mean 'accuracy'"):
        bench.measure(Console(file=io.StringIO()), "acuracy", tmp_path)
    assert stubbed == []
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_is_not_disturbed(stubbed: list[str], tmp_path: Path) -> None:
    """While a sweep holds the machine nothing is benched: both would measure each other."""
    console = Console(file=io.StringIO())
    machine_id = bench.measure(console, "speed", tmp_path).machine.machine_id
    with store.machine_lock(tmp_path, machine_id), pytest.raises(InputError, match="another sweep is running"):
        bench.measure(console, "speed", tmp_path)
    assert stubbed == ["speed"]


def test_a_missed_target_is_printed_as_missed(stubbed: list[str], tmp_path: Path) -> None:
    """Each figure is printed with its target and verdict; what cannot be measured here is neither met nor missed."""
    record = bench.measure(Console(file=io.StringIO()), "speed", tmp_path)
    verdicts = {True: "met", False: "MISSED", None: "not here"}
    for met, word in verdicts.items():
        printed = io.StringIO()
        shown = record.model_copy(update={"promises": (promise("speed", met),)})
        bench.show(shown, Console(file=printed, width=120))
        (line,) = (line for line in printed.getvalue().splitlines() if "a figure of speed" in line)
        assert "≤ 1" in line
        assert "2 (n = 3)" in line
        assert line.rstrip().endswith(word)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_planted_cells_cover_what_a_loader_can_be(device: str) -> None:
    """24 distinct cells: every number of workers with every step, twice, and every plant with each of them."""
    cells = accuracy.cells(device)
    assert len({cell_id(cell) for cell in cells}) == len(cells) == 24
    pairs = [(cell["num_workers"], cell.get("step_ms")) for cell in cells]
    assert all(pairs.count((workers, step)) == 2 for workers in accuracy.WORKERS for step in accuracy.STEPS_MS)
    for axis, values in (("num_workers", accuracy.WORKERS), ("step_ms", accuracy.STEPS_MS)):
        seen = {(cell.get(axis), cell["read_us"], cell["decode_us"]) for cell in cells}
        assert seen == {(value, *plant) for value in values for plant in accuracy.PLANTS}
    assert {cell["batch_size"] for cell in cells} == set(accuracy.BATCHES)
    assert {cell["mode"] for cell in cells} == {"load", "train"}
    assert all(cell["step"] == "emulated" for cell in cells if cell["mode"] == "train")


def test_accuracy_is_judged_by_the_worst_trial() -> None:
    """One trial that is off by more than one per cent misses the target, however good the others are."""
    fine = accuracy.promise([trial(1.001), trial(0.995, "b")])
    assert fine.met
    assert "−0.500 %" in fine.measured.replace("-", "−")
    assert "n = 2 trials of 2 planted cells" in fine.measured
    assert not accuracy.promise([trial(1.001)] * 20 + [trial(0.985)]).met


def test_the_ratio_needs_its_whole_interval_below_the_limit() -> None:
    """The interval is Student's t on logs over pairs, recomputed here; its upper end decides."""
    pairs = np.exp(np.random.default_rng(0).normal(math.log(1.005), 0.01, 40))
    found = instrumentation.ratio(pairs.tolist(), 3)
    lo, hi = np.exp(stats.t.interval(0.95, 39, np.log(pairs).mean(), stats.sem(np.log(pairs))))
    assert found.met
    assert f"({lo:.4f}–{hi:.4f}, n = 40 pairs of 3 steps)" in found.measured
    noisy = np.exp(np.random.default_rng(0).normal(math.log(1.005), 0.2, 40))
    assert not instrumentation.ratio(noisy.tolist(), 3).met


def test_a_cost_is_met_missed_or_not_here() -> None:
    """The median decides, in microseconds; without a CUDA device there is nothing to judge."""
    assert (
        instrumentation._cost("stamps", 10, [900.0, 1100.0, 1000.0], "step").measured == "1.0 µs (0.9–1.1, n = 3 pairs)"
    )
    assert instrumentation._cost("stamps", 10, [9e3, 11e3, 12e3], "step").met is False
    assert instrumentation._cost("events", 30, None, "step").met is None


def test_noise_comes_from_the_machines_own_newest_run(tmp_path: Path, fake_run: ModuleType) -> None:
    """A run of the machine itself goes before a newer one of another; without runs stated spreads stand in."""
    Fake = fake_run.Fake  # noqa: N806 - a class
    fake_run.write(tmp_path, Fake(run_id="20260102T030405Z-mine", cores=2, fails="none"))
    fake_run.write(tmp_path, Fake(run_id="20260103T030405Z-other", cores=4, fails="none"))
    stored = store.runs(tmp_path)
    mine = stored[0].manifest.machine.machine_id
    assert simulated.noise(stored, mine).origin.endswith("run 20260102T030405Z-mine")
    assert simulated.noise(stored, "unknown").origin.endswith("run 20260103T030405Z-other")
    nothing = simulated.noise([], mine)
    assert (list(nothing.spreads), nothing.run) == (list(simulated.SPREADS), None)


def test_without_a_calibration_run_its_command_is_said(tmp_path: Path, fake_run: ModuleType) -> None:
    """Runs of other suites, and other machines' calibration, are none: what to type is said, and nothing is judged."""
    fake_run.write(tmp_path, fake_run.Fake(run_id="20260102T030405Z-mine", cores=2))
    fake_run.write(tmp_path, fake_run.Fake(run_id="20260103T030405Z-other", cores=4, suites=("calibration",)))
    mine, other = (run.manifest.machine.machine_id for run in store.runs(tmp_path))
    place = Place(Console(file=io.StringIO()), tmp_path, tmp_path, "cpu", mine)
    (found,) = calibration.measure(place)
    assert found.met is None
    assert "make sweep SUITE=calibration" in found.measured
    newest = calibration.newest(store.runs(tmp_path), other)
    assert newest is not None
    assert newest.manifest.run_id == "20260103T030405Z-other"


def say(what: str, target: str, measured: str, met: bool) -> Promise:
    return Promise(section="calibration", what=what, target=target, measured=measured, met=met)


def test_the_worst_read_back_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quantity is read back only if its worst cell is, whatever the sign of its error."""
    rows = [("read", 40, 0.4, 1.2, 8), ("decode", 9, 0.5, -7.0, 8)]
    table = pd.DataFrame(rows, columns=["quantity", "cells", "median_pct", "worst_pct", "n"])
    monkeypatch.setattr(calibration.calibration, "planted", lambda trials: trials)
    monkeypatch.setattr(calibration.calibration, "summary", lambda _: table)
    read, decode = calibration._read_back(table, say)
    assert (read.met, decode.met) == (True, False)
    assert "-7.0 %" in decode.measured
    assert "9 cells, n ≥ 8" in decode.measured


def test_verdicts_on_planted_effects_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance may take three of twenty intervals; a wrong verdict or bottleneck is one too many."""
    flags = {
        "different": [True] * 3 + [False] * 17,
        "inside": [False] * 4 + [True] * 16,
        "right": [True] * 19 + [False],
    }
    frame = pd.DataFrame(flags).astype(object)
    for name in ("effects", "same_pairs"):
        monkeypatch.setattr(calibration.calibration, name, lambda _: frame)
    monkeypatch.setattr(calibration.calibration, "bottlenecks", lambda _: frame.iloc[:19])
    found = calibration._verdicts(frame, say)
    assert [(promise.measured, promise.met) for promise in found] == [
        ("3 of 20", True),
        ("4 of 20", False),
        ("1 of 20", False),
        ("0 of 19", True),
    ]


def test_predictions_are_judged_by_what_was_held_out() -> None:
    """Of batch sizes nine cells of ten are enough, of workers all are wanted; rates and waits are judged apart."""
    found = pd.DataFrame(
        {
            "held_out": ["batch_size"] * 10,
            "within": [True] * 9 + [False],
            "error_pct": [1.0] * 9 + [-20.0],
            "wait_within": [True] * 8 + [False] * 2,
            "wait_error_ms": [0.5] * 8 + [-9.0, 2.0],
        }
    )
    rate, wait = calibration._predicted(found, say)
    assert (rate.met, wait.met) == (True, False)
    assert "90 % (error: median 1.0 %, worst 20.0 %, n = 10)" in rate.measured
    assert "worst 9.00 ms" in wait.measured
    assert not calibration._predicted(found.assign(held_out="num_workers"), say)[0].met
