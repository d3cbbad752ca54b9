"""How many workers, of which kind, and what do they cost?

We compare workers with fewer and more workers, with threads, and with workers that live on. We also measure their other
costs: memory that grows when workers touch an index, context switches, start-up and respawn. We also check whether
workers remain when the training process dies.

It does not show machines that share their cores with others. It does not show loaders other than PyTorch's, except
feedrate's own threads.
"""

from __future__ import annotations

from typing import Any

from feedrate.plan.claim import Claim, Part, change, pair, slope
from feedrate.plan.suite import claims_suite
from feedrate.suites._cells import LMDB, PAIRS, PLANTED, PNG

_PLANTED: dict[str, Any] = {**PLANTED, "mode": "load"}
_SLEEPS = {**_PLANTED, "read_us": 2000}
_COMPUTES = {**_PLANTED, "decode_us": 2000}
_MANY = {"num_workers": 8}
_EXCESSIVE = (PNG, {**PNG, "batch_size": 8}, {**PNG, "batch_size": 128}, LMDB)
_THREADS = {"loader": "threads"}
_PROCESSES = {"loader": "torch"}
_SERIES = (2, 8, 32)
_INDEXED = {**_PLANTED, **PAIRS, "batch_size": 32, "index_entries": 200_000}
_EPOCHS = {**_PLANTED, **PAIRS}
_ENDS = ("sigkill", "sigterm", "sigint", "exception", "return")
_GUARDED = ("sigkill", "sigterm")


def _ending(how: str, guarded: bool) -> dict[str, Any]:
    return {"check": "termination", "ends_by": how, "guarded": guarded}


