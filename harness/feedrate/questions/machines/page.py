"""The machines: one table of all, and a page each: what it is, what suits it, what holds it back, its runs.

What a machine is, in words: from the manifests of its runs.

What each stage of a machine's training tasks does alone, beside what they do together: where the roof is.

What a machine has been asked to do, and the best that any of its runs found for each device and task.

A task is what a user is given: the conditions of ``analysis.summary``. Of several runs on a device that have a task the
newest speaks, never for the machine's other device; runs of another version of the protocol were measured in another
way and are left out.

What became of the sources' claims on one machine, in one list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd

from feedrate.analysis.ceilings import STAGES, ceiling_ids
from feedrate.analysis.claims import NOT_TESTABLE, VERDICTS
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.sentences import estimate
from feedrate.charts.embed import folded
from feedrate.charts.figure import EMULATED
from feedrate.machine.identity import Machine
from feedrate.pages import descriptions, markup
from feedrate.pages.headlines import answer, headline_table, task_key, task_words
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView
from feedrate.pages.verdicts import ClaimResult, Verdicts
from feedrate.plan.suite import MAIN
from feedrate.questions.claims import page as claims_page
from feedrate.questions.claims.page import badge
from feedrate.questions.runs import facts as runs_facts
from feedrate.questions.runs import trust
from feedrate.questions.runs.facts import runs_table
from feedrate.schema import words
from feedrate.schema.columns import PROTOCOL_VERSION


def facts(own: Sequence[RunView]) -> list[tuple[str, str]]:
    """Name everything that tells a machine from another, and when it was measured.

    Args:
        own: its runs, newest first; at least one.

    Returns:
        Names and values, the values being HTML.
    """
    machine = own[0].manifest.machine
    days = dict.fromkeys(descriptions.day(shown.manifest.started_at) for shown in (own[-1], own[0]))
    return [
        ("Processor", escape(f"{machine.cpu_model}, {_cores(machine)}")),
        ("Accelerator", escape(_accelerator(machine))),
        ("Memory", escape(_memory(machine))),
        ("Storage of the data", escape(storage(own))),
        ("Virtual machine", {True: "yes", False: "no", None: "unknown"}[machine.virtualised]),
        ("System", escape(f"{machine.distribution or machine.operating_system}, kernel {machine.kernel}")),
        ("PyTorch", escape(", ".join(dict.fromkeys(shown.manifest.software.torch or "unknown" for shown in own)))),
        ("Measured", escape(f"{words.plural(len(own), 'run')}, {' to '.join(days)}")),
        ("Tier", runs_facts.tiers(own[0].machine_page, own)),
        ("Machine id", markup.code(machine.machine_id)),
    ]


def devices(own: Sequence[RunView]) -> str:
    """Name the devices that runs were made on: ``CPU``, ``CPU, GPU``."""
    return ", ".join(sorted({descriptions.device_name(shown.manifest.device) for shown in own}))


def several_devices(own: Sequence[RunView]) -> bool:
    """Say whether numbers of a machine must name their device: runs were made on its CPU, and it has a GPU too."""
    return any(descriptions.gpu_idle(shown.manifest.machine, shown.manifest.device) for shown in own)


def memory(machine: Machine) -> str:
    """Write the memory that a process may use."""
    limit = machine.memory_limit_bytes
    return descriptions.size(min(machine.memory_bytes, limit or machine.memory_bytes)).replace(" ", "\u00a0")


def storage(own: Sequence[RunView]) -> str:
    """Name every kind of disk that packed data lay on, that of the newest run first."""
    disks = [shown.manifest.machine.storage for shown in own]
    said = [", ".join(filter(None, (disk.device_class, disk.file_system, disk.model))) for disk in disks if disk]
    return "; ".join(dict.fromkeys(said)) or "unknown"


def _cores(machine: Machine) -> str:
    said = words.plural(machine.cores_logical, "core")
    if machine.cores_physical and machine.cores_physical != machine.cores_logical:
        threads = words.plural(machine.cores_logical, "hardware thread")
        said = f"{threads} of {words.plural(machine.cores_physical, 'core')}"
    return f"{said}, limited to the time of {machine.cpu_quota_cores:g}" if machine.cpu_quota_cores else said


def _accelerator(machine: Machine) -> str:
    if not machine.gpu_name:
        return "none: questions about the loader are asked of the loader alone and of an emulated step"
    count = f"{machine.gpu_count} × " if machine.gpu_count > 1 else ""
    size = f", {descriptions.size(machine.gpu_memory_bytes)}" if machine.gpu_memory_bytes else ""
    return f"{count}{machine.gpu_name}{size}"


def _memory(machine: Machine) -> str:
    limit, whole = machine.memory_limit_bytes, descriptions.size(machine.memory_bytes)
    return f"{descriptions.size(limit)} of {whole}, by a limit" if limit and limit < machine.memory_bytes else whole


Task = tuple[str, ...]
"""Of ``headlines.task_key``."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best setting of a task on one device of a machine."""

    shown: RunView
    """The run that found it."""
    row: Mapping[Any, Any]
    """Of ``pages.headlines.headlines``."""

    @property
    def rate(self) -> float:
        """Samples a second."""
        return float(self.row["samples_per_s"])


