"""How figures are judged: medians with their spread, the worst page or trial, counts of what was called wrongly."""

from __future__ import annotations

import io
import math
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats

from feedrate.bench import accuracy, calibration, session, site
from feedrate.bench.browser import PageCost
from feedrate.bench.session import Ended, Session
from feedrate.schema.axes import cell_id
from feedrate.store import runs
from feedrate.store.bench_record import WitnessedTrial


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
    fine = accuracy.judge_accuracy([trial(1.001), trial(0.995, "b")])
    assert fine.met
    assert "−0.500 %" in fine.measured.replace("-", "−")
    assert "n = 2 trials of 2 planted cells" in fine.measured
    assert not accuracy.judge_accuracy([trial(1.001)] * 20 + [trial(0.985)]).met


def test_the_ratio_needs_its_whole_interval_below_the_limit() -> None:
    """The interval is Student's t on logs over pairs, recomputed here; its upper end decides."""
    pairs = np.exp(np.random.default_rng(0).normal(math.log(1.005), 0.01, 40))
    found = session.judge_ratio("a step", 1.02, pairs.tolist(), "pairs of 3 steps")
    lo, hi = np.exp(stats.t.interval(0.95, 39, np.log(pairs).mean(), stats.sem(np.log(pairs))))
    assert found.met
    assert f"({lo:.4f}–{hi:.4f}, n = 40 pairs of 3 steps)" in found.measured
    noisy = np.exp(np.random.default_rng(0).normal(math.log(1.005), 0.2, 40))
    assert not session.judge_ratio("a step", 1.02, noisy.tolist(), "pairs").met


def test_without_a_calibration_run_its_command_is_said(tmp_path: Path, fake_run: ModuleType) -> None:
    """Runs of other suites, and other machines' calibration, are none: what to type is said, and nothing is judged."""
    fake_run.write(tmp_path, fake_run.Fake(run_id="20260102T030405Z-mine", cores=2))
    fake_run.write(tmp_path, fake_run.Fake(run_id="20260103T030405Z-other", cores=4, suites=("calibration",)))
    mine, other = (run.manifest.machine.machine_id for run in runs.runs(tmp_path))
    session = Session(Console(file=io.StringIO()), tmp_path, tmp_path, "cpu", mine)
    (found,) = calibration.measure(session)
    assert found.met is None
    assert "make sweep SUITE=calibration" in found.measured
    newest = calibration.newest_calibration(runs.runs(tmp_path), other)
    assert newest is not None
    assert newest.manifest.run_id == "20260103T030405Z-other"


def test_the_worst_read_back_decides() -> None:
    """A quantity is read back only if its worst cell is, whatever the sign of its error."""
    rows = [("read", 40, 0.4, 1.2, 8), ("decode", 9, 0.5, -7.0, 8)]
    table = pd.DataFrame(rows, columns=["quantity", "cells", "median_pct", "worst_pct", "n"])
    read, decode = calibration.read_back(table)
    assert (read.met, decode.met) == (True, False)
    assert "-7.0 %" in decode.measured
    assert "9 cells, n ≥ 8" in decode.measured


def test_verdicts_on_planted_effects_are_counted() -> None:
    """Chance may take three of twenty intervals; a wrong verdict or bottleneck is one too many."""
    flags = {
        "different": [True] * 3 + [False] * 17,
        "inside": [False] * 4 + [True] * 16,
        "right": [True] * 19 + [False],
    }
    frame = pd.DataFrame(flags).astype(object)
    found = calibration.verdicts(frame, frame, frame.iloc[:19])
    assert [(figure.measured, figure.met) for figure in found] == [
        ("3 of 20", True),
        ("4 of 20", False),
        ("1 of 20", False),
        ("0 of 19", True),
    ]