_CLAIMS = (
    Claim(
        id="excess-workers",
        says="More workers than cores make loading slower, by too frequent context switches.",
        sources=("BOT",),
        design="""A has two workers, one for each core. B has eight, four for each core. The loader alone reads PNG
        files in batches of 8, 32 and 128, and raw pixels from LMDB. If context switches are the reason, they must also
        become more frequent per sample. Voluntary and involuntary ones count.""",
        not_shown="""Machines with more than two cores, where two workers leave some idle. slow-dataset-workers has up
        to 32 workers.""",
        figures="No figure is given: the source warns of context switches and waits for storage.",
        most_cores=2,
        effect=pair(PAIRS, _MANY, *_EXCESSIVE, says="less"),
        also=(Part("context switches become more frequent", pair(PAIRS, _MANY, *_EXCESSIVE, metric="switches")),),
    ),
    Claim(
        id="gil-threads",
        says="Threads cannot replace worker processes for loading, as Python’s lock lets one of them run at a time.",
        sources=("BOT",),
        design="""A loads in two processes, B in two threads of the training process. Both load PNG files of 64 pixels,
        which a library decodes without the lock. Both also load raw pixels from LMDB, where most work is Python. We
        also measure planted work: 2 ms a sample with the lock held, and reads that wait.""",
        not_shown="Interpreters without that lock.",
        effect=pair(_PROCESSES, _THREADS, {**PNG, **PAIRS}, {**LMDB, **PAIRS}, says="less"),
        asides={
            "planted Python work": pair(_PROCESSES, _THREADS, {**_COMPUTES, **PAIRS}, says="less"),
            "planted reads that wait 2 ms": pair(_PROCESSES, _THREADS, {**_SLEEPS, **PAIRS}, says="less"),
        },
    ),
    Claim(
        id="clean-termination",
        says="Workers are left behind, as defunct processes or running, when the training process dies.",
        sources=("BOT",),
        design="""A check: an ordinary training process with two workers runs in a process namespace. Process 1 of the
        namespace never waits for any other process. A container that starts with a shell or a script has such a process
        1. We kill the training process (SIGKILL) and watch its workers until the last is gone. A worker that still runs
        or lies defunct 10 s later was left behind. We repeat the check under a process 1 that asks orphans for their
        status, as an init does. There the process ends by SIGKILL, SIGTERM, SIGINT, an exception and a plain return. We
        repeat SIGKILL and SIGTERM with feedrate's remedies. These are workers that die with their parent, and a handler
        that ends in order.""",
        not_shown="How many containers have such a process 1: docker run --init gives one that asks.",
        figures="No figure is given: the source saw defunct processes.",
        facts=(
            _ending("sigkill", False) | {"first_process": "never_waits"},
            *(_ending(how, False) for how in _ENDS),
            *(_ending(how, True) for how in _GUARDED),
        ),
    ),
    Claim(
        id="workers-sigterm",
        says="Workers are daemonic: when the training process ends, all of them are terminated with SIGTERM.",
        sources=("BOT",),
        design="""A check: a training process with two workers returns in the middle of an epoch. A worker that gets
        SIGTERM reports it. The sentence holds if all do. We repeat the check after an exception. No time is
        measured.""",
        not_shown="Workers that hang in a read: they are terminated after 5 s.",
        facts=({"check": "worker_signal", "ends_by": "return"}, {"check": "worker_signal", "ends_by": "exception"}),
    ),
    Claim(
        id="worker-memory",
        says="Forked workers come to copy a large list of Python objects that they only read.",
        sources=("API",),
        design="""A keeps an index of 200,000 entries as a list of dictionaries, B as numpy arrays. Forked workers share
        its pages until they touch them. Reading a Python object touches its page. We compare the growth of the workers'
        own memory from the first batch to the end of the window. If the sentence holds, B's memory grows less.""",
        not_shown="""The size that the source names: every worker comes to take as much memory as the training process.
        A whole epoch, in which workers touch more of the list.""",
        effect=change("index_kind", "list", "numpy", _INDEXED, metric="workers_memory", says="less"),
        asides={
            "one serialized buffer instead": change(
                "index_kind", "list", "serialized", _INDEXED, metric="workers_memory", says="less"
            ),
            "throughput with one serialized buffer": change("index_kind", "list", "serialized", _INDEXED),
            "the workers' memory when they are spawned": change(
                "index_kind", "list", "numpy", {**_INDEXED, "start_method": "spawn"}, metric="workers_uss", says="less"
            ),
            **{
                f"time to the first batch when they are spawned, index_kind={kind}": change(
                    "start_method", "fork", "spawn", {**_INDEXED, "index_kind": kind}, metric="startup"
                )
                for kind in ("list", "numpy")
            },
        },
    ),
    Claim(
        id="slow-dataset-workers",
        says="Workers help a dataset that waits far beyond the number of cores, one that computes only up to it.",
        sources=("AIDA",),
        design="""An interaction: we fit the effect of a doubling of the workers, from 2 to 32. In one dataset, reading
        a sample waits 2 ms. In the other, decoding a sample computes for 2 ms. We divide the effect on the first by the
        effect on the second. Also, the dataset that computes must not become faster from 8 workers to 32. We compare
        that ratio with 1. Both costs are planted. The loader alone makes batches of 8.""",
        not_shown="""A disk. Costs are planted, so most is true by construction. Sleeps take no core. They do not wait
        for each other, but reads of a disk do. We test that the DataLoader keeps up with so many workers.""",
        most_cores=8,
        by_construction=True,
        effect=slope("num_workers", _SERIES, _SLEEPS, against=[_COMPUTES]),
        also=(
            Part(
                "beyond the cores a dataset that computes becomes no faster",
                pair(_MANY, {"num_workers": 32}, _COMPUTES, says="less", figure=1.0),
            ),
        ),
        asides={
            "reads that wait": slope("num_workers", _SERIES, _SLEEPS),
            "decoding that computes": slope("num_workers", _SERIES, _COMPUTES),
        },
    ),
    Claim(
        id="next-epoch-copies",
        says="What the training process changes in its dataset between epochs does not reach persistent workers.",
        sources=("field",),
        design="""A check: the samples of a dataset depend on a number. The training process changes the number between
        two epochs, and the workers live on. The samples of the second epoch tell which number the workers hold. We
        repeat the check with workers that start anew every epoch. No time is measured.""",
        not_shown="Values in shared memory, which reach workers at any time.",
        facts=(
            {"check": "next_epoch", "persistent_workers": True},
            {"check": "next_epoch", "persistent_workers": False},
        ),
    ),
    Claim(
        id="persistent-workers",
        says="Keeping workers alive from epoch to epoch pays when epochs are short.",
        sources=("field",),
        design="""A starts two workers anew for every epoch, B keeps them. Epochs have 8 steps, and the respawn lies
        inside the window. We also measure epochs of 128 steps. Batches have 8 samples, which cost next to nothing.""",
        not_shown="Datasets that hold much: their workers take longer to start (worker-memory has larger ones).",
        effect=change("persistent_workers", False, True, {**_EPOCHS, "epoch_steps": 8}),
        asides={"epochs of 128 steps": change("persistent_workers", False, True, {**_EPOCHS, "epoch_steps": 128})},
    ),
)

SUITE = claims_suite(
    "How many workers, of which kind, and what do they cost?",
    ("claims", "worker_scaling", "worker_startup"),
    _CLAIMS,
    "13m",
)
