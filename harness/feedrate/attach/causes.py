"""What holds a training back: the largest row of its account that can go, and of a wait what its workers did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from feedrate.attach import loop, waits
from feedrate.attach.account import ONCE, ROWS, STEP, Account
from feedrate.attach.loop import Pacing
from feedrate.attach.records import Loader
from feedrate.attach.waits import KINDS
from feedrate.schema.words import percent, times

FED = 0.05
"""A row that takes less of the time does not hold a training back."""
SHOWN = 0.05
"""What takes less of the waits is not said."""
NEAR = 0.8
"""A second row that takes so much of the largest one is named beside it."""
CROWDED = 0.25
"""Workers that spend so much of their time on a run queue lack cores."""
FEW = 0.5
"""A script that uses less of the cores' time, and whose workers wait for one, shares them with other programs."""
FULL = 0.85
"""Processes that use so much of the cores' time stand in each other's way."""
SETTLED = 0.5
"""What takes so much of the waits is why batches are waited for."""
MEANWHILE = ("sampler", "waiting", "receiving", "here", "copy", "between_steps", "garbage")
"""Rows that cost nothing where the device works meanwhile."""
FIRST = "several passes in one: the loop waits for the first batch of each"
"""What to do about starts of workers that live on."""
THREADED = 1.5
"""A worker whose threads compute so many times what its first one does has a pool of threads."""


class Waiting(NamedTuple):
    """Why batches are waited for."""

    words: str
    remedy: str


WAITING: Mapping[str, Waiting] = {
    "loader": Waiting("the iterator is no DataLoader, and what it does is not seen", "time its parts by themselves"),
    "threads": Waiting(
        "each worker computes in many threads, more in all than there are cores",
        "one thread a worker: torch.set_num_threads(1), cv2.setNumThreads(0) in worker_init_fn",
    ),
    "foreign": Waiting(
        "other programs use the cores: workers wait for a core {queued} of their time, and the script uses only {used} "
        "of the cores",
        "stop the other programs, or give the script its own cores",
    ),
    "cores": Waiting(
        "too few cores: the script uses {used} of their time, and workers wait for a core {queued} of theirs",
        "use more cores, or less work a sample: store decoded pixels, decode smaller, transform on the device",
    ),
    "collating": Waiting(
        "putting samples together to batches is slow",
        "give batches as arrays (__getitems__, a collate_fn of your own), and keep samples small (uint8)",
    ),
    "reading": Waiting("storage or network is slow", "fewer requests (shards, LMDB), faster storage, or more workers"),
    "computing": Waiting("preparing samples is slow", "make its costliest line cheaper, or store what that gives"),
    "order": Waiting(
        "batches lie ready behind a slow one",
        "raise prefetch_factor, so that more lie ready; in_order=False (PyTorch 2.6) where order does not matter",
    ),
    "own": Waiting("the script’s collate_fn is slow", "make its costliest line cheaper, or do it once and store that"),
    "sending": Waiting(
        "batches are slow to come from the workers", "fewer bytes a batch: uint8, smaller samples, fewer tensors"
    ),
    "unsettled": Waiting(
        "no one thing takes half of the waits", "begin with what workers do most; this run does not settle it"
    ),
}
"""Reasons in the order in which they are asked; the first that holds counts."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What holds a training back."""

    row: str
    """Of the account; ``step`` where nothing but the step does."""
    name: str
    """The row, or why batches are waited for (``WAITING``)."""
    numbers: Mapping[str, float]
    """Shares of the time of those who prepare batches: preparing, computing, waiting, queued, collating; and ``used``,
    of the cores' time, what this process and its workers computed."""
    waits: Mapping[str, float] = field(default_factory=dict)
    """Of waits for batches, shares by what workers did meanwhile (``waits.KINDS``)."""
    beside: str = ""
    """Another row that takes about as much."""
    most: float = 1.0
    """The largest share of the time that can go: the device works in all else."""

    @property
    def _meanwhile(self) -> str:
        parts = sorted(self.waits, key=lambda name: -self.waits[name])
        shown = [f"{KINDS[name]} {percent(self.waits[name])}" for name in parts if self.waits[name] >= SHOWN][:3]
        return f" (meanwhile workers {', '.join(shown)})" if shown else ""

    @property
    def remedy(self) -> str:
        """What to do."""
        if self.row in STEP:
            return (
                "a faster loader gives nothing: make the step faster (mixed precision, torch.compile, larger batches)"
            )
        of_row = FIRST if self.name == "first" else ROWS[self.row].remedy
        return WAITING[self.name].remedy if self.row == "waiting" else of_row

    def text(self, account: Account) -> str:
        """Say it in a line, with what it would bring to be without it: of the loops, as a longer training is these."""
        if self.row in STEP:
            return (
                f"the step itself ({percent(account.looped_share(*STEP))} of the loops' time): nothing else takes much"
            )
        share = account.looped_share(self.row)
        text = f"{ROWS[self.row].words}: {percent(share)} of the loops' time"
        if self.row == "waiting":
            shares = {name: percent(number) for name, number in self.numbers.items()}
            text += f"; {WAITING[self.name].words.format(**shares)}{self._meanwhile}"
        if self.row == "here":
            shares = {name: percent(self.numbers[name]) for name in ("computing", "waiting")}
            text += ", computing {computing}, waiting {waiting}".format(**shares)
        if self.row == "starting":
            parts = (f"{name} {took / 1e9:.1f} s" for name, took in account.starting.items())
            text += f" ({', '.join(parts)})" if account.starting else ""
            text += (
                f"; {account.pickled_bytes / 2**20:.0f} MiB are pickled for workers" if account.pickled_bytes else ""
            )
        if self.beside:
            text += f"; about as much: {ROWS[self.beside].words}, {percent(account.looped_share(self.beside))}"
        if self.most < share:
            text += "; the device works in most of it"
        share = min(share, self.most)
        return f"{text}; without it at most {times(1 / (1 - share))} as fast" if share < 1 else text


