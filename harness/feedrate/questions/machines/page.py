"""The machines: one table of all, and a page each: what it is, what suits it, what holds it back, its runs.

A task is what a user is given: the conditions of ``analysis.summary``. Of several runs on a device that have a task the
newest speaks, never for the machine's other device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from feedrate.analysis.ceilings import STAGES, ceiling_ids
from feedrate.analysis.claims import NOT_TESTABLE, VERDICTS
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.sentences import estimate, worst
from feedrate.analysis.summary import EMULATED
from feedrate.machine.identity import Machine
from feedrate.pages import descriptions, markup
from feedrate.pages.headlines import RULE, headline_table
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView
from feedrate.pages.selection import by_machine
from feedrate.pages.tasks import answer, task_key, task_words
from feedrate.pages.template import listed, render
from feedrate.pages.verdicts import Verdicts
from feedrate.plan.suite import MAIN
from feedrate.questions.claims import page as claims_page
from feedrate.questions.runs import facts as runs_facts
from feedrate.questions.runs.facts import runs_table
from feedrate.schema import words

INDEX = "machines/index.md"
_NONE = "–"


def facts(own: Sequence[RunView]) -> dict[str, str]:
    """Name everything that tells a machine from another, and when it was measured, from its runs, newest first."""
    path, runs = own[0].machine_page, [view.manifest for view in own]
    days = dict.fromkeys(descriptions.day(run.started_at) for run in (runs[-1], runs[0]))
    hardware_of = hardware([run.machine for run in runs])
    if not runs[0].machine.gpu_name:
        hardware_of["Accelerator"] += (
            ": questions about the loader are asked of the loader alone and of an emulated step"
        )
    return hardware_of | {
        "PyTorch": ", ".join(dict.fromkeys(run.software.torch or "unknown" for run in runs)),
        "Measured": f"{words.plural(len(own), 'run')}, {' to '.join(days)}",
        "Tier": runs_facts.tiers(path, own),
        "Machine id": markup.code(runs[0].machine.machine_id),
    }


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


def devices(own: Sequence[RunView]) -> str:
    """Name the devices that runs were made on: ``CPU``, ``CPU, GPU``."""
    return ", ".join(sorted({descriptions.device_name(view.manifest.device) for view in own}))


def memory(machine: Machine) -> str:
    """Write the memory that a process may use."""
    limit = machine.memory_limit_bytes
    return descriptions.size(min(machine.memory_bytes, limit or machine.memory_bytes)).replace(" ", "\u00a0")


def storage(recorded: Sequence[Machine]) -> str:
    """Name every kind of disk that packed data lay on, that of the newest run first."""
    disks = (machine.storage for machine in recorded)
    names = [", ".join(filter(None, (disk.device_class, disk.file_system, disk.model))) for disk in disks if disk]
    return "; ".join(dict.fromkeys(names)) or "unknown"


def _several_devices(own: Sequence[RunView]) -> bool:
    """Whether numbers of a machine must name their device: runs were made on its CPU, and it has a GPU too."""
    return any(descriptions.gpu_idle(view.manifest.machine, view.manifest.device) for view in own)


Task = tuple[str, ...]
"""Of ``tasks.task_key``."""


class Best(NamedTuple):
    """The best setting of a task on one device of a machine."""

    view: RunView
    """The run that found it."""
    row: Mapping[Any, Any]
    """Of ``pages.headlines.headlines``."""


Tasks = Mapping[tuple[str, Task], Best]
"""Device and task to its best, in the order of the headlines of the newest run that has it."""


def tasks_of(runs: Sequence[RunView]) -> Tasks:
    """Find the best setting of every task on each device of one machine."""
    best: dict[tuple[str, Task], Best] = {}
    for view in runs:
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


def index_page(runs: Sequence[RunView]) -> Page:
    """Write the table of all machines, the fastest at the task that most of them have first; runs are newest first."""
    machines = by_machine(runs)
    tasks = {name: tasks_of(own) for name, own in machines.items()}
    task = shared_task(list(tasks.values()))
    best: dict[str, Best] = {}
    for name, tasks_of_machine in tasks.items():
        if candidates := [each for (_, own_task), each in tasks_of_machine.items() if own_task == task]:
            best[name] = max(candidates, key=_rate)  # of two devices the faster speaks
    ranked = sorted(machines, key=lambda name: -_rate(best[name]) if name in best else 0.0)
    body = render(
        "machines/index.md",
        task=task_words(next(iter(best.values())).row) if best else "",
        several=any(len({view.manifest.device for view in own}) > 1 for own in machines.values()),
        rows=[_row(machines[name], best.get(name)) for name in ranked],
    )
    return Page(INDEX, "Machines", body, hide=("navigation", "toc"))


def _row(own: Sequence[RunView], best: Best | None) -> tuple[object, ...]:
    """A machine in the table of all."""
    machine = own[0].manifest.machine
    rate = words.number(_rate(best)) if best else "not measured"
    if best and _several_devices(own):
        rate = markup.two_lines(rate, descriptions.on_device(best.view.manifest.device))
    return (
        markup.link(INDEX, own[0].machine_page, descriptions.name_of(machine)),
        devices(own),
        machine.cores_logical,
        memory(machine),
        storage([view.manifest.machine for view in own]),
        len(own),
        rate,
        words.interval(best.row["lo"], best.row["hi"]) if best else _NONE,
        best.row["n"] if best else _NONE,
        runs_facts.badge(INDEX, best.view if best else own[0]),
        runs_facts.tiers(INDEX, own),
    )


def page(own: Sequence[RunView], verdicts: Verdicts, questions: Mapping[str, str]) -> Page:
    """Write a machine's page from its runs, newest first; ``questions`` is suite to the path of its page."""
    path, name = own[0].machine_page, descriptions.name_of(own[0].manifest.machine)
    tasks, by_device = tasks_of(own), _several_devices(own)

    def suites(view: RunView, path: str) -> str:
        return listed(markup.link(path, questions[name], name) if name in questions else name for name in view.suites)

    device = ("Device",) if by_device else ()
    columns, stages = _stages(tasks, by_device)
    body = render(
        "machines/page.md",
        page=path,
        name=name,
        facts_of=facts(own),
        best=list(_best(own, tasks, by_device)),
        suites=suites,
        rule=RULE,
        stage_columns=columns,
        stages=stages,
        verdicts=list(_verdicts(verdicts, own[0].machine_id, path, by_device)),
        claims=claims_page.PATH,
        claim_count=len(verdicts.results),
        runs=runs_table("Runs of this machine", own, path, ("Run", "Grade", "Tier", *device, "Suites", "Date"), suites),
        index=INDEX,
    )
    return Page(path, name, body, listed=False, hide=("navigation",))


