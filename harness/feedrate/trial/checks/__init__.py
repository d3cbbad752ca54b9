"""Checks of facts: claims that are true or not, whatever the clock says.

A check is a file of this package, found by its name, with one function: ``check(job) -> Finding``. It times nothing
that could be compared. Like a storage format it declares what it needs as literals: ``REQUIRES`` for libraries,
``DEVICE`` where only CUDA can tell. A check that cannot be made raises, and its trial fails like any other; one that
finds the opposite of its claim is a good trial.
"""

from __future__ import annotations

import os
import select
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from feedrate.schema import plugins
from feedrate.schema.redaction import EVIDENCE_MOST, scrub
from feedrate.trial.job import Job, Reporter


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check saw."""

    fact: bool
    """Whether what the claim says was seen."""
    value: float
    """The number behind it; what it counts, the check's file says."""
    evidence: str
    """One sentence made from what was seen, without paths or names of this machine."""


def run_check(job: Job, reporter: Reporter) -> None:
    """Make the check that the job's cell names and report ``result``: a row without anything timed."""
    finding: Finding = plugins.load("feedrate.trial.checks", job.value("check")).check(job)
    evidence = scrub(finding.evidence, EVIDENCE_MOST)  # a sentence may quote what a library said
    reporter.send("result", row={"fact": finding.fact, "fact_value": finding.value, "evidence": evidence})


@contextmanager
def scratch(job: Job) -> Iterator[Path]:
    """Give an empty folder on the disk of the data, and remove it."""
    root = Path(job.data_root)
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="check-", dir=root) as folder:
        yield Path(folder)


def listen(pipe: int, silence_s: float, last: bytes | None = None) -> bytes:
    """Read a pipe until its writers have ended, were silent for so long, or have sent what is awaited."""
    text = b""
    while last is None or last not in text:
        received = os.read(pipe, 1 << 16) if select.select([pipe], [], [], silence_s)[0] else b""
        if not received:
            break
        text += received
    return text
