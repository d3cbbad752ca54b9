"""Facts of a loader: each is told where it is so, with what to do, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feedrate.attach import facts
from feedrate.attach.account import Account
from feedrate.attach.facts import Evidence
from feedrate.attach.records import BATCH, FIRST, Loader, Pass, Process
from feedrate.schema import plugins

PLAIN: dict[str, Any] = {"num_workers": 2, "prefetch_factor": 2, "pin_memory": False, "iterable": False, "made": []}


def worker(pid: int, batches: int = 20, print_: int | None = None) -> Process:
    """A worker process that prepared so many batches, the first of which has a fingerprint."""
    records = np.full((batches + 1, 12), BATCH, np.int64)
    records[-1, [0, 3]] = FIRST, pid if print_ is None else print_
    return Process(pid, 1, records, ())


def evidence(passes: int = 3, batches: int = 40, **settings: Any) -> Evidence:
    """A loader of which there is nothing to tell."""
    loader = Loader(1, PLAIN | settings, pd.DataFrame({"cuda": [False]}), pd.DataFrame())
    return Evidence(
        loader=loader,
        account=Account(100, {"starting": 1, "forward": 99}, 10, 0, frozenset()),
        passes=[Pass(number, number, number + 1, 2, batches) for number in range(passes)],
        workers=[[worker(1), worker(2)]],
        batch={"objects": 2, "bytes": 1 << 20},
        cuda=False,
    )


NOTHING = evidence()
FACTS: dict[str, tuple[Evidence, str, str]] = {
    "idle_settings": (evidence(pin_memory=True), "pin_memory=True does nothing", "leave pin_memory out"),
    "idle_workers": (
        replace(NOTHING, workers=[[worker(1), worker(2, 1), worker(3, 0)]]),
        "2 of 3 workers gave nothing",
        "as many shards as workers",
    ),
    "many_objects": (
        replace(NOTHING, batch={"objects": 1281, "bytes": 1281 * 300}),
        "a batch has 1,281 tensors of 300 bytes on average",
        "one tensor",
    ),
    "restarts": (
        replace(NOTHING, account=replace(NOTHING.account, rows={"starting": 30, "forward": 70})),
        "started anew in each of 3 passes, 30 % of the time",
        "persistent_workers=True",
    ),
    "same_samples": (
        replace(evidence(iterable=True), workers=[[worker(1, print_=7), worker(2, print_=7)]]),
        "all 2 workers yield the same samples, so that each comes 2 times",
        "get_worker_info()",
    ),
    "short_epochs": (evidence(batches=3), "an epoch has 3 batches, and workers may prepare 4 at once", "fewer workers"),
}


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_is_told_where_it_is_so(name: str) -> None:
    """It alone, in a sentence with what to do."""
    found, text, remedy = FACTS[name]
    (fact,) = facts.every(found)
    assert text in fact.text.replace("\u00a0", " ")
    assert remedy in fact.remedy


def test_every_fact_is_tried_and_none_is_told_of_a_plain_loader() -> None:
    """Each file of the folder has a case here; different samples, long epochs and few tensors are no news."""
    assert tuple(FACTS) == plugins.names("feedrate.attach.facts")
    assert facts.every(NOTHING) == ()
    assert facts.every(replace(evidence(iterable=True), workers=[[worker(1)], []])) == ()
    assert facts.every(replace(NOTHING, passes=[], workers=[], batch={})) == ()