def test_predictions_are_judged_by_what_was_held_out() -> None:
    """Of batch sizes nine cells of ten are enough, of workers all are wanted; rates and waits are judged apart."""
    cells = pd.DataFrame(
        {
            "held_out": ["batch_size"] * 10,
            "within": [True] * 9 + [False],
            "error_pct": [1.0] * 9 + [-20.0],
            "wait_within": [True] * 8 + [False] * 2,
            "wait_error_ms": [0.5] * 8 + [-9.0, 2.0],
        }
    )
    rate, wait = calibration.predicted(cells)
    assert (rate.met, wait.met) == (True, False)
    assert "90 % (error: median 1.0 %, worst 20.0 %, n = 10)" in rate.measured
    assert "worst 9.00 ms" in wait.measured
    assert not next(calibration.predicted(cells.assign(held_out="num_workers"))).met


@pytest.mark.parametrize(
    ("bound", "values", "met", "measured"),
    [
        ("≤ 2 s", [1.21, 1.994, 7], True, "1.99 s (1.21–7.00, n = 3 files) here"),
        ("≤ 2 s", [1.21, 2.01, 2.02], False, "2.01 s (1.21–2.02, n = 3 files) here"),
        ("≤ 1,000 s", [1000], True, "1000.00 s (1000.00–1000.00, n = 1 file) here"),
        ("≥ 0.9 of it", [0.89, 0.8, 1], False, "0.89 s (0.80–1.00, n = 3 files) here"),
    ],
)
def test_figures_are_judged_by_their_median(bound: str, values: list[float], met: bool, measured: str) -> None:
    """One slow time of three decides nothing, and is seen in the range; a bound holds from below or from above."""
    found = session.judge("a file", bound, values, digits=2, unit=" s", counted="file", note=" here")
    assert found == ("a file", bound, measured, met)


def cost(path: str, **changed: object) -> PageCost:
    """A page that meets every target."""
    given = {
        "before_bytes": 100_000,
        "after_bytes": 400_000,
        "paints_ms": (400.0, 500.0, 900.0),
        "blocks_ms": (0.0, 100.0, 250.0),
    }
    return PageCost(path, **{**given, **changed})  # type: ignore[arg-type]


def test_all_good_pages_meet_every_target() -> None:
    """The heaviest is named, with the lightest beside it."""
    fine = list(site.judge_pages([cost("a.html"), cost("b.html", before_bytes=149_000)], "results"))
    assert [figure.met for figure in fine] == [True] * 4
    assert "149 kB (b.html; lightest 100 kB, n = 2 pages)" in fine[0].measured


@pytest.mark.parametrize(
    ("place", "changed"),
    [
        (0, {"before_bytes": 151_000}),
        (1, {"after_bytes": 501_000}),
        (2, {"paints_ms": (1001.0, 1001.0, 1.0)}),
        (3, {"blocks_ms": (301.0, 302.0, 1.0)}),
    ],
)
def test_pages_are_judged_by_the_worst(place: int, changed: dict[str, object]) -> None:
    """One page too heavy, too late or too busy misses the target, and is named."""
    found = list(site.judge_pages([cost("a.html"), cost("b.html", **changed)], "results"))
    assert [figure.met for figure in found] == [at != place for at in range(4)]
    assert "b.html" in found[place].measured


def test_times_are_medians_over_loads_with_their_spread() -> None:
    """One bad load of three decides nothing, and is seen in the range."""
    found = list(site.judge_pages([cost("a.html", paints_ms=(300.0, 310.0, 5000.0)), cost("b.html")], "results"))
    assert found[2].met
    assert found[2].measured == "500 ms (400–900, n = 3 loads) of b.html; best page 310 ms, 2 pages"


def test_a_build_is_judged_by_time_and_memory() -> None:
    """Both have a target of their own."""
    built = Ended(0, 19.9, 2_100_000_000, "", "")
    assert [figure.met for figure in site.judge_build("made up", built, 20)] == [True, False]
    assert [figure.met for figure in site.judge_build("made up", built, 19)] == [False, False]
