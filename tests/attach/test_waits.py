"""What workers did while a batch was waited for, on timelines whose answer is known."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from feedrate.attach import waits
from feedrate.attach.records import Loader

BATCH = {"samples": 8, "collate_ns": 0, "cpu_ns": 0, "queued_ns": 0, "iterator": 0, "process_cpu_ns": 0}
PLAIN = {"reading": 100.0}
SPLITS: dict[str, tuple[list[dict[str, Any]], dict[str, float]]] = {
    "reads": ([{}], PLAIN),
    "computes in its threads": ([{"cpu_ns": 30, "process_cpu_ns": 60}], {"computing": 60, "reading": 40}),
    "stands in line": ([{"cpu_ns": 50, "queued_ns": 25}], {"computing": 50, "queued": 25, "reading": 25}),
    "puts samples together": ([{"cpu_ns": 90, "collate_ns": 80}], {"collating": 80, "computing": 10, "reading": 10}),
    "collates asleep": ([{"cpu_ns": 10, "collate_ns": 80}], {"collating": 80, "reading": 20}),
    "sends for half of the wait": ([{"ended_ns": 150}], {"reading": 50, "sending": 50}),
    "has an earlier one before it": (
        [{"batch": 0, "ended_ns": 150, "cpu_ns": 50}, {"batch": 1, "begun_ns": 150}],
        {"computing": 50, "reading": 50},
    ),
    "holds up one that lies ready": (
        [{}, {"batch": 3, "worker": 1, "begun_ns": 100, "ended_ns": 120}],
        {"order": 80, "reading": 20},
    ),
    "holds up nobody while the other works on": (
        [{}, {"batch": 3, "worker": 1, "ended_ns": 120}, {"batch": 5, "worker": 1, "begun_ns": 120}],
        PLAIN,
    ),
}
"""By what the worker does: batches, of which number 2 is waited for from 100 to 200; per cent of the wait."""


@pytest.mark.parametrize("name", SPLITS)
def test_a_wait_is_split(name: str) -> None:
    """By what the worker of the batch did, within the wait alone, and what the order cost."""
    batches, expected = SPLITS[name]
    whole = [{"worker": 0, "batch": 2, "begun_ns": 100, "ended_ns": 200} | BATCH | batch for batch in batches]
    step = {"iterator": 0, "batch": 2, "worker": 0, "first": False, "begun_ns": 100, "came_ns": 200}
    loader = Loader(1, {}, pd.DataFrame(), pd.DataFrame(whole))
    found = waits.split(loader, pd.DataFrame([step]))
    assert {name: 100 * share for name, share in found.items() if share} == pytest.approx(expected)


def test_without_a_wait_there_is_nothing_to_split() -> None:
    """Batches that lay ready, and those that the training process prepared itself."""
    step = {"iterator": 0, "batch": 2, "worker": 0, "first": False, "begun_ns": 100, "came_ns": 100}
    steps = pd.DataFrame([step, step | {"worker": -1, "came_ns": 200}])
    assert waits.split(Loader(1, {}, steps, pd.DataFrame()), steps) == {}
