"""One page a run: everything that the run says of itself, what failed and why, the order of trials, the raw files.

Two clocks of one step on a GPU: what CUDA events say of each phase against a host that waits for the device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from feedrate.analysis.blocks import successful
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.steps import cross_check, hidden_share
from feedrate.charts.embed import folded
from feedrate.pages import descriptions, markup
from feedrate.pages.headlines import headline_table
from feedrate.pages.markup import Page, Placed
from feedrate.pages.runs import RunView, draw, place
from feedrate.questions.cite import page as cite_page
from feedrate.questions.runs import facts, trust
from feedrate.schema import words
from feedrate.schema.axes import AXES
from feedrate.schema.window import STEADY
from feedrate.store.manifest import Protocol


def section(shown: RunView) -> str:
    """Write the cross-check; nothing where no cell ran with both clocks."""
    checked = cross_check(shown.trials)
    if checked.empty:
        return ""
    settings = {row["cell_id"]: descriptions.setting(row) for row in rows_of(shown.cells)}
    rows = [
        (
            escape(settings[row["cell_events"]]),
            escape(row["phase"]),
            f"{row['ratio']:.2f}",
            descriptions.spread(row["lo"], row["hi"]),
            str(row["n"]),
        )
        for row in rows_of(checked)
    ]
    table = markup.table(
        "Device span by events ÷ phase of a host that waits",
        ("Setting", "Phase", "Ratio", "95 % interval", "n"),
        rows,
        ("Ratio", "95 % interval", "n"),
        stack=True,
    )
    shares = [
        f"{settings[row['cell_events']]}: {words.percent(row['hidden'])}"
        for row in rows_of(hidden_share(shown.trials))
        if words.known(row["hidden"])
    ]
    said = (
        "A ratio near 1 says that both clocks see the same work; launching makes it smaller, waiting in a queue larger."
    )
    if shares:
        said += f" What overlap hides of a step in which nothing overlaps: {'; '.join(shares)}."
    return markup.paragraph(said) + table


_MOST_LISTED = 2_000
"""Trials of a list: with more a page would weigh megabytes."""
_MOST_OPEN = 12
"""Failures that are shown without being asked for."""
FILES = {
    "run.json": "the manifest",
    "trials.parquet": "a row a trial, the manifest embedded",
    "steps.parquet": "a row a step of the first steps of each trial",
    "telemetry.parquet": "a row a probe sample",
}
_ORDERED = ["block", "position", "role", "outcome", "samples_per_s", "flags", *(axis.name for axis in AXES)]
"""What the list of all trials tells of each."""
_PICTURES = {"drift": "trials.parquet", "telemetry": "telemetry.parquet"}
"""Charts of a run as a whole, and the file that each needs."""


def page(shown: RunView) -> Page:
    """Write the page of a run; it copies the run's files beside it."""
    figures: dict[str, Placed] = {}
    run = shown.manifest
    body = [f'<p class="fr-eyebrow">Run</p>\n\n# {markup.entities(run.run_id)}\n', _summary(shown)]
    body += markup.section("Best settings", headline_table(shown.headlines))
    body += markup.section("What to know", _lines([*map(descriptions.note, run.substitutions), *_cautions(shown)]))
    body += markup.section("How far to trust it", trust.verdict(shown))
    for title, placed in _pictures(shown):
        figures[placed.name] = placed
        body += markup.section(title, f"{markup.slot(placed.name)}\n", 3)
    body += markup.section("Why it stopped", trust.stopped(shown), 3)
    body += markup.section("Longer windows or more blocks?", trust.spread(shown), 3)
    body += markup.section("What disturbed trials", trust.disturbed(shown), 3)
    body += markup.section("Before and after", trust.looks(shown), 3)
    body += markup.section("Two clocks", section(shown), 3)
    body += markup.section("What failed", _failures(shown))
    body += markup.section("Machine", markup.facts(_named(run.machine.model_dump(exclude={"storage", "machine_id"}))))
    if run.machine.storage:
        body += markup.section("Storage", markup.facts(_named(run.machine.storage.model_dump())))
    body += markup.section("Software", markup.facts(_named(run.software.model_dump(exclude_none=True) | run.runtime)))
    body += markup.section("Protocol", markup.facts(_protocol(run.protocol)))
    body += markup.section("Data", _datasets(shown))
    body += markup.section("Combinations that are no cells", _counted(shown))
    body += markup.section("Order of trials", _order(shown))
    there = {name: shown.run.folder / name for name in FILES if (shown.run.folder / name).is_file()}
    files = {f"runs/{shown.slug}/{name}": path for name, path in there.items()}
    body += markup.section("Files", downloads(shown, files))
    body += markup.section("Cite", cite_page.run_forms(shown)) if "trials.parquet" in there else []
    return Page(shown.page, f"Run {run.run_id}", "\n".join(body), figures, files, listed=False, hide=("navigation",))