Tasks = Mapping[tuple[str, Task], Best]
"""Device and task to its best, in the order of the headlines of the newest run that has it."""


def tasks_of(own: Sequence[RunView]) -> Tasks:
    """Find the best setting of every task on each device of one machine."""
    found: dict[tuple[str, Task], Best] = {}
    for shown in own:
        if shown.manifest.protocol_version == PROTOCOL_VERSION:
            for row in rows_of(shown.headlines):
                found.setdefault((shown.manifest.device, task_key(row)), Best(shown, row))
    return found


def of_run(shown: RunView, found: Tasks) -> pd.DataFrame:
    """Keep the headlines of a run for whose task no newer run on its device speaks."""
    keys = [(shown.manifest.device, task_key(row)) for row in rows_of(shown.headlines)]
    return shown.headlines[[key in found and found[key].shown is shown for key in keys]]


def shared(machines: Sequence[Tasks]) -> Task | None:
    """Choose the task by which machines are compared: the one that most of them have, on whatever device.

    Of several that equally many have it is one of the main suite, and of those the first in the headlines of the
    machine that was measured last.
    """
    counts: dict[Task, tuple[int, int]] = {}
    for found in machines:
        of_main = {task for (_, task), best in found.items() if MAIN in best.shown.suites}
        for task in dict.fromkeys(task for _, task in found):
            had, main = counts.get(task, (0, 0))
            counts[task] = had + 1, main + (task in of_main)
    return max(counts, key=lambda task: counts[task], default=None)


def fastest(found: Tasks, task: Task) -> Best | None:
    """Let the device speak for a machine that is faster at a task."""
    own = (best for (_, each), best in found.items() if each == task)
    return max(own, key=lambda best: best.rate, default=None)


_STAGES_COLUMNS = ("Task, best setting", "All together", "Loader alone", "Copy alone", "Step alone", "Held back by")
_NONE = "–"


def table(found: Tasks, *, by_device: bool) -> str:
    """Write a row a training task and device; empty where no stage was measured alone."""
    rows = [
        (_named(best, by_device), _stage_rate(best.row), *stages, escape(str(best.row["bound"])))
        for best in found.values()
        if best.row["mode"] == "train" and set(stages := tuple(_alone(best))) != {_NONE}
    ]
    if not rows:
        return ""
    kept = [place for place in range(len(_STAGES_COLUMNS)) if any(row[place] != _NONE for row in rows)]
    columns = [_STAGES_COLUMNS[place] for place in kept]
    lines = [[row[place] for place in kept] for row in rows]
    return markup.paragraph(
        "Samples a second of the best setting of each training task, and of each of its stages when nothing else "
        "runs. The slowest stage is the roof: a faster one beside it gains nothing. Where workers and model share "
        "the cores of a CPU, no two stages reach their own at once."
    ) + markup.table("Stages alone and together", columns, lines, columns[1:-1], stack=True)


def _named(best: Best, by_device: bool) -> str:
    device = best.shown.manifest.device
    task = task_words(best.row) + (f", {descriptions.on_device(device)}" if by_device else "")
    setting = f'<span class="fr-kind">{escape(descriptions.knobs(best.row))}</span>'
    return f"{escape(task[:1].upper() + task[1:])}<br>{setting}"


def _alone(best: Best) -> Iterator[str]:
    """Each stage's own throughput with its interval, measured in the same run; an emulated step's is declared."""
    ids = ceiling_ids(best.row)
    cells = best.shown.cells
    for stage in STAGES:
        own = rows_of(cells[cells["cell_id"].eq(ids.get(stage, "")) & cells["samples_per_s"].notna()])
        if own:
            yield _stage_rate(own[0])
        elif stage == "compute" and best.row["kind"] == EMULATED:
            rate = 1000 * int(best.row["batch_size"]) / float(best.row["step_ms"])
            yield f'{words.number(rate)}<br><span class="fr-kind">declared</span>'
        else:
            yield _NONE


