"""One page a run: everything that the run says of itself, what failed and why, the order of trials, the raw files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from feedrate.analysis.blocks import successful
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.steps import cross_check, hidden_share
from feedrate.charts.figure import Figure
from feedrate.pages import descriptions, markup
from feedrate.pages.headlines import headline_table
from feedrate.pages.markup import Page, Placed
from feedrate.pages.runs import RunView, draw, place
from feedrate.pages.template import render
from feedrate.questions.cite import page as cite_page
from feedrate.questions.runs import facts, trust
from feedrate.schema import words
from feedrate.schema.axes import AXES
from feedrate.schema.window import STEADY
from feedrate.store.manifest import Protocol

_MOST_LISTED = 2_000
"""Trials of a list: with more a page would weigh megabytes."""
_MOST_OPEN = 12
"""Failures that are shown without being asked for."""
_ORDERED = ["block", "position", "role", "outcome", "samples_per_s", "flags", *(axis.name for axis in AXES)]
"""What the list of all trials tells of each."""
_PICTURES = {"drift": "trials.parquet", "telemetry": "telemetry.parquet"}
"""Charts of a run as a whole, and the file that each needs."""


def page(view: RunView) -> Page:
    """Write the page of a run; it copies the run's files beside it."""
    run, files = view.manifest, facts.files(view)
    pictures = list(_pictures(view))
    settings = {row["cell_id"]: descriptions.setting(row) for row in rows_of(view.cells)}
    order_columns, order = _order(view)
    failed = view.trials[view.trials["outcome"].ne("ok")]
    body = render(
        "runs/page.md",
        page=view.page,
        run=run,
        grade=view.grade,
        target=f"{run.protocol.ci_target_pct:g}",
        summary=_summary(view),
        headlines=headline_table(view.headlines),
        notes=[*map(descriptions.note, run.substitutions), *_cautions(view)],
        pictures=pictures,
        **trust.values(view),
        clocks=list(_clocks(view, settings)),
        hidden=[
            f"{settings[row['cell_events']]}: {words.percent(row['hidden'])}"
            for row in rows_of(hidden_share(view.trials))
            if words.known(row["hidden"])
        ],
        failures=[
            (row["block"], row["position"], descriptions.setting(row), row["outcome"], _reason(row))
            for row in rows_of(failed.sort_values(["block", "position"]).head(_MOST_LISTED))
        ],
        failed=len(failed),
        most_open=_MOST_OPEN,
        count=_count,
        details=_details(view),
        datasets=[
            (
                Markup("<br>").join((data.name, *data.notes)),
                data.storage_format,
                f"{data.count:,}",
                descriptions.size(data.bytes),
                f"{data.pack_s:.1f} s",
                markup.code(data.data_hash),
            )
            for data in run.datasets
        ],
        counted=[
            (f"{part.count:,}", became, part.reason)
            for became, parts in (("merged", run.merged), ("left out", run.excluded))
            for part in parts
        ],
        order=order,
        order_columns=order_columns,
        trials=len(view.trials),
        downloads=facts.downloads(view),
        citation=cite_page.run_forms(view) if f"runs/{view.slug}/trials.parquet" in files else "",
    )
    figures = {placed.name: placed for _, placed in pictures}
    return Page(view.page, f"Run {run.run_id}", body, figures, files, listed=False, hide=("navigation",))


def _pictures(view: RunView) -> Iterator[tuple[Figure, Placed]]:
    """Every chart of the whole run that it has anything for."""
    for chart, file in _PICTURES.items():
        if (view.run.folder / file).is_file() and (figure := draw(chart, view)).panels:
            yield figure, place(figure, f"{chart}-{view.slug}", view.page, view.origin)


