"""Facts of a loader: each is told where it is so, with what to do, and nowhere else."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from feedrate.attach import facts
from feedrate.attach.account import Account
from feedrate.attach.facts import Evidence, Outside
from feedrate.attach.records import BATCH, FIRST, READ, Loader, Pass, Process
from feedrate.attach.run import run
from feedrate.machine.probes.procfs import Footprint
from feedrate.schema import plugins

PLAIN: dict[str, Any] = {"num_workers": 2, "prefetch_factor": 2, "pin_memory": False, "iterable": False, "made": []}


def worker(pid: int, batches: int = 20, print_: int | None = None, read: int = 0) -> Process:
    """A worker process that prepared so many batches, the first of which has a fingerprint, and read so many bytes."""
    records = np.full((batches + 2, 12), BATCH, np.int64)
    records[-2, [0, 3]] = FIRST, pid if print_ is None else print_
    records[-1, [0, 3]] = READ, read
    return Process(pid, 1, records, ())


def evidence(passes: int = 3, batches: int = 40, **settings: Any) -> Evidence:
    """A loader of which there is nothing to tell."""
    steps = pd.DataFrame({"cuda": [False], "first": [True], "made_ns": [-2], "begun_ns": [-1], "got_ns": [-1]})
    loader = Loader(1, PLAIN | settings, steps, pd.DataFrame())
    return Evidence(
        loader=loader,
        account=Account(100, {"starting": 1, "forward": 99}, 10, 0, frozenset()),
        passes=[Pass(number, number, number + 1, 2, batches) for number in range(passes)],
        workers=[[worker(1), worker(2)]],
        batch={"objects": 2, "bytes": 1 << 20},
        cuda=False,
        outside=Outside(2),
    )


def prepared(us: int, samples: int) -> Evidence:
    """A loader whose one batch took so long a sample."""
    batches = pd.DataFrame({"begun_ns": [5], "ended_ns": [5 + 1000 * us * samples], "samples": [samples]})
    return replace(NOTHING, loader=replace(NOTHING.loader, batches=batches))


def shards(ends: tuple[int, ...], waits: tuple[tuple[int, int], ...]) -> Evidence:
    """An iterable data set whose workers gave their last batches so late; waits have a begin and a length."""
    batches = [np.array([[BATCH, 0, 1, *[0] * 9], [BATCH, 0, end, *[0] * 9]], np.int64) for end in ends]
    workers = [Process(number, 1, rows, ()) for number, rows in enumerate(batches)]
    begun = [begin for begin, _ in waits]
    steps = pd.DataFrame({"cuda": False, "begun_ns": begun, "got_ns": [begin + took for begin, took in waits]})
    found = evidence(iterable=True)
    return replace(found, workers=[workers], loader=replace(found.loader, steps=steps.assign(first=False, made_ns=0)))


NOTHING = evidence()
FACTS: dict[str, tuple[Evidence, str, str]] = {
    "costly_order": (
        replace(NOTHING, waits={"order": 0.2}, account=replace(NOTHING.account, rows={"waiting": 40, "forward": 60})),
        "8 % of the time batches lie ready behind a slow one",
        "in_order=False",
    ),
    "growing_memory": (
        replace(evidence(passes=9), outside=Outside(2, [(at, (1 + at) << 29) for at in range(9)])),
        "own memory grew by 3.2 GB",
        "keep no tensors from step to step",
    ),
    "idle_settings": (evidence(pin_memory=True), "pin_memory=True does nothing", "leave pin_memory out"),
    "idle_workers": (
        replace(NOTHING, workers=[[worker(1), worker(2, 1), worker(3, 0)]]),
        "2 of 3 workers gave nothing",
        "as many shards as workers",
    ),
    "kept_batches": (
        replace(NOTHING, account=replace(NOTHING.account, kept_steps=1234)),
        "1,234 optimizer steps follow the last batch",
        "while True: yield from loader",
    ),
    "little_shared_memory": (
        replace(NOTHING, outside=Outside(2, shm_bytes=6 << 20)),
        "take up to 4.2 MB of /dev/shm, which has 6.3 MB",
        "--shm-size",
    ),
    "many_objects": (
        replace(NOTHING, batch={"objects": 1281, "bytes": 1281 * 300}),
        "a batch has 1,281 tensors of 300 bytes on average",
        "one tensor",
    ),
    "many_workers": (
        replace(evidence(num_workers=8), activity={"computing": 0.6, "waiting": 0.2}),
        "8 workers compute on 2 cores",
        "as many workers as cores",
    ),
    "pinned_cores": (
        replace(NOTHING, outside=Outside(2, given=2, allowed=1)),
        "pinned itself to 1 of its 2 cores",
        "os.sched_setaffinity",
    ),
    "read_again": (
        replace(NOTHING, workers=[[worker(1, read=200 << 20), worker(2, read=0)]]),
        "workers read 209.7 MB to deliver 41.9 MB",
        "chunks of one sample",
    ),
    "read_once": (
        replace(NOTHING, outside=Outside(2, read=[(0, 0), (1, 1 << 30), (2, 1 << 30), (9, 1 << 30)])),
        "in the first pass alone (1.1 GB)",
        "later passes",
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
    "sent_states": (
        replace(evidence(snapshot_every_n_steps=1), cause="receiving"),
        "with every batch workers send the state of the data set",
        "snapshot_every_n_steps=100",
    ),
    "shared_state": (
        replace(NOTHING, shared=0.6),
        "workers wait for one another, in a lock or a Manager, 60 % of the time",
        "open files in the worker",
    ),
    "short_epochs": (evidence(batches=3), "an epoch has 3 batches, and workers may prepare 4 at once", "fewer workers"),
    "slow_handover": (
        replace(
            NOTHING,
            account=replace(NOTHING.account, wall_ns=10**9, rows={"receiving": 80_000_000}),
            handing=0.9,
        ),
        "a tensor takes 4.0 ms to hand over, 8 % of the time",
        "file_system",
    ),
    "tiny_samples": (
        replace(prepared(us=9, samples=500), cause="here"),
        "a sample takes 9 µs",
        "__getitems__",
    ),
    "uneven_shards": (
        shards((10, 12, 100), waits=((5, 1), (11, 3), (50, 9))),
        "69 % of the waits come when half of the workers have no data left",
        "shards of like length",
    ),
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
    assert facts.every(shards((90, 95, 100), waits=((5, 5), (50, 5), (96, 5)))) == (), "all end at about the same time"
    assert facts.every(replace(NOTHING, passes=[], workers=[], batch={})) == ()
    assert facts.every(replace(FACTS["costly_order"][0], cause="order")) == ()  # it is what is said already
    assert facts.every(replace(prepared(us=200, samples=500), cause="here")) == ()
    assert facts.every(prepared(us=9, samples=500)) == (), "other things hold the training back"
    tiny, whole = FACTS["tiny_samples"][0], PLAIN | {"at_once": True}
    assert facts.every(replace(tiny, loader=replace(tiny.loader, settings=whole))) == (), "it gives whole batches"
    large = FACTS["read_again"][0]
    explained = [facts.every(replace(large, cause=cause))[0].explains for cause in ("sending", "reading")]
    assert explained == ["", "waiting"], "storage is not what is waited for"
    grown, steps = FACTS["growing_memory"][0], NOTHING.loader.steps.assign(got_ns=6)
    assert facts.every(replace(grown, loader=replace(grown.loader, steps=steps))) == (), "workers came to be meanwhile"
    assert facts.every(replace(FACTS["slow_handover"][0], handing=0.4)) == (), "what is received takes long by itself"
    assert facts.every(replace(FACTS["slow_handover"][0], batch={"objects": 9, "bytes": 9})) == (), "as long as usual"
    assert facts.every(replace(evidence(ranks=2), outside=Outside(2, given=2, allowed=1))) == ()


def test_loaders_that_are_made_anew_are_to_be_made_once() -> None:
    """Their workers cannot live on, whatever they are told."""
    account = replace(NOTHING.account, rows={"starting": 30, "forward": 70})
    (fact,) = facts.every(replace(evidence(persistent_workers=True), loaders=3, account=account))
    assert "3 loaders are made in one place" in fact.text
    assert fact.remedy == "make the loader once, before the loop, with persistent_workers=True"
    assert fact.explains == "starting"


@pytest.mark.parametrize(("grown", "allocated", "told"), [(1 << 28, 0, "copied 536.9 MB"), (1 << 28, 1 << 28, "")])
def test_pages_that_were_copied_are_told_from_new_ones(grown: int, allocated: int, told: str) -> None:
    """A worker that has as much memory as before, but to itself, copied it; one that has more took it."""
    first, last = Footprint(9, 0, 1 << 30, 1 << 20), Footprint(9, 0, (1 << 30) + allocated, (1 << 20) + grown)
    found = facts.every(replace(NOTHING, outside=Outside(2, footprints={1: (first, last), 2: (first, last)})))
    assert [told in fact.text.replace("\u00a0", " ") for fact in found] == [True] * bool(told)


TOKENS = """
import torch
from torch.utils.data import DataLoader
torch.set_num_threads(1)

