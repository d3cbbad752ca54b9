"""How many workers, of which kind, and what do they cost?

Workers are compared with fewer and with more of them, with threads, with workers that live on; what they cost beside
time stands with it: memory that grows because an index is touched, context switches, start-up and respawn, and what is
left of them when the training process dies.

It does not show machines that share their cores with others, nor loaders other than PyTorch's, but for the threads,
which are feedrate's own.
"""

from __future__ import annotations

from typing import Any

from feedrate.plan.claim import Aside, Claim, Values, change, pair, slope
from feedrate.plan.suite import claims_suite
from feedrate.suites._cells import LMDB, PAIRS, PLANTED, PNG

_PLANTED: dict[str, Any] = {**PLANTED, "mode": "load"}
_SLEEPS = {**_PLANTED, "read_us": 2000}
_COMPUTES = {**_PLANTED, "decode_us": 2000}
_MANY = {"num_workers": 8}
_THREADS = {"worker_kind": "thread"}
_PROCESSES = {"worker_kind": "process"}
_SERIES = (2, 8, 32)
_INDEXED = {**_PLANTED, **PAIRS, "batch_size": 32, "index_entries": 200_000}
_EPOCHS = {**_PLANTED, **PAIRS}
_ENDS = ("sigkill", "sigterm", "sigint", "exception", "return")
_GUARDED = ("sigkill", "sigterm")


def _ending(how: str, guarded: bool) -> Values:
    return {"check": "termination", "ends_by": how, "guarded": guarded}


