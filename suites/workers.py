"""How many workers, of which kind, and what do they cost?

Workers are compared with fewer and with more of them, with threads, and with workers that live on. Their other costs
stand beside it: memory that grows because an index is touched, context switches, start-up and respawn. So does what
is left of them when the training process dies.

It does not show machines that share their cores with others. Nor does it show loaders other than PyTorch's, but for
the threads, which are feedrate's own.
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
        design="""A has two workers, B eight: as many as two cores have, and four times as many. The loader alone, PNG
        files in batches of 8, 32 and 128, and raw pixels from LMDB. Besides, context switches, voluntary and
        involuntary ones together, must become more frequent for a sample, if they are the reason.""",
        not_shown="""Machines of more than two cores, where two workers leave some idle; slow-dataset-workers has up to
        32.""",
        figures="No figure is given: the source warns of context switches and waits for storage.",
        most_cores=2,
        effect=pair(PAIRS, _MANY, *_EXCESSIVE, says="less"),
        also=(Part("context switches become more frequent", pair(PAIRS, _MANY, *_EXCESSIVE, metric="switches")),),
    ),
    Claim(
        id="gil-threads",
        says="Threads cannot replace worker processes for loading, as Python’s lock lets one of them run at a time.",
        sources=("BOT",),
        design="""A loads in two processes, B in two threads of the training process. Both load PNG files of 64
        pixels, which a library decodes without the lock. Both load raw pixels from LMDB, too, where most is Python.
        Work that is planted stands beside it: 2 ms a sample during which the lock is held, and reads that wait.""",
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
        design="""A check: a training process with two workers, written as anybody writes one, runs in a process
        namespace. Process 1 of it never waits for anybody, as in a container that starts with a shell or a script. It
        is killed (SIGKILL), and its workers are watched until the last is gone. One that still runs or lies defunct 10
        s later was left behind. Beside it stands the same under a process 1 that asks orphans for their status, as an
        init does. The process ends by SIGKILL, SIGTERM, SIGINT, an exception and a plain return. SIGKILL and SIGTERM
        also run with feedrate's remedies: workers that die with their parent, and a handler that ends in order.""",
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
        design="""A check: a training process with two workers returns in the middle of an epoch. Its workers say how
        many of them got SIGTERM. It is seen if all did. Beside it the same after an exception. No time is measured.""",
        not_shown="Workers that hang in a read: those are terminated after 5 s.",
        facts=({"check": "worker_signal", "ends_by": "return"}, {"check": "worker_signal", "ends_by": "exception"}),
    ),
    Claim(
        id="worker-memory",
        says="Forked workers come to copy a large list of Python objects that they only read.",
        sources=("API",),
        design="""A keeps an index of 200,000 entries as a list of dictionaries, B as numpy arrays. Forked workers share
        its pages until they touch them, and reading a Python object does. Compared is the growth of the workers' own
        memory from the first batch to the end of the window. B's growth is said to be less.""",
        not_shown="""The size that the source names: that every worker comes to take as much memory as the training
        process. A whole epoch, in which more of the list is touched.""",
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
        design="""An interaction: the effect of a doubling of the workers, from 2 to 32, where reading a sample waits 2
        ms. It is divided by the effect where decoding one computes for 2 ms. Besides, from 8 workers to 32 the dataset
        that computes must not become faster: the ratio is compared with 1. Both costs are planted, batches of 8, the
        loader alone.""",
        not_shown="""A disk. Costs are planted, so that most is true by construction. Sleeps take no core and do not
        wait for each other, as reads of a disk do. What is tested is that the DataLoader keeps up with so many
        workers.""",
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
        design="""A check: a dataset whose samples depend on a number, which the training process changes between two
        epochs; the workers live on. What is delivered afterwards tells which number they hold. Beside it the same with
        workers that are started anew every epoch. No time is measured.""",
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
        design="""A starts two workers anew for every epoch, B keeps them; epochs of 8 steps, and the respawn lies
        inside the window. Epochs of 128 steps stand beside it. Samples cost next to nothing, batches of 8.""",
        not_shown="Datasets that hold much, whose workers take longer to start (worker-memory has larger ones).",
        effect=change("persistent_workers", False, True, {**_EPOCHS, "epoch_steps": 8}),
        asides={"epochs of 128 steps": change("persistent_workers", False, True, {**_EPOCHS, "epoch_steps": 128})},
    ),
)

SUITE = claims_suite(
    "How many workers, of which kind, and what do they cost?",
    ("claims", "worker_scaling", "worker_startup", "worker_memory"),
    _CLAIMS,
    "13m",
)
