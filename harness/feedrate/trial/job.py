"""What the parent asks of a forked child, and how the child answers.

A job is one JSON object. Answers are JSON lines on a file descriptor of their own (never stdout, which libraries write
to). Every answer has an ``event``; ``result`` and ``failure`` are final.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from feedrate.schema.axes import BY_NAME, needs_context
from feedrate.trial.rendezvous import Meeting
from feedrate.workloads import DataSpec


@dataclass(frozen=True, slots=True)
class Job:
    """One thing to do in a process of its own."""

    kind: Literal["facts", "prepare", "trial", "witness", "instrumentation"]
    device: str = "cpu"
    """What the plan expects: cpu or cuda."""
    cell: dict[str, Any] | None = None
    """The axes that apply (``prepare``: those that name the data)."""
    data_root: str = "data"
    source: str | None = None
    """Folder of photographs, for the workloads that read one."""
    packed: str | None = None
    """Folder of the cell's packed samples, as ``prepare`` reported it (``trial``)."""
    seed: int = 0
    """Of sampler, weights and planted costs."""
    groups: tuple[str, ...] = ()
    """The files through which the trial enters the control groups that limit it (``machine.limits``)."""
    meeting: Meeting | None = None
    """Where the nodes of a trial that runs on several meet."""
    warmup_s: float = 0.3
    window_s: float = 0.6
    min_steps: int = 12

    @classmethod
    def parse(cls, text: str) -> Job:
        """Read a job, as the parent writes it."""
        fields = json.loads(text)
        meeting = fields.pop("meeting", None)
        return cls(**fields, meeting=Meeting(**meeting) if meeting else None)

    def value(self, axis: str) -> Any:
        """The cell's value of an axis, or the axis' frozen default where it does not apply."""
        return (self.cell or {}).get(axis, BY_NAME[axis].default)

    @property
    def uses_cuda(self) -> bool:
        """Whether the trial needs a CUDA context."""
        return needs_context(self.cell or {}, self.device)

    @property
    def packed_root(self) -> Path:
        """Folder of the packed samples."""
        return Path(self.packed or "")

    @property
    def single_pass(self) -> bool:
        """Whether every sample may be read once at most, as nothing that is read again is cold."""
        return bool(self.value("page_cache") == "cold")

    def data_spec(self) -> DataSpec:
        """Which samples the cell reads; ``scale`` is 1 where the axis does not apply."""
        return DataSpec(
            workload=self.value("workload"),
            n_samples=self.value("n_samples"),
            patch_size=self.value("patch_size"),
            scale=(self.cell or {}).get("scale", 1),
            source=Path(self.source) if self.source else None,
        )


class Reporter:
    """The child's end of the report pipe."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        """Of the pipe; another process may write whole lines there too."""
        self._kept: list[object] = []

    def keep(self, thing: object) -> None:
        """Keep an object as long as this process lives: a loader, whose workers' memory the parent reads at the end."""
        self._kept.append(thing)

    def send(self, event: str, **fields: Any) -> None:
        """Write one answer, whole."""
        data = json.dumps({"event": event, **fields}, separators=(",", ":")).encode() + b"\n"
        while data:
            data = data[os.write(self.descriptor, data) :]