def _stage_rate(cell: Mapping[Any, Any]) -> str:
    spread = descriptions.spread(cell["lo"], cell["hi"])
    return f'{words.number(float(cell["samples_per_s"]))}<br><span class="fr-kind">{spread}, n = {cell["n"]}</span>'


def listing(told: Verdicts, machine_id: str, path: str, *, by_device: bool) -> str:
    """Write the verdicts of a machine, a table a device; empty where none of its runs tested a claim."""
    found = []
    for at, place in enumerate(told.places):
        if place.shown.machine_id == machine_id:
            device = f" {descriptions.on_device(place.device)}" if by_device else ""
            found.append(_tallied(told, at, device) + _table(told, at, path, device))
    return "".join(found)


def _tallied(told: Verdicts, at: int, device: str) -> str:
    counts = words.listed(f"{count} {verdict}" for verdict, count in told.tally(at).items())
    return markup.paragraph(f"Of {words.plural(len(told.told), 'claim')}{device}: {counts}.", "fr-answer")


def _table(told: Verdicts, at: int, path: str, device: str) -> str:
    rows = [
        (
            badge(each.verdict),
            markup.link(path, f"{claims_page.PATH}#claim-{name}", each.claim.says),
            _effect(each),
            _n(each),
        )
        for name, each in _by_verdict(told, at)
    ]
    more = markup.link(path, claims_page.PATH, "All claims, how they are tested, and what cannot be tested here")
    listed = markup.table(
        f"Verdicts of this machine{device}", ("Verdict", "Claim", "Effect (95 %)", "n"), rows, ("n",), stack=True
    )
    summary = f"The {words.plural(len(rows), 'claim')} tested here{device}, with effects"
    return f'{folded(summary, listed)}<p class="fr-note">{more}</p>\n'


def _by_verdict(told: Verdicts, at: int) -> Iterator[tuple[str, ClaimResult]]:
    """The claims that were tested, confirmed ones first."""
    for verdict in VERDICTS:
        if verdict != NOT_TESTABLE:
            yield from ((name, part[at]) for name, part in told.told.items() if part[at].verdict == verdict)


def _effect(each: ClaimResult) -> str:
    """The ratio; a claim of an effect that no block tells, as in each a side failed, has none and is no fact."""
    if words.known(each.row.get("ratio")):
        return escape(estimate(each.row))
    return "–" if each.claim.effect else "a fact"


def _n(each: ClaimResult) -> str:
    return f"{int(each.row['n'])}" if words.known(each.row.get("n")) else "–"


INDEX = "machines/index.md"
_LEAD = (
    "What machines have been measured. A machine’s page has the best setting of each of its tasks, what holds them "
    "back, what became of the sources’ claims there, and its runs."
)
_COLUMNS = (
    "Machine",
    "Device",
    "Cores",
    "Memory",
    "Storage",
    "Runs",
    "Samples/s",
    "95 % interval",
    "n",
    "Grade",
    "Tier",
)


def by_machine(runs: Sequence[RunView]) -> dict[str, list[RunView]]:
    """Sort runs by machine; the machine that was measured last comes first.

    Args:
        runs: newest first.
    """
    found: dict[str, list[RunView]] = {}
    for shown in runs:
        found.setdefault(shown.machine_id, []).append(shown)
    return found


def index_page(runs: Sequence[RunView]) -> Page:
    """Write the table of all machines.

    Args:
        runs: all runs, newest first; none is fine.
    """
    body = ["# Machines\n", markup.paragraph(_LEAD, "fr-lead")]
    if machines := by_machine(runs):
        body += _compared(machines)
    else:
        none = "No machine has been measured yet. Type make sweep, then make site."
        body.append(markup.paragraph(none, "fr-missing"))
    return Page(INDEX, "Machines", "\n".join(body), hide=("navigation", "toc"))


def _compared(machines: Mapping[str, list[RunView]]) -> Iterator[str]:
    """A row a machine, the fastest at the task that most of them have first."""
    tasks = {name: tasks_of(own) for name, own in machines.items()}
    task = shared(list(tasks.values()))
    found = {name: fastest(each, task) for name, each in tasks.items()} if task else {}
    best = {name: each for name, each in found.items() if each}
    if best:
        said = task_words(next(iter(best.values())).row)
        several = any(len({shown.manifest.device for shown in own}) > 1 for own in machines.values())
        faster = "Of a machine’s two devices the faster speaks. " if several else ""
        yield markup.paragraph(
            f"Samples/s are those of {said}: the fastest setting that the machine’s newest run of it found, with its "
            f"95\u00a0% interval. {faster}More than the hardware may differ between two of them (the version of "
            "PyTorch, the settings that were tried): the pages of the machines say what."
        )
    ranked = sorted(machines, key=lambda name: -best[name].rate if name in best else 0.0)
    rows = [_row(machines[name], best.get(name)) for name in ranked]
    yield markup.table("Machines", _COLUMNS, rows, ("Cores", "Memory", "Runs", "Samples/s", "n"), stack=True)