def _best(own: Sequence[RunView], tasks: Tasks, by_device: bool) -> Iterator[dict[str, Any]]:
    """The best setting of each task for whose device and task no newer run speaks, by run; the main suite first."""
    for view in sorted(own, key=lambda each: MAIN not in each.suites):
        keys = [(view.manifest.device, task_key(row)) for row in rows_of(view.headlines)]
        rows: pd.DataFrame = view.headlines[[key in tasks and tasks[key].view is view for key in keys]]
        if len(rows):
            suites = words.listed(view.suites).capitalize() or "No suite"
            device = f", {descriptions.on_device(view.manifest.device)}" if by_device else ""
            yield {
                "view": view,
                "title": f"{suites}, {descriptions.day(view.manifest.started_at)}{device}",
                "badge": runs_facts.badge(view.machine_page, view),
                "answer": answer(rows),
                "table": headline_table(rows),
            }


def _stages(tasks: Tasks, by_device: bool) -> tuple[list[str], list[list[str]]]:
    """What the best setting of each training task reaches, and each of its stages alone, without empty columns."""
    columns = ("Task, best setting", "All together", "Loader alone", "Copy alone", "Step alone", "Held back by")
    rows = []
    for best in tasks.values():
        stages = list(_alone(best)) if best.row["mode"] == "train" else [_NONE]
        if set(stages) != {_NONE}:
            device = f", {descriptions.on_device(best.view.manifest.device)}" if by_device else ""
            task = task_words(best.row) + device
            name = markup.two_lines(task[:1].upper() + task[1:], descriptions.knobs(best.row))
            rows.append([name, _rate_and_spread(best.row), *stages, str(best.row["bound"])])
    kept = [at for at in range(len(columns)) if any(row[at] != _NONE for row in rows)]
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _alone(best: Best) -> Iterator[str]:
    """Each stage's own throughput with its interval, measured in the same run; an emulated step's is declared."""
    ids = ceiling_ids(best.row)
    cells = best.view.cells
    for stage in STAGES:
        own = rows_of(cells[cells["cell_id"].eq(ids.get(stage, "")) & cells["samples_per_s"].notna()])
        if own:
            yield _rate_and_spread(own[0])
        elif stage == "compute" and best.row["kind"] == EMULATED:
            rate = 1000 * int(best.row["batch_size"]) / float(best.row["step_ms"])
            yield markup.two_lines(words.number(rate), "declared")
        else:
            yield _NONE


def _rate_and_spread(cell: Mapping[Any, Any]) -> str:
    return markup.two_lines(words.number(cell["samples_per_s"]), words.interval(cell["lo"], cell["hi"], cell["n"]))


def _verdicts(verdicts: Verdicts, machine_id: str, path: str, by_device: bool) -> Iterator[dict[str, Any]]:
    """What became of the claims on each device of a machine: counts, and the tested claims, confirmed ones first."""
    for at, place in enumerate(verdicts.places):
        if place.view.machine_id == machine_id:
            tested = [(name, part[at]) for name, part in verdicts.results.items() if part[at].verdict != NOT_TESTABLE]
            rows = []
            for name, each in sorted(tested, key=lambda claim: VERDICTS.index(claim[1].verdict)):
                link = markup.link(path, f"{claims_page.PATH}#claim-{name}", each.claim.says)
                effect = _NONE if each.claim.effect else "a fact"  # a side of an effect may have failed in each block
                if words.known(each.row.get("ratio")):
                    least = f"at worst {worst(each.row)}" if worst(each.row) else ""
                    effect = markup.two_lines(estimate(each.row), least) if least else estimate(each.row)
                n = f"{int(each.row['n'])}" if words.known(each.row.get("n")) else _NONE
                rows.append((claims_page.badge(each.verdict), link, effect, n))
            counts = words.listed(f"{count} {verdict}" for verdict, count in verdicts.tally(at).items())
            device = f" {descriptions.on_device(place.device)}" if by_device else ""
            yield {"device": device, "counts": counts, "rows": rows}
