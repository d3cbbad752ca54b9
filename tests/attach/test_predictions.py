"""What other numbers of workers would give, and the ranges of that."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from timelines import MS, constant, loader_of

from feedrate.analysis.pipeline import Pipeline, simulate
from feedrate.attach import loop, predictions
from feedrate.attach.records import Loader
from feedrate.schema.plugins import ROOT
from feedrate.store import bench_record
from feedrate.store.bench_record import BenchRecord, PredictedPace, WatchedScript


def outcome(ratio: float, seen: int = 2) -> PredictedPace:
    return PredictedPace("some", seen, 4, 100.0, 100.0 * ratio)


def sleeping(took_ms: int = 80, compute_ms: int = 0) -> Loader:
    """A loop that waits 60 ms and steps 20 ms, and one worker whose batches take 80 ms."""
    took = [(0, took_ms * MS, compute_ms * MS, 0, 0)] * 100
    return loader_of(constant(100, 60 * MS), constant(100, 20 * MS), batches=took, num_workers=1)


def predicted(loader: Loader, cores: float = 4) -> predictions.Predictions | None:
    pace = loop.pacing(loader)
    assert pace is not None
    return predictions.predict(loader, pace, cores)


def test_predictions_are_the_pipeline_models() -> None:
    """Other numbers of workers are simulated with what was measured; ranges are those of known predictions."""
    found = predicted(sleeping())
    assert found is not None
    fitted = Pipeline(constant(100, 80 * MS).astype(float), np.zeros(100), 0, 0, 20 * MS, 0, 4, 8)
    assert found.num_workers == 1
    assert found.present == pytest.approx(1e9 / simulate(fitted, 1, 2).step_ns)
    assert [other.num_workers for other in found.others] == [0, 2, 3, 4, 6, 8, 12, 16]
    for other in found.others:
        assert other.modelled == pytest.approx(1e9 / simulate(fitted, other.num_workers, 2).step_ns, rel=0.01)
        assert other.steps_per_s == predictions.ranged(other.modelled, predictions.known(), 1, other.steps_per_s.n)


def test_a_pass_that_fills_a_cache_is_told() -> None:
    """Batches of later passes come faster by far; workers, which are made anew, would fill it again and again."""
    loader = loader_of(constant(100, 60 * MS), constant(100, 20 * MS), batches=[(0, 60 * MS, 0, 0, 0)] * 100)
    assert not predictions.caches(loader)
    loader.batches["iterator"] = np.arange(100) // 50
    assert not predictions.caches(loader)
    loader.batches.loc[50:, "ended_ns"] = loader.batches.loc[50:, "begun_ns"] + 10 * MS
    assert predictions.caches(loader)
    assert not predictions.caches(replace(loader, settings={**loader.settings, "num_workers": 1}))


def test_more_workers_than_cores_are_for_those_that_wait() -> None:
    """Workers that compute are no faster where they stand in line for cores."""
    found = predicted(sleeping(compute_ms=75))
    assert found is not None
    assert [other.num_workers for other in found.others] == [0, 2, 3, 4]


def test_no_forecast_is_faster_than_the_device() -> None:
    """The host runs ahead: it waits 60 ms of 80, in 76 of which the device works."""
    loader = sleeping()
    loader.steps["cuda"], loader.steps["starved_ns"] = True, 4.0 * MS
    found = predicted(loader)
    assert found is not None
    assert max(other.modelled for other in found.others) == pytest.approx(1000 / 76)


def test_a_model_that_is_off_here_predicts_nothing() -> None:
    """The loop waits three times as long as its batches take; nor is anything said of an iterable without workers."""
    assert predicted(sleeping(took_ms=20)) is None
    assert predicted(loader_of(constant(20, MS), constant(20, MS), watched=True)) is None


def test_a_range_is_that_of_nine_in_ten() -> None:
    """Of runs with workers, or of runs without: those of the other sort do not count."""
    known = [*map(outcome, np.linspace(0.9, 1.3, 101)), outcome(9.0, seen=0)]
    pace = predictions.ranged(50.0, known, 1, 7)
    assert pace is not None
    assert (pace.value, pace.low, pace.high, pace.n) == pytest.approx((55, 46, 64, 7))
    assert predictions.ranged(50.0, known[:-1], 0, 7) is None


def test_a_range_holds_nine_in_ten_of_a_kind_that_it_does_not_rest_on() -> None:
    """Scripts of one kind are off alike: the range of nine in ten of all known errors would hold fewer of them."""
    kinds = sorted({true.costs for true in predictions.known()})
    ranges = []
    for true in predictions.known():
        others = [other for other in predictions.known() if other.costs != true.costs]
        errors = [other.measured / other.predicted for other in others if bool(other.seen) == bool(true.seen)]
        beyond = predictions.beyond_range(predictions.known())
        low, high = np.quantile(errors, [beyond, 1 - beyond])
        ranges.append(low <= true.measured / true.predicted <= high)
    assert len(kinds) > 9
    assert np.mean(ranges) == pytest.approx(predictions.CONFIDENCE, abs=0.02)


def test_a_script_is_advised_by_scripts_of_other_kinds() -> None:
    """Its own errors do not count; its pace with the advised number is that of the script that ran so."""
    alike = {"steps": 9, "wait_share": 0.5, "script_wait_share": 0.5, "hot_first": True, "hot_share": 1}
    alike |= {"script_hot_share": 1, "cause": "waiting", "start_method": "fork"}

    def ran(costs: str, workers: int, rate: float, **modelled: float) -> WatchedScript:
        given = {"steps_per_s": rate, "script_steps_per_s": rate, "predicted": modelled}
        return WatchedScript(costs=costs, num_workers=workers, **given, **alike)

    own, twice = ran("own", 1, 50, **{"2": 100}), ran("own", 2, 200)
    others = [ran("other", 1, 50, **{"2": 100}), ran("other", 2, 90)]
    advice, _ = predictions.advised([own, twice, *others])
    assert (advice.script, advice.num_workers, advice.measured) == (own, 2, 200)
    assert advice.pace.value == pytest.approx(90)


def test_the_errors_are_those_of_the_newest_benches() -> None:
    """What is shipped says what the two newest committed records of planted scripts say: hours of a machine differ."""
    records = [
        BenchRecord.model_validate_json(path.read_text()) for path in Path(ROOT, "results").glob("*/bench/*.json")
    ]
    newest = sorted((record for record in records if record.scripts), key=lambda record: record.started_at)[-2:]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(PredictedPace._fields)
    for each in chain.from_iterable(bench_record.predictions(record.scripts) for record in newest):
        writer.writerow((*each[:3], f"{each.predicted:.2f}", f"{each.measured:.2f}"))
    assert predictions.ERRORS.read_text(encoding="utf-8") == text.getvalue(), "write this text to the file"
