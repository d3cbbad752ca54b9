"""The table of all machines, which stands below the comparison of two.

A task is what a user is given: the conditions of ``analysis.summary``. Of several runs on a device that have a task
the one that is ranked first speaks, never for the machine's other device.
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

_NONE = "–"


def hardware(recorded: Sequence[Machine]) -> dict[str, str]:
    """Name what a machine is made of, as its runs recorded it, newest first."""
    machine = recorded[0]
    cores = words.plural(machine.cores_logical, "core")
    if machine.cores_physical and machine.cores_physical != machine.cores_logical:
        threads = words.plural(machine.cores_logical, "hardware thread")
        cores = f"{threads} of {words.plural(machine.cores_physical, 'core')}"
    quota = f", limited to the time of {machine.cpu_quota_cores:g}" if machine.cpu_quota_cores else ""
    count = f"{machine.gpu_count} × " if machine.gpu_count > 1 else ""
    gpu_memory = f", {descriptions.size(machine.gpu_memory_bytes)}" if machine.gpu_memory_bytes else ""
    limit, memory = machine.memory_limit_bytes, descriptions.size(machine.memory_bytes)
    if limit and limit < machine.memory_bytes:
        memory = f"{descriptions.size(limit)} of {memory}, by a limit"
    return {
        "Processor": f"{machine.cpu_model}, {cores}{quota}",
        "Accelerator": f"{count}{machine.gpu_name}{gpu_memory}" if machine.gpu_name else "none",
        "Memory": memory,
        "Storage of the data": storage(recorded),
        "Virtual machine": {True: "yes", False: "no", None: "unknown"}[machine.virtualised],
        "System": f"{machine.distribution or machine.operating_system}, kernel {machine.kernel}",
    }


def devices(views: Sequence[RunView]) -> str:
    """Name the devices that runs were made on: ``CPU``, ``CPU, GPU``."""
    return ", ".join(sorted({descriptions.device_name(view.manifest.device) for view in views}))


def memory(machine: Machine) -> str:
    """Write the memory that a process may use."""
    limit = machine.memory_limit_bytes
    return descriptions.size(min(machine.memory_bytes, limit or machine.memory_bytes)).replace(" ", "\u00a0")


def storage(recorded: Sequence[Machine]) -> str:
    """Name every kind of disk that packed data lay on, that of the newest run first."""
    disks = (machine.storage for machine in recorded)
    names = [", ".join(filter(None, (disk.device_class, disk.file_system, disk.model))) for disk in disks if disk]
    return "; ".join(dict.fromkeys(names)) or "unknown"


def _several_devices(views: Sequence[RunView]) -> bool:
    """Whether numbers of a machine must name their device: runs were made on its CPU, and it has a GPU too."""
    return any(descriptions.gpu_idle(view.manifest.machine, view.manifest.device) for view in views)


Task = tuple[str, ...]
"""Of ``tasks.task_key``."""


class Best(NamedTuple):
    """The best setting of a task on one device of a machine."""

    view: RunView
    """The run that found it."""
    row: Mapping[Any, Any]
    """Of ``pages.headlines.headlines``."""


Tasks = Mapping[tuple[str, Task], Best]
"""Device and task to its best, in the order of the headlines of the run that is ranked first of those that have it."""


def tasks_of(runs: Sequence[RunView]) -> Tasks:
    """Find the best setting of every task on each device of one machine."""
    best: dict[tuple[str, Task], Best] = {}
    for view in ranked(runs):
        for row in rows_of(view.headlines):
            best.setdefault((view.manifest.device, task_key(row)), Best(view, row))
    return best


def shared_task(machines: Sequence[Tasks]) -> Task | None:
    """Choose the task by which machines are compared: the one that most of them have, on whatever device.

    Of several that equally many have it is one of the main suite, and of those the first in the headlines of the
    machine that was measured last.
    """
    had, main = Counter[Task](), Counter[Task]()
    for tasks_of_machine in machines:
        had.update({task for _, task in tasks_of_machine})
        main.update({task for (_, task), best in tasks_of_machine.items() if MAIN in best.view.suites})
    tasks = dict.fromkeys(task for tasks_of_machine in machines for _, task in tasks_of_machine)
    return max(tasks, key=lambda task: (had[task], main[task]), default=None)


def _rate(best: Best) -> float:
    return float(best.row["samples_per_s"])


def listing(path: str, machines: Mapping[str, Sequence[RunView]]) -> Markup:
    """Write the table of all machines on the page of a path, the fastest at the task that most of them have first.

    ``machines``: the runs of each, newest first.
    """
    tasks = {name: tasks_of(views) for name, views in machines.items()}
    task = shared_task(list(tasks.values()))
    best: dict[str, Best] = {}
    for name, tasks_of_machine in tasks.items():
        if candidates := [candidate for (_, own_task), candidate in tasks_of_machine.items() if own_task == task]:
            best[name] = max(candidates, key=_rate)  # of two devices the faster speaks
    ranked = sorted(machines, key=lambda name: -_rate(best[name]) if name in best else 0.0)
    return render(
        "machines/table.md",
        task=task_words(next(iter(best.values())).row) if best else "",
        several=any(len({view.manifest.device for view in views}) > 1 for views in machines.values()),
        rows=[_row(path, machines[name], best.get(name)) for name in ranked],
    )


def _row(path: str, views: Sequence[RunView], best: Best | None) -> tuple[object, ...]:
    """A machine in the table of all."""
    machine = views[0].manifest.machine
    rate = words.number(_rate(best)) if best else "not measured"
    if best and _several_devices(views):
        rate = markup.two_lines(rate, descriptions.on_device(best.view.manifest.device))
    return (
        markup.link(path, (best.view if best else views[0]).page, descriptions.name_of(machine)),
        devices(views),
        f"{views[0].cores:g}",
        memory(machine),
        storage([view.manifest.machine for view in views]),
        len(views),
        rate,
        words.interval(best.row["lo"], best.row["hi"]) if best else _NONE,
        best.row["n"] if best else _NONE,
        runs_facts.badge(path, best.view if best else views[0]),
        runs_facts.tiers(path, views),
    )
