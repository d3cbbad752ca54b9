"""What a machine has been asked to do, and the best that any of its runs found for each device and task.

A task is what a user is given: the conditions of ``analysis.summary``. Of several runs on a device that have a task the
newest speaks, never for the machine's other device; runs of another version of the protocol were measured in another
way and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.analysis.rows import rows_of
from harness.pages.gathered import Shown
from harness.pages.headlines import task_key
from harness.records import PROTOCOL_VERSION
from harness.suite import MAIN

Task = tuple[str, ...]
"""Of ``headlines.task_key``."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best setting of a task on one device of a machine."""

    shown: Shown
    """The run that found it."""
    row: Mapping[Any, Any]
    """Of ``pages.headlines.headlines``."""

    @property
    def rate(self) -> float:
        """Samples a second."""
        return float(self.row["samples_per_s"])


Tasks = Mapping[tuple[str, Task], Best]
"""Device and task to its best, in the order of the headlines of the newest run that has it."""


def tasks(own: Sequence[Shown]) -> Tasks:
    """Find the best setting of every task on each device of one machine.

    Args:
        own: its runs, newest first.
    """
    found: dict[tuple[str, Task], Best] = {}
    for shown in own:
        if shown.manifest.protocol_version == PROTOCOL_VERSION:
            for row in rows_of(shown.headlines):
                found.setdefault((shown.manifest.device, task_key(row)), Best(shown, row))
    return found


def of_run(shown: Shown, found: Tasks) -> pd.DataFrame:
    """Keep the headlines of a run for whose task no newer run on its device speaks.

    Args:
        shown: a run of the machine.
        found: ``tasks`` of the machine.
    """
    keys = [(shown.manifest.device, task_key(row)) for row in rows_of(shown.headlines)]
    return shown.headlines[[key in found and found[key].shown is shown for key in keys]]


def shared(machines: Sequence[Tasks]) -> Task | None:
    """Choose the task by which machines are compared: the one that most of them have, on whatever device.

    Of several that equally many have it is one of the main suite, and of those the first in the headlines of the
    machine that was measured last.

    Args:
        machines: tasks of each, the machine that was measured last first.

    Returns:
        None where no machine has any.
    """
    counts: dict[Task, tuple[int, int]] = {}
    for found in machines:
        of_main = {task for (_, task), best in found.items() if MAIN in best.shown.suites}
        for task in dict.fromkeys(task for _, task in found):
            had, main = counts.get(task, (0, 0))
            counts[task] = had + 1, main + (task in of_main)
    return max(counts, key=lambda task: counts[task], default=None)


def fastest(found: Tasks, task: Task) -> Best | None:
    """Let the device speak for a machine that is faster at a task.

    Args:
        found: ``tasks`` of the machine.
        task: by which it is compared.

    Returns:
        None where it has not been asked to do it.
    """
    own = (best for (_, each), best in found.items() if each == task)
    return max(own, key=lambda best: best.rate, default=None)