def _summary(view: RunView) -> dict[str, str]:
    run, short = view.manifest, facts.short(view)
    # Not every cell is in every block: what is answered is left out of those that follow.
    usual = view.grade.blocks
    most = f", half of the cells in {usual:,} or more" if 0 < usual < run.blocks else ""
    cells = f"{words.plural(run.cells, 'cell')}, from {words.plural(run.combinations, 'combination')}"
    grade = Markup('<a href="#how-far-to-trust-it"><strong>{}</strong>, and why</a>').format(view.grade.letter)
    return {
        "Grade": grade,
        **facts.beside(view),
        "Machine": markup.link(view.page, view.machine_page, view.name),
        "Machine id": markup.code(run.machine.machine_id),
        **{name: short[name] for name in ("Device", "Repeat it", "Began", "Took")},
        "Measured": f"{cells}; {words.plural(run.blocks, 'block')}{most}",
        "Trials": short["Trials"],
        **trust.added(view),
        "Stopped": short["Stopped"],
        "Profile": run.profile,
        "Suites": short["Suites"],
        "Parent’s CPU": f"{run.parent_cpu_pct:.1f} % of one core",
        "Version": short["Version"],
    }


def _cautions(view: RunView) -> Iterator[str]:
    trials = view.trials
    if view.manifest.blocks < 2:
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


def _clocks(view: RunView, settings: Mapping[Any, str]) -> Iterator[tuple[object, ...]]:
    """What CUDA events say of each phase against a host that waits for the device."""
    for row in rows_of(cross_check(view.trials)):
        spread = descriptions.spread(row["lo"], row["hi"])
        yield settings[row["cell_events"]], row["phase"], f"{row['ratio']:.2f}", spread, row["n"]


def _reason(row: Mapping[Any, Any]) -> Markup:
    return Markup("{}<br>{}").format(_text(row["error_kind"]), _text(row["error_message"]))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(listed: int, there: int, what: str) -> str:
    """Say how much of something a list has."""
    if listed == there:
        return f"All {there:,} {what}"
    return f"The first {listed:,} of {there:,} {what}; trials.parquet has all"


def _order(view: RunView) -> tuple[list[str], list[list[object]]]:
    """Columns and rows of every trial in its order; roles and flags where the run recorded them."""
    columns = ["Block", "Place", "Setting", "Ran as", "Outcome", "Samples/s", "Flags"]
    keep = [at for at, name in enumerate(columns) if trust.has_flags(view) or name not in ("Ran as", "Flags")]
    rows = []
    for row in rows_of(view.trials[_ORDERED].sort_values(["block", "position"]).head(_MOST_LISTED)):
        rate = words.number(float(row["samples_per_s"])) if words.known(row["samples_per_s"]) else "–"
        flags = _text(row["flags"]).replace(",", ", ")
        setting, role = descriptions.setting(row), _text(row["role"])
        cells = (row["block"], row["position"], setting, role, row["outcome"], rate, flags)
        rows.append([cells[at] for at in keep])
    return [columns[at] for at in keep], rows


def _details(view: RunView) -> dict[str, dict[str, str]]:
    """What the manifest records of machine, storage, software and protocol."""
    run = view.manifest
    found = {"Machine": _named(run.machine.model_dump(exclude={"storage", "machine_id"}))}
    if run.machine.storage:
        found["Storage"] = _named(run.machine.storage.model_dump())
    found["Software"] = _named(run.software.model_dump(exclude_none=True) | run.runtime)
    found["Protocol"] = _protocol(run.protocol)
    return {title: values for title, values in found.items() if values}


def _protocol(protocol: Protocol) -> dict[str, str]:
    """The protocol in words where its names alone do not say what a number means."""
    fewest, most = protocol.blocks
    spoken = {
        "blocks": f"{fewest} to {most}: nothing stops earlier for being narrow enough, nothing is asked about in more",
        "ci_target_pct": f"±{protocol.ci_target_pct:g} % is narrow enough for a contrast",
        "control_every": f"the control cell runs again every {words.plural(protocol.control_every, 'trial')}",
    }
    return _named(protocol.model_dump() | spoken, {"ci_target_pct": "interval wanted", "control_every": "control cell"})


def _named(values: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> dict[str, str]:
    return {(labels or {}).get(name) or _label(name): _fact(name, value) for name, value in values.items()}


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