def _row(own: Sequence[RunView], best: Best | None) -> tuple[str, ...]:
    machine = own[0].manifest.machine
    return (
        markup.link(INDEX, own[0].machine_page, descriptions.machine_name(own[0].run)),
        escape(devices(own)),
        str(machine.cores_logical),
        memory(machine),
        escape(storage(own)),
        str(len(own)),
        _rate(best, several_devices(own)) if best else "not measured",
        descriptions.spread(best.row["lo"], best.row["hi"]) if best else "–",
        str(best.row["n"]) if best else "–",
        trust.badge(INDEX, best.shown if best else own[0]),
        runs_facts.tiers(INDEX, own),
    )


def _rate(best: Best, by_device: bool) -> str:
    rate, device = words.number(best.rate), descriptions.on_device(best.shown.manifest.device)
    return f'{rate}<br><span class="fr-kind">{device}</span>' if by_device else rate


def page(own: Sequence[RunView], told: Verdicts, questions: Mapping[str, str]) -> Page:
    """Write a machine's page.

    Args:
        own: its runs, newest first; at least one.
        told: what all runs say of the claims.
        questions: suite to the path of its page.
    """
    path, name = own[0].machine_page, descriptions.machine_name(own[0].run)
    found, by_device = tasks_of(own), several_devices(own)
    stages = table(found, by_device=by_device)
    verdicts = listing(told, own[0].machine_id, path, by_device=by_device)
    body = [
        f'<p class="fr-eyebrow">Machine</p>\n\n# {markup.entities(name)}\n',
        markup.facts(facts(own)),
        *_best(own, found, path, questions),
        *markup.section("What each stage does alone", stages, name="stages"),
        *markup.section("What the sources say, on this machine", verdicts, name="claims"),
        *markup.section("Runs", _runs(own, path, questions), name="runs"),
        f'<p class="fr-note">{markup.link(path, INDEX, "All machines")}</p>\n',
    ]
    return Page(path, name, "\n".join(body), listed=False, hide=("navigation",))


def _best(own: Sequence[RunView], found: Tasks, path: str, questions: Mapping[str, str]) -> Iterator[str]:
    """The best setting of each task, below the run that found it; the main suite first."""
    if not found:
        yield markup.paragraph("No run of this machine says which settings suit it.", "fr-missing")
        return
    yield markup.heading(2, "Best settings", "best")
    by_device = several_devices(own)
    for shown in sorted(own, key=lambda each: MAIN not in each.suites):
        rows = of_run(shown, found)
        if len(rows):
            asked = words.listed(shown.suites).capitalize() or "No suite"
            device = f", {descriptions.on_device(shown.manifest.device)}" if by_device else ""
            title = f"{asked}, {descriptions.day(shown.manifest.started_at)}{device}"
            yield markup.heading(3, title, f"best-{shown.slug}")
            yield _origin(shown, path, questions)
            if said := answer(rows):
                yield markup.paragraph(said, "fr-answer")
            yield headline_table(rows)
    yield markup.paragraph(
        "n counts blocks. The best of many settings is picked by its own estimate, so that estimate is a little too "
        "good. Where several runs on a device have a task, the newest speaks.",
        "fr-note",
    )


def _origin(shown: RunView, path: str, questions: Mapping[str, str]) -> str:
    said = escape(words.plural(shown.manifest.blocks, "block"))
    run = markup.link(path, shown.page, f"run {shown.manifest.run_id}")
    suites = _suites(shown, path, questions)
    return f'<p class="fr-origin">{said}, {run}, {trust.badge(path, shown)}; charts of {suites}</p>\n'


def _suites(shown: RunView, path: str, questions: Mapping[str, str]) -> str:
    return words.listed(
        markup.link(path, questions[name], name) if name in questions else escape(name) for name in shown.suites
    )


def _runs(own: Sequence[RunView], path: str, questions: Mapping[str, str]) -> str:
    def linked(shown: RunView, path: str) -> str:
        return _suites(shown, path, questions)

    device = ("Device",) if several_devices(own) else ()
    return runs_table("Runs of this machine", own, path, ("Run", "Grade", "Tier", *device, "Suites", "Date"), linked)