def _pictures(shown: RunView) -> Iterator[tuple[str, Placed]]:
    """Title and figure of every chart of the whole run that it has anything for."""
    for chart, file in _PICTURES.items():
        if (shown.run.folder / file).is_file() and (figure := draw(chart, shown)).panels:
            yield figure.title, place(figure, f"{chart}-{shown.slug}", shown.page, shown.origin)


def _summary(shown: RunView) -> str:
    run = shown.manifest
    outcomes = ", ".join(f"{count:,} {name}" for name, count in run.outcomes.items())
    return markup.facts(
        (
            ("Grade", f'<a href="#how-far-to-trust-it"><strong>{shown.grade.letter}</strong>, and why</a>'),
            *facts.beside(shown),
            ("Machine", markup.link(shown.page, shown.machine_page, shown.name)),
            ("Machine id", markup.code(run.machine.machine_id)),
            ("Device", escape(run.device)),
            ("Repeat it", markup.code(run.command)),
            ("Began", f"{escape(descriptions.day(run.started_at))} ({escape(run.started_at)})"),
            ("Took", escape(descriptions.minutes(run.started_at, run.ended_at))),
            ("Measured", _measured(shown)),
            ("Trials", escape(outcomes)),
            *trust.added(shown),
            ("Stopped", escape(trust.STOPPED.get(run.stop_reason, run.stop_reason))),
            ("Profile", escape(run.profile)),
            ("Suites", escape(words.listed(run.suites) or "none")),
            ("Parent’s CPU", f"{run.parent_cpu_pct:.1f} % of one core"),
            ("Version", f"feedrate {escape(run.feedrate_version)}, protocol {run.protocol_version}, seed {run.seed}"),
        )
    )


def _measured(shown: RunView) -> str:
    """Cells and blocks; not every cell is in every block, as what is answered is left out of those that follow."""
    run = shown.manifest
    usual = shown.grade.blocks
    most = f", half of the cells in {usual:,} or more" if 0 < usual < run.blocks else ""
    cells = f"{words.plural(run.cells, 'cell')}, from {words.plural(run.combinations, 'combination')}"
    return f"{cells}; {words.plural(run.blocks, 'block')}{most}"


def _cautions(shown: RunView) -> Iterable[str]:
    trials = shown.trials
    if shown.manifest.blocks < 2:
        yield "One block only: no interval can be given for any number of this run."
    # The second half of a cold window is the faster one, as more has been read ahead: as the flag's rule has it.
    judged = successful(trials)
    judged = judged[judged["steady"].notna() & judged["page_cache"].ne("cold").fillna(True)]
    drifting = int((~judged["steady"].astype(bool)).sum())
    if drifting:
        halves = f"the halves of the window differ by more than {100 * (1 - STEADY):.0f}\u00a0%"
        yield f"{drifting:,} of {words.plural(len(judged), 'trial')} had not settled: {halves}."
    left = int(trials["left_processes"].fillna(0).sum())
    if left:
        outlived = f"{left:,} processes outlived their trials" if left > 1 else "1 process outlived its trial"
        yield f"{outlived} and had to be killed."