_CLAIMS = (
    Claim(
        id="excess-workers",
        says="More workers than cores make loading slower.",
        sources=("BOT",),
        design=(
            "A has two workers, B eight: as many as two cores have, and four times as many. The loader alone, PNG "
            "files in batches of 32 and of 8, and raw pixels from LMDB. Involuntary context switches stand beside it. "
            "On a machine of more than two cores two workers leave some idle, so that the claim is not tested there: "
            "slow-dataset-workers goes from 8 to 32."
        ),
        figures="No figure is given: the source warns of context switches and waits for storage.",
        most_cores=2,
        effect=pair(PAIRS, _MANY, PNG, {**PNG, "batch_size": 8}, LMDB, says="less"),
        asides=(
            Aside(
                "involuntary context switches",
                pair(PAIRS, _MANY, PNG, {**PNG, "batch_size": 8}, LMDB, metric="switches"),
            ),
        ),
    ),
    Claim(
        id="gil-threads",
        says="Threads cannot replace worker processes where decoding is Python code.",
        sources=("BOT",),
        design=(
            "A decodes in two processes, B in two threads of the training process; the same samples. Decoding is "
            "planted: 2 ms a sample during which the interpreter's lock is held. Where the lock is free during most "
            "of the work, as in waiting for a read or in a library's PNG decoder, threads stand beside processes too. "
            "It says nothing of interpreters without that lock."
        ),
        effect=pair(_PROCESSES, _THREADS, {**_COMPUTES, **PAIRS}, says="less"),
        asides=(
            Aside("reads that wait 2 ms", pair(_PROCESSES, _THREADS, {**_SLEEPS, **PAIRS}, says="less")),
            Aside("PNG files", pair(_PROCESSES, _THREADS, {**PNG, **PAIRS}, says="less")),
        ),
    ),
    Claim(
        id="clean-termination",
        says="Workers are left behind when the training process dies.",
        sources=("BOT",),
        design=(
            "A check: a training process with two workers, written as anybody writes one, is killed (SIGKILL), and its "
            "workers are watched until the last is gone. Beside it the same with SIGTERM, SIGINT, an exception and a "
            "plain return, and both signals that no script survives with what feedrate does against it: workers that "
            "die with their parent, and a handler that ends in order."
        ),
        figures="No figure is given: the source saw defunct processes.",
        facts=(*(_ending(how, False) for how in _ENDS), *(_ending(how, True) for how in _GUARDED)),
    ),
    Claim(
        id="worker-memory",
        says="Each worker comes to take the parent's size where the dataset holds a large list.",
        sources=("API",),
        design=(
            "A keeps an index of 200,000 entries as a list of dictionaries, B as numpy arrays; forked workers share "
            "its pages until they touch them, and reading a Python object does. Compared is how the workers' own "
            "memory grew from the first batch to the end of the window: B's growth is said to be less. A window reads "
            "a part of the index only, so that an epoch would show more."
        ),
        effect=change("index_kind", "list", "numpy", _INDEXED, metric="workers_memory", says="less"),
        asides=(
            Aside(
                "one serialized buffer instead",
                change("index_kind", "list", "serialized", _INDEXED, metric="workers_memory", says="less"),
            ),
            Aside("throughput with one serialized buffer", change("index_kind", "list", "serialized", _INDEXED)),
            Aside(
                "the workers' memory when they are spawned",
                change(
                    "index_kind",
                    "list",
                    "numpy",
                    {**_INDEXED, "start_method": "spawn"},
                    metric="workers_uss",
                    says="less",
                ),
            ),
            *(
                Aside(
                    f"time to the first batch when they are spawned, index_kind={kind}",
                    change("start_method", "fork", "spawn", {**_INDEXED, "index_kind": kind}, metric="startup"),
                )
                for kind in ("list", "numpy")
            ),
        ),
    ),
    Claim(
        id="slow-dataset-workers",
        says="Workers help a dataset that waits far beyond the number of cores, one that computes only up to it.",
        sources=("AIDA",),
        design=(
            "An interaction: what a doubling of the workers, from 2 to 32, does where reading a sample waits 2 ms, "
            "divided by what it does where decoding one computes for 2 ms. Both costs are planted, batches of 8, the "
            "loader alone. With more than 32 cores both gain alike, and the claim is not reached. The first reads of a "
            "real disk wait for each other; planted ones do not."
        ),
        effect=slope("num_workers", _SERIES, _SLEEPS, against=[_COMPUTES]),
        asides=(
            Aside("reads that wait", slope("num_workers", _SERIES, _SLEEPS)),
            Aside("decoding that computes", slope("num_workers", _SERIES, _COMPUTES)),
            Aside("decoding that computes, from 8 to 32", pair(_MANY, {"num_workers": 32}, _COMPUTES, says="less")),
        ),
    ),
    Claim(
        id="next-epoch-copies",
        says="What the training process changes in its dataset between epochs does not reach persistent workers.",
        sources=("AIDA",),
        design=(
            "A check: a dataset whose samples depend on a number, which the training process changes between two "
            "epochs; the workers live on. What is delivered afterwards tells which number they hold. Beside it the "
            "same with workers that are started anew every epoch. No time is measured."
        ),
        facts=(
            {"check": "next_epoch", "persistent_workers": True},
            {"check": "next_epoch", "persistent_workers": False},
        ),
    ),
    Claim(
        id="persistent-workers",
        says="Keeping workers alive from epoch to epoch pays when epochs are short.",
        sources=("field",),
        design=(
            "A starts two workers anew for every epoch, B keeps them; epochs of 8 steps, and the respawn lies inside "
            "the window. Epochs of 128 steps stand beside it. Samples cost next to nothing, batches of 8. The more a "
            "dataset holds, the more a start costs: this one holds little (worker-memory has larger ones)."
        ),
        effect=change("persistent_workers", False, True, {**_EPOCHS, "epoch_steps": 8}),
        asides=(
            Aside("epochs of 128 steps", change("persistent_workers", False, True, {**_EPOCHS, "epoch_steps": 128})),
        ),
    ),
)

SUITE = claims_suite(
    "How many workers, of which kind, and what do they cost?",
    ("claims", "worker_scaling", "worker_startup", "worker_memory"),
    _CLAIMS,
)
