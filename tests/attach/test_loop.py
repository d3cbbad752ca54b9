"""What a loop's records say, on timelines whose answer is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter
from timelines import MS, constant, loader_of, process_of

from feedrate.analysis.estimate import Estimate
from feedrate.attach import causes, loop, records
from feedrate.attach.account import ROWS, account
from feedrate.schema.window import warm_up_steps


def ends(found: Estimate) -> tuple[float, float, float]:
    return found.value, found.low, found.high


def test_pace_and_waits_of_a_known_timeline() -> None:
    """Steps after the warm-up count, the last as it has ended; waits and pace are sums over them."""
    loader = loader_of(constant(100, 3 * MS), constant(100, 7 * MS), num_workers=2)
    pace = loop.pacing(loader)
    assert pace is not None
    assert pace.steps == 100 - warm_up_steps(2, 2)
    assert ends(pace.steps_per_s) == pytest.approx((100, 100, 100))
    assert ends(pace.wait_share) == pytest.approx((0.3, 0.3, 0.3))
    assert (pace.startup_share, pace.starved_share) == (0, None)


def test_the_start_of_an_iterator_is_a_wait() -> None:
    """From the making of an iterator on its first batch is waited for; the warm-up has the first."""
    loader = loader_of(constant(100, 3 * MS), constant(100, 7 * MS))
    loader.steps.loc[50, "first"] = True
    loader.steps.loc[50, "made_ns"] = loader.steps["begun_ns"][50] - 50 * MS
    pace = loop.pacing(loader)
    assert pace is not None
    assert pace.wait_share.value == pytest.approx((95 * 3 + 50) / (95 * 10 + 50))
    assert pace.startup_share == pytest.approx(53 / (95 * 10 + 50))


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_steps_are_not_measured(count: int) -> None:
    """Two whole steps after the first are the least; fewer have no pace."""
    loader = loader_of(constant(count + 1, MS), constant(count + 1, MS))
    assert (loop.pacing(loader) is None) == (count < 2)


@pytest.mark.parametrize(
    ("steps", "workers", "count"), [(640, 0, 32), (640, 4, 32), (60, 4, 7), (12, 0, 6), (3, 0, 2), (50, 8, 25)]
)
def test_stretches_are_rounds_of_the_workers(steps: int, workers: int, count: int) -> None:
    """Stretches hold every step once, in its order; each but the last is whole rounds of the workers."""
    rng = np.random.default_rng(0)
    frame = loop.whole_steps(loader_of(rng.integers(MS, 2 * MS, steps + 100), constant(steps + 100, MS)))[:steps]
    parts = loop.stretches(frame, workers)
    assert np.concatenate(parts).tolist() == list(range(steps))
    assert len(parts) <= count
    assert len(parts) >= min(count, 6)
    if steps >= 12 * workers:
        assert [len(part) % max(1, workers) for part in parts[:-1]] == [0] * (len(parts) - 1)


CAUSES: dict[str, tuple[int, tuple[int, ...] | None, dict[str, Any]]] = {
    "step": (2, (1, 80, 80, 0, 0), {"num_workers": 1}),
    "loader": (30, None, {"watched": True}),
    "here": (80, (0, 79, 79, 0, 0), {}),
    "receiving": (30, (40, 50, 50, 0, 0), {"num_workers": 1}),
    "foreign": (30, (1, 90, 40, 40, 0), {"num_workers": 1}),
    "cores": (30, (1, 190, 130, 60, 0), {"num_workers": 2}),
    "collating": (30, (1, 90, 90, 0, 60), {"num_workers": 1}),
    "own": (30, (1, 90, 90, 0, 60), {"num_workers": 1, "collate": "train"}),
    "reading": (30, (1, 90, 20, 5, 0), {"num_workers": 1}),
    "computing": (30, (1, 90, 80, 5, 10), {"num_workers": 1}),
    "sending": (30, (25, 50, 50, 0, 0), {"num_workers": 1}),
    "unsettled": (30, (15, 50, 25, 5, 0), {"num_workers": 1}),
}
"""By cause: the wait of each step of 100 ms; how long before it came its batch was ready, took,
computed, was queued, collated."""


@pytest.mark.parametrize("name", CAUSES)
def test_each_cause_is_told(name: str) -> None:
    """A loop that is held back by one thing is said to be; shares are of the time of those who prepare."""
    wait, batch, settings = CAUSES[name]
    scaled = [tuple(MS * part for part in batch)] * 100 if batch else None
    process = process_of(constant(100, wait * MS), constant(100, (100 - wait) * MS), batches=scaled, **settings)
    (loader,) = records.loaders([process])
    pace, accounted = loop.pacing(loader), account(process)
    assert pace is not None
    assert accounted is not None
    found = causes.name(loader, pace, accounted, 2)
    assert found.name == name
    assert accounted.share(found.row) == pytest.approx(wait / 100 if name != "step" else 0.98, abs=0.01)
    if batch:
        _, took, cpu, queued, collate = (part / (100 * settings.get("num_workers", 1)) for part in batch)
        expected = (took, cpu, queued, took - cpu - queued, collate)
        names = ("preparing", "computing", "queued", "waiting", "collating")
        assert [found.numbers[each] for each in names] == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("row", [name for name, row in ROWS.items() if row.remedy])
def test_the_largest_row_that_can_go_is_the_cause(row: str) -> None:
    """However long start-up and forward pass take, it is named with what to do."""
    process = process_of(constant(100, MS), constant(100, MS))
    (loader,) = records.loaders([process])
    pace, accounted = loop.pacing(loader), account(process)
    assert pace is not None
    assert accounted is not None
    shares = {"start_up": 50, "forward": 30, "waiting": 5, row: 15}
    found = causes.name(loader, pace, replace(accounted, wall_ns=100, rows=shares), 2)
    assert (found.row, found.name, found.remedy) == (row, row, ROWS[row].remedy)


def caused(shares: dict[str, int], starved: float | None = None, **settings: Any) -> tuple[str, str]:
    """What is told of a loop, and what to do, by the per cent of its rows and what of the time its device starves."""
    process = process_of(constant(100, MS), constant(100, MS), **settings)
    (loader,) = records.loaders([process])
    pace, accounted = loop.pacing(loader), account(process)
    assert pace is not None
    assert accounted is not None
    pace = replace(pace, starved_share=None if starved is None else Estimate(starved, 0, 1, 9, "share"))
    accounted = replace(accounted, wall_ns=100, rows=shares)
    found = causes.name(loader, pace, accounted, 2)
    return found.text(accounted), found.remedy


def test_a_device_that_works_meanwhile_spares_only_what_it_works_in() -> None:
    """A wait that it works through costs nothing; an evaluation does. What can go is what it starves, at most."""
    assert caused({"forward": 50, "waiting": 50}, starved=0.01)[0].startswith("the step itself")
    assert caused({"forward": 30, "waiting": 40, "evaluation": 30}, starved=0.01)[0].startswith("evaluation")
    text, _ = caused({"forward": 20, "waiting": 80}, starved=0.1)
    assert text.endswith("; the device works in most of it; without it at most 1.1× as fast")
    assert caused({"forward": 20, "waiting": 80})[0].endswith("without it at most 5.0× as fast")


def test_starts_of_workers_that_live_on_are_first_batches() -> None:
    """Nobody is told to set what is set."""
    started = {"forward": 50, "starting": 50}
    assert caused(started, persistent_workers=True)[1].startswith("several passes in one")
    assert "persistent_workers=True" in caused(started)[1]


@pytest.mark.slow
def test_the_interval_holds_the_truth() -> None:
    """Of loops whose steps resemble their neighbours (AR(1)) the 95 % interval nearly always holds the true pace."""
    rng, held, loops, rho = np.random.default_rng(1), 0, 40, 0.9
    for _ in range(loops):
        noise = lfilter([np.sqrt(1 - rho**2)], [1, -rho], rng.standard_normal(1200))[200:]
        steps = (10 * MS * np.clip(1 + 0.1 * noise, 0.1, None)).astype(np.int64)
        pace = loop.pacing(loader_of(constant(1000, MS), steps))
        assert pace is not None
        held += pace.steps_per_s.low <= 1000 / 11 <= pace.steps_per_s.high
    assert held / loops >= 0.88
