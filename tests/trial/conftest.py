"""What tests of the trial share: packed samples, and trials that run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from feedrate.formats import Manifest, Reader, Sample
from feedrate.trial import run
from feedrate.trial.job import Job, Reporter


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
