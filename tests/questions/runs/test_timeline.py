"""The bars of a timeline are those of the records."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from made_trials import make_steps, make_trials

from feedrate.analysis.steps import join_steps, select_trials
from feedrate.questions.runs.timeline import (
    COPIES,
    DEVICE,
    IDLE,
    MAIN,
    OWN,
    Bar,
    Recorded,
    Stretch,
    bars,
    recorded,
    stretches,
    sums,
)
from feedrate.schema.axes import Value

MS = 1_000_000
SLEEP: dict[str, Value] = {"mode": "train", "workload": "synthetic", "storage_format": "png", "step": "emulated"}


def trial(count: int, axes: dict[str, Value], device: str = "cpu", **columns: Any) -> Recorded:
    """The recorded steps of one trial."""
    trials = make_trials([({**SLEEP, **axes}, [50.0])], device=device).assign(trial_id="t000")
    return recorded(join_steps(select_trials(trials), make_steps("t000", count, **columns)))


def whole(found: Recorded) -> list[Bar]:
    return bars(found, Stretch(0, len(found.places), float(found.borders[-1])))


def lane(found: Sequence[Bar], name: str) -> list[Bar]:
    return [bar for bar in found if bar.lane == name]


HOST = {"fetch_ns": 4 * MS, "forward_ns": 5 * MS, "other_ns": 1 * MS}
STAGES = {"worker_read_ns": MS, "worker_decode_ns": 2 * MS, "worker_transform_ns": 0, "worker_collate_ns": MS}


def test_phases_follow_one_another() -> None:
    """Each begins where the one before ended, from the first step on; phases that are null are not there."""
    found = lane(whole(trial(3, {}, **HOST)), MAIN)
    assert [bar.part for bar in found] == ["fetch", "forward", "other"] * 3
    assert [bar.begin / MS for bar in found] == [0, 4, 9, 10, 14, 19, 20, 24, 29]
    assert all(a.end == b.begin for a, b in pairwise(found))
    assert [bar.batch for bar in found] == [0] * 3 + [1] * 3 + [2] * 3


def test_a_batch_that_is_moved_ahead_is_moved_behind_both_passes() -> None:
    """With next_batch the copy stands between backward pass and optimizer, as the step runs it."""
    columns = {"h2d_ns": MS, "backward_ns": MS, "optimizer_ns": MS, **HOST}
    for prefetcher, order in (
        ("none", ["fetch", "h2d", "forward", "backward", "optimizer", "other"]),
        ("next_batch", ["fetch", "forward", "backward", "h2d", "optimizer", "other"]),
    ):
        axes: dict[str, Value] = {"step": "real", "prefetcher": prefetcher}
        found = lane(whole(trial(2, axes, device="cuda", **columns)), MAIN)
        assert [bar.part for bar in found] == order * 2


def test_a_workers_batch_is_drawn_where_it_was_stamped() -> None:
    """From begin to end, stages in order and in proportion; one that took no time has no bar."""
    begun = [-6 * MS, 1 * MS, 3 * MS]
    moments = {"worker_begun_ns": begun, "worker_ended_ns": [at + 8 * MS for at in begun]}
    found = trial(3, {"num_workers": 2}, **HOST, **STAGES, worker=[0, 1, 0], **moments)
    drawn = whole(found)
    assert lane(drawn, OWN) == []
    (second,) = {tuple(bar[3:]) for bar in lane(drawn, "worker 1") if bar.part == "decode"}
    assert second == (3 * MS, 7 * MS)
    assert [bar.part for bar in lane(drawn, "worker 1")] == ["read", "decode", "collate"]
    first = lane(drawn, "worker 0")
    assert first[0] == Bar("worker 0", "collate", 0, 0, 2 * MS)
    assert {bar.batch for bar in first} == {0, 2}
    assert max(bar.end for bar in first) == 11 * MS


SPANS = {
    "device_h2d_ns": MS,
    "device_h2d_exposed_ns": MS,
    "device_forward_ns": 2 * MS,
    "device_backward_ns": 3 * MS,
    "device_optimizer_ns": MS,
}
ASKS = {"h2d_ns": 0, "backward_ns": 0, "optimizer_ns": 0}


def test_no_device_works_before_it_is_asked_to() -> None:
    """Spans keep their distances, and the clocks are set so that the step that waited least began when it could."""
    idle = [0, 3 * MS, 4 * MS]
    found = trial(3, {"step": "real"}, device="cuda", **(HOST | ASKS), **SPANS, device_idle_ns=idle)
    drawn = lane(whole(found), DEVICE)
    firsts = [bar.begin for bar in drawn if bar.part == "h2d"]
    launched = found.borders[:-1] + found.phases["fetch"]
    assert np.diff(firsts).tolist() == [10 * MS, 11 * MS]
    assert min(np.array(firsts) - launched) == 0
    gaps = [(bar.end - bar.begin) / MS for bar in drawn if bar.part == IDLE]
    assert gaps == [4, 3, 4]
    assert lane(whole(found), COPIES) == []
    within = Stretch(1, 2, 20.0 * MS)
    assert sums(found, within)[2] == pytest.approx(7 / 20)


def test_copies_of_a_stream_of_their_own_have_a_lane() -> None:
    """The compute stream shows what it waited for them."""
    axes: dict[str, Value] = {"step": "real", "prefetcher": "stream"}
    given = HOST | ASKS | SPANS | {"device_h2d_ns": 5 * MS, "device_idle_ns": [0, 4 * MS]}
    found = whole(trial(2, axes, device="cuda", **given))
    assert [(bar.end - bar.begin) / MS for bar in lane(found, COPIES)] == [5, 5]
    assert [(bar.end - bar.begin) / MS for bar in lane(found, DEVICE) if bar.part == "h2d"] == [1, 1]
    # The device's first span begins behind the host's copy of the next batch, not before it.
    later = HOST | ASKS | SPANS | {"h2d_ns": 3 * MS, "device_idle_ns": [0, 4 * MS]}
    waiting = whole(trial(2, axes, device="cuda", **later))
    firsts = [bar.begin for bar in lane(waiting, DEVICE) if bar.part == "h2d"]
    assert min(np.subtract(firsts, [bar.begin for bar in lane(waiting, COPIES)])) == 3 * MS


def test_the_steps_that_are_most_like_the_mean_are_looked_at() -> None:
    """In wall clock and in waiting for data, not the first ones and not the fastest."""
    fetch = [40, *[10] * 6, 1, 1, 30, 1, 1, 30, 1, 10, 1, 1, 1]
    (stretch,) = stretches([trial(len(fetch), {}, fetch_ns=[ms * MS for ms in fetch], forward_ns=MS, other_ns=0)])
    off = [abs(np.mean(fetch[at : at + 6]) - np.mean(fetch)) for at in range(len(fetch) - 5)]
    assert stretch.first == np.argmin(off)


@pytest.mark.parametrize(("fast", "slow"), [([10] * 12, 200), ([1500, *[10] * 19], 90)])
def test_no_trial_is_looked_at_beyond_its_last_step(fast: list[int], slow: int) -> None:
    """A trial that was recorded for a shorter time than one slow step lasts is no idle one afterwards."""
    trials = [trial(len(ms), {}, fetch_ns=[at * MS for at in ms], other_ns=0) for ms in (fast, [slow] * 12)]
    for found, stretch in zip(trials, stretches(trials), strict=True):
        assert max(bar.end for bar in bars(found, stretch)) >= stretch.span_ns > 0


def test_sums_say_what_the_bars_show() -> None:
    """The mean step and the share of fetching; of the device nothing is known without its clock."""
    step_ns, fetching, idle = sums(trial(8, {"num_workers": 1}, **HOST, **STAGES), Stretch(1, 6, 60.0 * MS))
    assert step_ns == 10 * MS
    assert fetching == pytest.approx(0.4)
    assert idle is None