def _lines(notes: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<ul>{items}</ul>\n" if items else ""


def _failures(shown: RunView) -> str:
    failed = shown.trials[shown.trials["outcome"].ne("ok")]
    rows = [
        (
            str(row["block"]),
            str(row["position"]),
            escape(descriptions.setting(row)),
            escape(str(row["outcome"])),
            f"{escape(_text(row['error_kind']))}<br>{escape(_text(row['error_message']))}",
        )
        for row in rows_of(failed.sort_values(["block", "position"]).head(_MOST_LISTED))
    ]
    listing = markup.table(
        "Trials that failed, with their reasons",
        ("Block", "Place", "Setting", "Outcome", "Reason"),
        rows,
        ("Block", "Place"),
        stack=True,
    )
    if len(rows) <= _MOST_OPEN:
        return listing if rows else ""
    said = _counted_rows(len(rows), len(failed), "trials that failed, with their reasons")
    return folded(said, listing)


def _counted_rows(listed: int, there: int, what: str) -> str:
    """Say how much of something a list has."""
    if listed == there:
        return f"All {there:,} {what}"
    return f"The first {listed:,} of {there:,} {what}; trials.parquet has all"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _named(values: dict[str, Any]) -> list[tuple[str, str]]:
    return [(_label(name), escape(_fact(name, value))) for name, value in values.items()]


def _protocol(protocol: Protocol) -> list[tuple[str, str]]:
    """The protocol in words where its names alone do not say what a number means."""
    fewest, most = protocol.blocks
    said = {
        "blocks": f"{fewest} to {most}: nothing stops earlier for being narrow enough, nothing is asked about in more",
        "ci_target_pct": f"±{protocol.ci_target_pct:g} % is narrow enough for a contrast",
        "control_every": f"the control cell runs again every {words.plural(protocol.control_every, 'trial')}",
    }
    labels = {"ci_target_pct": "interval wanted", "control_every": "control cell"}
    values = protocol.model_dump()
    return [
        (labels.get(name, _label(name)), escape(said.get(name, _fact(name, value)))) for name, value in values.items()
    ]


def _label(name: str) -> str:
    spoken = name.removesuffix("_bytes").removesuffix("_s").replace("_", " ")
    return re.sub(r"\b(cpu|gpu)\b", lambda match: match[1].upper(), spoken)


def _fact(name: str, value: Any) -> str:
    if value is None:
        return "none" if name.startswith(("gpu", "cpu_quota", "memory_limit")) else "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_bytes"):
        return descriptions.size(value)
    if isinstance(value, list | tuple):
        return ", ".join(str(part) for part in value)
    return f"{value:g} s" if name.endswith("_s") else str(value)


def _datasets(shown: RunView) -> str:
    rows = [
        (
            escape(data.name) + "".join(f"<br>{escape(note)}" for note in data.notes),
            escape(data.storage_format),
            f"{data.count:,}",
            descriptions.size(data.bytes),
            f"{data.pack_s:.1f} s",
            markup.code(data.data_hash),
        )
        for data in shown.manifest.datasets
    ]
    columns = ("Set", "Format", "Samples", "On disk", "Packed in", "Hash")
    return (
        markup.table("The packed sets that were read", columns, rows, ("Samples", "On disk", "Packed in"), stack=True)
        if rows
        else ""
    )


def _counted(shown: RunView) -> str:
    rows = [
        (f"{part.count:,}", what, escape(part.reason))
        for what, parts in (("merged", shown.manifest.merged), ("left out", shown.manifest.excluded))
        for part in parts
    ]
    return (
        markup.table(
            "Combinations that were merged or left out",
            ("Combinations", "What became of them", "Reason"),
            rows,
            ("Combinations",),
        )
        if rows
        else ""
    )


def _order(shown: RunView) -> str:
    told = trust.flags(shown.trials)
    rows = [
        (
            str(row["block"]),
            str(row["position"]),
            escape(descriptions.setting(row)),
            *((escape(_text(row["role"])),) if told else ()),
            escape(str(row["outcome"])),
            words.number(float(row["samples_per_s"])) if words.known(row["samples_per_s"]) else "–",
            *((escape(_text(row["flags"]).replace(",", ", ")),) if told else ()),
        )
        for row in rows_of(shown.trials[_ORDERED].sort_values(["block", "position"]).head(_MOST_LISTED))
    ]
    roles, flags = (("Ran as",), ("Flags",)) if told else ((), ())
    columns = ("Block", "Place", "Setting", *roles, "Outcome", "Samples/s", *flags)
    listing = markup.table("Every trial in the order in which it ran", columns, rows, ("Block", "Place", "Samples/s"))
    return markup.paragraph(
        "Every block runs each cell that is still wanted once, in a fresh random order, so that a drift of the "
        "machine falls on all cells alike; the sides of a claim come close to each other, and the control cell "
        "again and again. Only axes that are not at their default are named."
    ) + folded(_counted_rows(len(rows), len(shown.trials), "trials"), listing)


def downloads(shown: RunView, files: Iterable[str]) -> str:
    """List files of a run, each to be saved and with what it holds.

    Args:
        shown: the run.
        files: paths below the site, ending in names of ``FILES``.
    """
    names = {path: path.rpartition("/")[2] for path in files}
    items = (f"<li>{markup.download(shown.page, path, name)} {FILES[name]}</li>" for path, name in names.items())
    return f"<ul>{''.join(items)}</ul>\n"