def name(loader: Loader, pace: Pacing, account: Account, cores: float) -> Cause:
    """Name what holds a training back: the loader of its loop, the pace of that, the account of its process."""
    steps = loop.whole_steps(loader)
    numbers = loop.activity(loader, steps, cores)
    starved = 1.0 if pace.starved_share is None else pace.starved_share.value
    spared = (*STEP, *ONCE, *(MEANWHILE if starved < FED else ()))
    order = sorted(account.rows.keys() - set(spared), key=lambda row: -account.rows[row])
    if not order or account.looped_share(order[0]) < FED:
        return Cause("step", "step", numbers)
    row = order[0]
    beside = next((other for other in order[1:2] if account.rows[other] >= NEAR * account.rows[row]), "")
    most = starved if row in MEANWHILE else 1.0
    if row != "waiting":
        living = row == "starting" and loader.settings.get("persistent_workers")
        return Cause(row, "first" if living else row, numbers, beside=beside, most=most)
    waited = waits.split(loader, steps) or waits.of_preparing(loader)
    return Cause(row, _reason(loader, numbers, waited), numbers, waited, beside, most)


def _reason(loader: Loader, numbers: Mapping[str, float], waited: Mapping[str, float]) -> str:
    """Why batches are waited for."""
    crowded = numbers["used"] > FULL
    holds = {
        "loader": bool(loader.settings.get("watched")) or not len(loader.batches),
        "threads": numbers["threads"] > THREADED and crowded,
        "foreign": numbers["queued"] > CROWDED and numbers["used"] < FEW,
        "cores": max(numbers["queued"] / CROWDED, waited.get("queued", 0.0) / SETTLED) > 1 or crowded,
        "own": waited.get("collating", 0.0) > SETTLED
        and not str(loader.settings.get("collate", "torch")).startswith("torch"),
        **{name: share > SETTLED for name, share in waited.items() if name in WAITING},
        "unsettled": True,
    }
    return next(reason for reason, applies in holds.items() if applies)
