"""Trials out of a warm template, as a sweep runs them: for tests of what ends them and of what they report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feedrate.sweep.launcher import Answer, Template

LIMITS = {"warmup_s": 0.05, "window_s": 0.2}
ENDLESS_S = 50.0
"""A window that a trial does not live to see the end of, where something kills it."""


class Runner:
    """A warm template with packed samples."""

    def __init__(self, template: Template, data: Path, cell: Mapping[str, Any]) -> None:
        """Pack the samples below ``data``; ``cell`` has the axes of every trial that does not say otherwise."""
        self.template, self._cell = template, dict(cell)
        self._job: dict[str, Any] = {**LIMITS, "data_root": str(data)}
        self._job["packed"] = self.run("prepare").result["packed"]

    def run(
        self,
        kind: str = "trial",
        watch: Any = lambda *_: None,
        timeout_s: float = 240,
        window_s: float = LIMITS["window_s"],
        groups: Sequence[str] = (),
        meeting: Mapping[str, Any] | None = None,
        **cell: Any,
    ) -> Answer:
        job = {**self._job, "kind": kind, "cell": self._cell | cell, "window_s": window_s}
        job |= {"groups": list(groups), "meeting": meeting}
        return self.template.run(json.dumps(job), timeout_s=timeout_s, watch=watch)