def tokens(texts):
    ids = [[sum(map(ord, word)) % 997 for word in text.split()] for text in texts]
    return torch.tensor(ids), *(torch.full((len(ids),), len(ids)) for _ in range(9))

texts = [("so many words as are in a line of text " * 160) for _ in range(64 * 30)]
for _ in DataLoader(texts, batch_size=64, num_workers=1, collate_fn=tokens):
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(("shared", "told"), [("file_descriptor", True), ("file_system", False)])
def test_tensors_that_wait_for_their_worker_s_python(shared: str, told: bool, tmp_path: Path) -> None:
    """Words become numbers in a worker's ``collate_fn``; what is to be done does away with what was told."""
    script = tmp_path / "tokens.py"
    script.write_text(TOKENS.replace("(1)\n", f"(1)\ntorch.multiprocessing.set_sharing_strategy('{shared}')\n", 1))
    ended = run([sys.executable, str(script)])
    assert ended.returncode == 0
    assert any("to hand over" in fact.text for fact in ended.report.facts) == told


LISTED = """
import sys
import numpy as np
from torch.utils.data import DataLoader
from time import sleep

class Listed:
    def __init__(self, items):
        self.items = items
    def __len__(self):
        return len(self.items)
    def __getitem__(self, index):
        return len(self.items[index])

items = [str(number) * 20 for number in range(1_500_000)]
data = Listed(items if sys.argv[1] == "list" else np.array(items, "S"))
del items
for _ in DataLoader(data, batch_size=8192, shuffle=True, num_workers=2):
    sleep(0.01)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kept", "told"), [("list", True), ("array", False)])
def test_workers_that_copy_what_they_only_read(kept: str, told: bool, tmp_path: Path) -> None:
    """pytorch/pytorch#13246: counting references writes to every object of a list, to none of an array."""
    script = tmp_path / "listed.py"
    script.write_text(LISTED)
    ended = run([sys.executable, str(script), kept], lines=False)
    assert ended.returncode == 0
    assert any("workers copied" in fact.text for fact in ended.report.facts) == told
