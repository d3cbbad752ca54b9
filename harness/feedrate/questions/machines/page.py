"""The table of all machines, which stands below the comparison of two: a row a machine and device.

A task is what a user is given: the conditions of ``analysis.summary``. Of several runs on a device that have a task
the one that is ranked first speaks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from feedrate.analysis.estimates import rows_of
from feedrate.machine.identity import Machine
from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView, ranked
from feedrate.pages.tasks import task_key, task_words
from feedrate.pages.template import render
from feedrate.plan.suite import MAIN
from feedrate.questions.runs import facts as runs_facts
from feedrate.schema import words


def hardware(machine: Machine) -> dict[str, str]:
    """Name what a machine is made of."""
    cores = words.plural(machine.cores_logical, "core")
    if machine.cores_physical and machine.cores_physical != machine.cores_logical:
        threads = words.plural(machine.cores_logical, "hardware thread")
        cores = f"{threads} of {words.plural(machine.cores_physical, 'core')}"
    quota = f", limited to the time of {machine.cpu_quota_cores:g}" if machine.cpu_quota_cores else ""
    gpu_memory = f", {descriptions.size(machine.gpu_memory_bytes)}" if machine.gpu_memory_bytes else ""
    limit, memory = machine.memory_limit_bytes, descriptions.size(machine.memory_bytes)
    if limit and limit < machine.memory_bytes:
        memory = f"{descriptions.size(limit)} of {memory}, by a limit"
    return {
        "Processor": f"{machine.cpu_model}, {cores}{quota}",
        "Accelerator": f"{descriptions.gpu_words(machine)}{gpu_memory}" if machine.gpu_name else "none",
        "Memory": memory,
        "Storage of the data": storage([machine]),
        "Virtual machine": {True: "yes", False: "no", None: "unknown"}[machine.virtualised],
        "System": f"{machine.distribution or machine.operating_system}, kernel {machine.kernel}",
    }


def storage(recorded: Sequence[Machine]) -> str:
    """Name every kind of disk that packed data lay on, that of the newest run first."""
    disks = (machine.storage for machine in recorded)
    names = [", ".join(filter(None, (disk.device_class, disk.file_system, disk.model))) for disk in disks if disk]
    return "; ".join(dict.fromkeys(names)) or "unknown"


Task = tuple[str, ...]
"""Of ``tasks.task_key``."""


class Best(NamedTuple):
    """The best setting of a task on a machine and device."""

    view: RunView
    """The run that found it."""
    row: Mapping[Any, Any]
    """Of ``pages.headlines.headlines``."""


def tasks_of(runs: Sequence[RunView]) -> dict[Task, Best]:
    """Find the best setting of every task in runs of one machine and device, newest first."""
    best: dict[Task, Best] = {}
    for view in ranked(runs):
        for row in rows_of(view.headlines):
            best.setdefault(task_key(row), Best(view, row))
    return best


def shared_task(platforms: Sequence[Mapping[Task, Best]]) -> Task | None:
    """Choose the task by which machines are compared: the one that most of them have.

    Of several that equally many have it is one of the main suite, and of those the first in the headlines of the
    machine that was measured last.
    """
    had = Counter(task for tasks in platforms for task in tasks)
    main = Counter(task for tasks in platforms for task, best in tasks.items() if MAIN in best.view.suites)
    return max(had, key=lambda task: (had[task], main[task]), default=None)


def listing(path: str, runs: Sequence[RunView]) -> Markup:
    """Write the table on the page of a path: the fastest at the task that most have comes first; runs newest first."""
    platforms: dict[tuple[str, str], list[RunView]] = {}
    for view in runs:
        platforms.setdefault(view.where, []).append(view)
    tasks = [tasks_of(views) for views in platforms.values()]
    task = shared_task(tasks)
    rows = [(views, own.get(task) if task else None) for views, own in zip(platforms.values(), tasks, strict=True)]
    rows.sort(key=lambda row: -row[1].row["samples_per_s"] if row[1] else 0.0)
    return render(
        "machines/table.md",
        task=next((task_words(best.row) for _, best in rows if best), ""),
        rows=[_row(path, views, best) for views, best in rows],
    )


def _row(path: str, views: Sequence[RunView], best: Best | None) -> tuple[object, ...]:
    """A machine and device in the table of all."""
    machine, speaking = views[0].manifest.machine, best.view if best else views[0]
    memory = min(machine.memory_bytes, machine.memory_limit_bytes or machine.memory_bytes)
    return (
        markup.link(path, speaking.page, descriptions.name_of(machine)),
        descriptions.device_name(views[0].manifest.device),
        f"{views[0].cores:g}",
        descriptions.size(memory).replace(" ", "\u00a0"),
        storage([view.manifest.machine for view in views]),
        len(views),
        words.number(best.row["samples_per_s"]) if best else "not measured",
        words.interval(best.row["lo"], best.row["hi"]) if best else "–",
        best.row["n"] if best else "–",
        runs_facts.badge(path, speaking),
        runs_facts.tiers(path, views),
    )
