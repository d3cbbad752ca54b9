"""What the sections of a bench share: where they write, whom they tell, and jobs in forked children."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.axes import AXES, Value, applicable
from harness.errors import TrialError
from harness.launcher import Template, Watch

TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Place:
    """A bench that is under way."""

    console: Console
    folder: Path
    """Temporary: packed samples, a sweep's results, its site."""
    results: Path
    """Where runs are read from."""
    device: str
    """cpu or cuda."""
    machine_id: str

    def say(self, text: str) -> None:
        """Tell what is being done."""
        self.console.print(text)

    def job(self, kind: str, cell: Mapping[str, Value], **rest: Any) -> str:
        """Write a job for a forked child."""
        job = {"kind": kind, "device": self.device, "cell": dict(cell), "data_root": str(self.folder / "data"), **rest}
        return json.dumps(job)

    def packed(self, template: Template, cell: Mapping[str, Value]) -> str:
        """Pack the samples that a cell reads and say where they are."""
        return str(ask(template, self.job("prepare", cell))["packed"])


def cell(device: str, **axes: Value) -> dict[str, Value]:
    """Make a cell of the axes that apply; what is not named stands at its default."""
    return applicable({axis.name: axis.default for axis in AXES} | axes, device)[0]


def ask(template: Template, job: str, watch: Watch = lambda *_: None) -> dict[str, Any]:
    """Have a job done and return its result.

    Raises:
        TrialError: it failed.
    """
    answer = template.run(job, timeout_s=TIMEOUT_S, watch=watch)
    if answer.outcome != "ok":
        raise TrialError(f"bench: a trial ended with {answer.outcome}: {answer.kind}: {answer.message}")
    return answer.result
