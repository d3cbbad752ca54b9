"""The machines: one table of all, and a page each: what it is, what suits it, what holds it back, its runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from harness.charts import _words as words
from harness.pages import (
    described,
    machine_facts,
    machine_stages,
    machine_tasks,
    machine_verdicts,
    markup,
    run_facts,
    trust,
)
from harness.pages.gathered import Shown
from harness.pages.headlines import answer, headline_table, task_words
from harness.pages.machine_tasks import Best, Tasks
from harness.pages.markup import Page
from harness.pages.run_table import runs_table
from harness.pages.verdicts import Verdicts
from harness.suite import MAIN

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


def by_machine(runs: Sequence[Shown]) -> dict[str, list[Shown]]:
    """Sort runs by machine; the machine that was measured last comes first.

    Args:
        runs: newest first.
    """
    found: dict[str, list[Shown]] = {}
    for shown in runs:
        found.setdefault(shown.machine_id, []).append(shown)
    return found


def index_page(runs: Sequence[Shown]) -> Page:
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


def _compared(machines: Mapping[str, list[Shown]]) -> Iterator[str]:
    """A row a machine, the fastest at the task that most of them have first."""
    tasks = {name: machine_tasks.tasks(own) for name, own in machines.items()}
    task = machine_tasks.shared(list(tasks.values()))
    found = {name: machine_tasks.fastest(each, task) for name, each in tasks.items()} if task else {}
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


def _row(own: Sequence[Shown], best: Best | None) -> tuple[str, ...]:
    machine = own[0].manifest.machine
    return (
        markup.link(INDEX, own[0].machine_page, described.machine_name(own[0].run)),
        escape(machine_facts.devices(own)),
        str(machine.cores_logical),
        machine_facts.memory(machine),
        escape(machine_facts.storage(own)),
        str(len(own)),
        _rate(best, machine_facts.by_device(own)) if best else "not measured",
        described.spread(best.row["lo"], best.row["hi"]) if best else "–",
        str(best.row["n"]) if best else "–",
        trust.badge(INDEX, best.shown if best else own[0]),
        run_facts.tiers(INDEX, own),
    )


def _rate(best: Best, by_device: bool) -> str:
    rate, device = words.number(best.rate), described.on_device(best.shown.manifest.device)
    return f'{rate}<br><span class="fr-kind">{device}</span>' if by_device else rate


def page(own: Sequence[Shown], told: Verdicts, questions: Mapping[str, str]) -> Page:
    """Write a machine's page.

    Args:
        own: its runs, newest first; at least one.
        told: what all runs say of the claims.
        questions: suite to the path of its page.
    """
    path, name = own[0].machine_page, described.machine_name(own[0].run)
    found, by_device = machine_tasks.tasks(own), machine_facts.by_device(own)
    stages = machine_stages.table(found, by_device=by_device)
    verdicts = machine_verdicts.listing(told, own[0].machine_id, path, by_device=by_device)
    body = [
        f'<p class="fr-eyebrow">Machine</p>\n\n# {markup.entities(name)}\n',
        markup.facts(machine_facts.facts(own)),
        *_best(own, found, path, questions),
        *markup.section("What each stage does alone", stages, name="stages"),
        *markup.section("What the sources say, on this machine", verdicts, name="claims"),
        *markup.section("Runs", _runs(own, path, questions), name="runs"),
        f'<p class="fr-note">{markup.link(path, INDEX, "All machines")}</p>\n',
    ]
    return Page(path, name, "\n".join(body), listed=False, hide=("navigation",))


def _best(own: Sequence[Shown], found: Tasks, path: str, questions: Mapping[str, str]) -> Iterator[str]:
    """The best setting of each task, below the run that found it; the main suite first."""
    if not found:
        yield markup.paragraph("No run of this machine says which settings suit it.", "fr-missing")
        return
    yield markup.heading(2, "Best settings", "best")
    by_device = machine_facts.by_device(own)
    for shown in sorted(own, key=lambda each: MAIN not in each.suites):
        rows = machine_tasks.of_run(shown, found)
        if len(rows):
            asked = words.listed(shown.suites).capitalize() or "No suite"
            device = f", {described.on_device(shown.manifest.device)}" if by_device else ""
            title = f"{asked}, {described.day(shown.manifest.started_at)}{device}"
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


def _origin(shown: Shown, path: str, questions: Mapping[str, str]) -> str:
    said = escape(words.plural(shown.manifest.blocks, "block"))
    run = markup.link(path, shown.page, f"run {shown.manifest.run_id}")
    suites = _suites(shown, path, questions)
    return f'<p class="fr-origin">{said}, {run}, {trust.badge(path, shown)}; charts of {suites}</p>\n'


def _suites(shown: Shown, path: str, questions: Mapping[str, str]) -> str:
    return words.listed(
        markup.link(path, questions[name], name) if name in questions else escape(name) for name in shown.suites
    )


def _runs(own: Sequence[Shown], path: str, questions: Mapping[str, str]) -> str:
    def linked(shown: Shown, path: str) -> str:
        return _suites(shown, path, questions)

    device = ("Device",) if machine_facts.by_device(own) else ()
    return runs_table("Runs of this machine", own, path, ("Run", "Grade", "Tier", *device, "Suites", "Date"), linked)
