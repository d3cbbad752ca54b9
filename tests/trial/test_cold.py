"""Cold trials: nothing cached when they begin, and no sample read twice."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from feedrate.formats import Reader
from feedrate.schema import plugins
from feedrate.schema.errors import InputError
from feedrate.schema.window import WARM
from feedrate.trial import feed, prepare, run
from feedrate.trial.job import Job, Reporter
from feedrate.workloads import DataSpec

CELL = {"workload": "synthetic", "mode": "load", "storage_format": "lmdb", "patch_size": 16, "n_samples": 128}


class Answers(Reporter):
    """Keeps what a trial reports."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.sent: dict[str, dict[str, Any]] = {}

    def send(self, event: str, **fields: Any) -> None:
        self.sent[event] = fields


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    """A small set on disk."""
    spec = DataSpec("synthetic", 128, 16, 1)
    prepare.prepare(spec, "lmdb", tmp_path, lambda done, total: None)
    return prepare.dataset_root(tmp_path, spec, "lmdb")


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every read of this process and its workers, a line each."""
    log = tmp_path / "reads"
    reader = plugins.load("feedrate.formats", "lmdb").LmdbReader
    read = reader.read

    def noted(self: Reader, index: int) -> Any:
        with log.open("ab", buffering=0) as file:
            file.write(f"{index}\n".encode())
        return read(self, index)

    monkeypatch.setattr(reader, "read", noted)
    return log


def trial(packed: Path, **cell: object) -> dict[str, Any]:
    """Run a trial in this process and give its row."""
    answers = Answers()
    job = Job("trial", cell={**CELL, **cell}, packed=os.fspath(packed), warmup_s=0.0, window_s=30.0, min_steps=4)
    run.run_trial(job, answers)
    row: dict[str, Any] = answers.sent["result"]["row"]
    return row


@pytest.mark.parametrize("access", ["random", "sequential"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_cold_trial_reads_no_sample_twice(packed: Path, reads: Path, workers: int, access: str) -> None:
    """However long its window may be: the set's size ends it, while workers still have something to prepare."""
    row = trial(packed, page_cache="cold", access=access, batch_size=4, num_workers=workers)
    counts = Counter(reads.read_text().split())
    assert max(counts.values()) == 1
    assert row["cached_before_pct"] == 0
    assert row["cached_after_pct"] > 0
    assert row["warmup_steps"] + row["steps"] + workers * 2 <= 128 // 4
    assert row["steps"] % max(1, workers) == 0
    assert row["stored_bytes"] == (packed / "data.mdb").stat().st_size


def test_a_cold_order_ends(packed: Path) -> None:
    """Whatever asks for more than one pass over the set gets none, from batches of indices as from streams."""
    job = Job("trial", cell={**CELL, "page_cache": "cold", "batch_size": 4}, packed=os.fspath(packed))
    assert len(list(feed.order(job, 128))) == 32


def test_a_warm_trial_is_warm_and_goes_on(packed: Path, reads: Path) -> None:
    """After a cold trial the samples are read back in before anything is timed; the window has its own length."""
    trial(packed, page_cache="cold", batch_size=4)
    reads.write_text("")
    answers = Answers()
    job = Job(
        "trial", cell={**CELL, "batch_size": 4}, packed=os.fspath(packed), warmup_s=0.0, window_s=0.2, min_steps=64
    )
    run.run_trial(job, answers)
    row = answers.sent["result"]["row"]
    assert row["cached_before_pct"] >= 100 * WARM
    assert row["wall_ns"] >= 0.2e9
    assert max(Counter(reads.read_text().split()).values()) > 1


def test_too_few_samples_to_be_cold(packed: Path) -> None:
    """Better no number than one from samples that were cached by the trial itself."""
    with pytest.raises(InputError, match=r"128 samples are too few .* expected 144 or more"):
        trial(packed, page_cache="cold", batch_size=16)


def test_the_planted_truth_follows_the_order(packed: Path) -> None:
    """What reads were planted to wait is summed over the samples that came, in stored order too."""
    cell = {**CELL, "batch_size": 4, "read_us": 100, "read_shape": "jittered"}
    jobs = [Job("trial", cell={**cell, "access": access}, seed=3) for access in ("random", "sequential")]
    whole = {feed.planted_read_ns(job, 0, 32) for job in jobs}
    part = {feed.planted_read_ns(job, 0, 4) for job in jobs}
    assert whole == {128 * 100_000}
    assert len(part) == 2
