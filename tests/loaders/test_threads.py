"""Workers that are threads: dealt to in turn, ahead by no more than asked, each with an account of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from feedrate.loaders import STAMPS, Batch, LoadOptions
from feedrate.loaders.threads import build
from feedrate.trial import feed
from feedrate.trial.job import Job


def test_no_more_than_the_stock_is_prepared_ahead() -> None:
    """Before the first batch is taken: ``prefetch_factor`` batches a worker; with each that is taken one more."""
    begun: list[int] = []

    def collate(samples: list[int]) -> Batch:
        begun.extend(samples)
        return Batch((torch.tensor(samples),), b"")

    options = LoadOptions(batch_size=1, num_workers=3, prefetch_factor=2)
    batches = iter(build(range(1000), collate, ([index] for index in range(1000)), options))  # type: ignore[arg-type]
    for taken in range(1, 5):
        next(batches)
        until = time.monotonic() + 5
        while len(begun) < 6 + taken and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(0.01)
        assert sorted(begun) == list(range(6 + taken))
    del batches


def test_pinning_is_done_by_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor of a batch, and only where the cell asks for it."""
    by: list[str] = []

    def pinned(tensor: torch.Tensor) -> torch.Tensor:
        by.append(threading.current_thread().name)
        return tensor + 1

    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    samples: Any = [torch.zeros(1), torch.ones(1)]
    whole: Any = lambda found: Batch((torch.cat(found),), b"")  # noqa: E731

    def first(pin: bool) -> Batch:
        (batch,) = build(samples, whole, [[0, 1]], LoadOptions(batch_size=2, num_workers=1, pin_memory=pin))
        return batch

    assert first(pin=False).fields[0].tolist() == [0, 1]
    assert by == []
    assert first(pin=True).fields[0].tolist() == [1, 2]
    assert by == ["loader worker 0_0"]


def test_a_batch_has_an_account_of_its_own(job: Callable[..., Job]) -> None:
    """Threads that read at the same time do not book on each other's batches: each has what was planted into it."""
    _, dataset, collate = feed.open_samples(job(read_us=3000, collate_us=4000))
    batches = [[index] for index in range(24)]
    source = build(dataset, collate, batches, LoadOptions(batch_size=1, num_workers=3))
    accounts = [STAMPS.unpack(batch.stamps) for batch in source]
    assert len(accounts) == 24
    assert min(account[0] for account in accounts) >= 1_500_000  # half of a wait may be taken off for one before it
    assert sorted(account[3] for account in accounts)[12] >= 4_000_000
    assert dataset.spent == [0, 0, 0]
