"""What tests of the trial share: packed samples, and trials that run in this process."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from feedrate.formats import Manifest, Reader, Sample
from feedrate.trial import feed, prepare, run
from feedrate.trial.job import Job, Reporter
from feedrate.trial.loader import Batch
from feedrate.workloads import DataSpec


@pytest.fixture(scope="session")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Packs synthetic samples, for tests that share them or below a root of their own; gives the folder."""
    shared = tmp_path_factory.mktemp("packed")

    def make(storage_format: str = "memmap", count: int = 24, size: int = 8, root: Path = shared) -> str:
        spec = DataSpec("synthetic", count, size, 1)
        prepare.prepare(spec, storage_format, root, lambda _done, _total: None)
        return os.fspath(prepare.dataset_root(root, spec, storage_format))

    return make


class Answers(Reporter):
    """Keeps what a trial reports, and nothing alive."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.sent: dict[str, dict[str, Any]] = {}

    def keep(self, thing: object) -> None:
        pass

    def send(self, event: str, **fields: Any) -> None:
        self.sent[event] = fields


@pytest.fixture(scope="session")
def result() -> Callable[[Job], dict[str, Any]]:
    """Runs a trial in this process and gives its result: ``row``, ``steps`` …."""

    def trial(job: Job) -> dict[str, Any]:
        answers = Answers()
        run.run_trial(job, answers)
        return answers.sent["result"]

    return trial


@pytest.fixture(scope="session")
def fetch() -> Callable[[Job, int], list[Batch]]:
    """Gives copies of the first batches of a trial's feed."""

    def first(job: Job, count: int) -> list[Batch]:
        batches = islice(feed.open_feed(job, torch.device("cpu")).batches, count)
        return [batch._replace(fields=tuple(field.clone() for field in batch.fields)) for batch in batches]

    return first


class Numbers(Reader):
    """Sample i is one pixel of value i; reading and decoding take no time."""

    def read(self, index: int) -> int:
        return index

    def decode(self, raw: int) -> Sample:
        return (torch.full((1, 1, 1), raw).numpy(),)


@pytest.fixture
def numbers(tmp_path: Path) -> Numbers:
    """Eight samples that are their own numbers."""
    (tmp_path / "manifest.json").write_text(json.dumps(asdict(Manifest(8, ((1, 1, 1),), 0, "", 1, 1, 0.0))))
    return Numbers(tmp_path)
