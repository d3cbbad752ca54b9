"""One page a run: what it says of itself, how far to trust it, what failed and why, the raw files.

A run that was withdrawn keeps its page and its files, so that links and citations lead to the reason; no chart, table
or verdict of this site draws on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from feedrate.analysis import noise
from feedrate.analysis.blocks import successful
from feedrate.analysis.diagnosis import diagnose
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.steps import cross_check, hidden_share
from feedrate.charts.figure import Figure
from feedrate.pages import descriptions, markup
from feedrate.pages.headlines import RULE, headline_table
from feedrate.pages.markup import Page, Placed
from feedrate.pages.runs import RunView, draw, place
from feedrate.pages.template import render
from feedrate.plan import suite
from feedrate.questions.runs import facts, script
from feedrate.questions.runs import search_charts as search
from feedrate.schema import words
from feedrate.schema.window import STEADY
from feedrate.store.manifest import Dataset, Protocol, Stopped

_MOST_LISTED = 2_000
"""Failures of a list: with more a page would weigh megabytes."""
_MOST_OPEN = 12
"""Failures that are shown without being asked for."""
_PICTURES = {"drift": "trials.parquet", "telemetry": "telemetry.parquet"}
"""Charts of a run as a whole, and the file that each needs."""
_LABELS = {"ci_target_pct": "interval wanted", "control_every": "control setting", "blocks": "repetitions"}
"""What the manifest's names are called, where they do not say it themselves."""


def page(view: RunView) -> Page:
    """Write the page of a run; it copies the run's files beside it."""
    run, files = view.manifest, facts.files(view)
    pictures, of_script = list(_pictures(view)), list(_of_script(view))
    predicted = _placed(script.predicted(view), "predictions", view)
    account = _placed(script.account(view), "account", view)
    failed = view.trials[view.trials["outcome"].ne("ok")]
    narrow, wide, without = _split(run.contrasts)
    body = render(
        "runs/page.md",
        page=view.page,
        run=run,
        grade=view.grade,
        target=f"{run.protocol.ci_target_pct:g}",
        summary=_summary(view),
        script=script.section(view),
        search=search.section(view),
        searches=search.searches(view),
        of_script=of_script,
        predicted=predicted,
        account=account,
        stretches=script.stretches(view) if facts.script_name(view) else (),
        headlines=headline_table(view.headlines),
        rule=RULE,
        notes=[*map(descriptions.note, run.substitutions), *_cautions(view)],
        pictures=pictures,
        disturbed=list(_disturbed(view)),
        narrow=narrow,
        wide=wide,
        failed_contrasts=without,
        blocks_of=_blocks,
        **_clocks(view),
        failures=[_failure(row) for row in rows_of(failed.sort_values(["block", "position"]).head(_MOST_LISTED))],
        failed=len(failed),
        most_open=_MOST_OPEN,
        details=_details(view),
        datasets=[_packed(data) for data in run.datasets],
        heading_words=f"{', '.join(facts.suites(view))} on {view.name}",
        counted=[
            (f"{entry.count:,}", became, entry.reason)
            for became, parts in (("merged", run.merged), ("left out", () if run.search else run.excluded))
            for entry in parts
        ],
        downloads=facts.downloads(view),
        citation=facts.run_forms(view) if f"runs/{view.slug}/trials.parquet" in files else "",
    )
    figures = {
        placed.name: placed for placed in (account, predicted, *(p for _, p in (*of_script, *pictures))) if placed
    }
    return Page(view.page, f"Run {run.run_id}", body, figures, files, listed=False, hide=("navigation",))


def _clocks(view: RunView) -> dict[str, list[Any]]:
    """Cells in which a host that waits after every phase is held against the device's clock, and what was hidden."""
    if view.manifest.device != "cuda":
        return {"clocks": [], "hidden": []}
    settings = {row["cell_id"]: descriptions.setting(row) for row in rows_of(view.cells)}
    clocks = [
        (
            settings[row["cell_events"]],
            row["phase"],
            f"{row['ratio']:.2f}",
            words.interval(row["lo"], row["hi"]),
            row["n"],
        )
        for row in rows_of(cross_check(view.trials))
    ]
    hidden = [
        f"{settings[row['cell_events']]}: {words.percent(row['hidden'])}"
        for row in rows_of(hidden_share(view.trials))
        if words.is_number(row["hidden"])
    ]
    return {"clocks": clocks, "hidden": hidden}


def _failure(row: Mapping[Any, Any]) -> tuple[object, ...]:
    what = Markup("{}<br>{}").format(_text(row["error_kind"]), _text(row["error_message"]))
    return row["block"], row["position"], descriptions.setting(row), row["outcome"], what


def _packed(data: Dataset) -> tuple[object, ...]:
    return (
        Markup("<br>").join((data.name, *data.notes)),
        data.storage_format,
        f"{data.count:,}",
        descriptions.size(data.bytes),
        f"{data.pack_s:.1f} s",
        markup.code(data.data_hash),
    )


def withdrawn_page(view: RunView) -> Page:
    """Write the page of a run that was withdrawn, as its ``beside.withdrawn`` says; it copies the run's files."""
    run = view.manifest
    machine = {"Machine": view.name, "Machine id": markup.code(view.machine_id)}
    body = render(
        "runs/withdrawn.md",
        run=run,
        withdrawn=view.beside.withdrawn,
        summary=machine | facts.short(view) | facts.beside(view),
        downloads=facts.downloads(view),
    )
    title = f"Run {run.run_id}, withdrawn"
    return Page(view.page, title, body, files=facts.files(view), listed=False, hide=("navigation",))


def _pictures(view: RunView) -> Iterator[tuple[Figure, Placed]]:
    """Every chart of the whole run that it has anything for."""
    for chart, file in _PICTURES.items():
        if (view.run.folder / file).is_file() and (placed := _placed(figure := draw(chart, view), chart, view)):
            yield figure, placed


def _of_script(view: RunView) -> Iterator[tuple[Figure, Placed]]:
    """The charts of a script's loop, or of a search."""
    for chart in suite.load(next(iter(view.manifest.suites))).charts if view.manifest.script else ():
        if placed := _placed(figure := draw(chart, view), chart, view):
            yield figure, placed


def _placed(figure: Figure | None, chart: str, view: RunView) -> Placed | None:
    return place(figure, f"{chart}-{view.slug}", view.page, view.origin) if figure and figure.panels else None


def _summary(view: RunView) -> dict[str, str]:
    run, short = view.manifest, facts.short(view)
    # Not every cell is in every block: what is answered is left out of those that follow.
    usual = view.grade.blocks
    most = f"; half of the settings in at least {usual:,}" if 0 < usual < run.blocks else ""
    cells = f"{words.plural(run.cells, 'setting')}, from {words.plural(run.combinations, 'combination')}"
    machine = Markup('<a href="#machine">{}</a>').format(view.name)
    grade = Markup('<a href="#how-far-to-trust-it"><strong>{}</strong>, and why</a>').format(view.grade.letter)
    summary = {"Grade": grade, **facts.beside(view), "Machine": machine}
    if run.script:
        return summary | short
    parent = f"{words.per_cent(run.parent_cpu_pct, 1)} of one core"
    measured = {"Measured": f"{cells}; {words.plural(run.blocks, 'repetition')}{most}", **_added(view)}
    own = {**measured, "Profile": run.profile, "Parent’s CPU": parent}
    return summary | {"Machine id": markup.code(run.machine.machine_id)} | short | own


def _added(view: RunView) -> dict[str, str]:
    """What the harness ran beside the cells that were asked for."""
    run, remarks = view.manifest, dict[str, str]()
    if run.ceilings:
        text = f"{words.plural(run.ceilings, 'setting')}: stages of training settings, each alone"
        remarks["Limits added"] = markup.link(view.page, "methodology.md#ceilings", text)
    if run.control:
        control = view.trials[view.trials["cell_id"].eq(run.control).fillna(False)]
        name = descriptions.setting(control.iloc[0].to_dict()) if len(control) else run.control
        remarks["Control setting"] = f"{name}: {words.plural(len(control), 'measurement')}"
    return remarks


def _cautions(view: RunView) -> Iterator[str]:
    trials = view.trials
    if view.manifest.search:
        yield "The search repeats batches and changes their order: the model it trained is not to be kept."
        return
    if not successful(trials)["cell_id"].duplicated().any():
        yield "One repetition only: no number of this run has an interval."
    if reason := diagnose(trials).reason:
        yield f"Intervals are too narrow, and claims get no verdicts: {reason}."
    # The second half of a cold window is the faster one, as more has been read ahead: as the flag's rule has it.
    judged = successful(trials)
    judged = judged[judged["steady"].notna() & judged["page_cache"].ne("cold").fillna(True)]
    drifting = int((~judged["steady"].astype(bool)).sum())
    if drifting:
        halves = f"the halves of the window differ by more than {100 * (1 - STEADY):.0f}\u00a0%"
        yield f"{drifting:,} of {words.plural(len(judged), 'measurement')} had not settled: {halves}."
    left = int(trials["left_processes"].fillna(0).sum())
    if left:
        outlived = (
            f"{left:,} processes outlived their measurements" if left > 1 else "1 process outlived its measurement"
        )
        yield f"{outlived} and had to be killed."


def _disturbed(view: RunView) -> Iterator[tuple[str, ...]]:
    """Which flags how many trials carry."""
    if not len(ended := successful(view.trials)):
        return
    for row in rows_of(noise.flagged(ended)):
        if row["watched"] or row["trials"]:
            link = markup.link(view.page, f"methodology.md#flag-{row['flag']}", row["flag"])
            worst = f"{words.number(row['worst'])} {row['unit']}" if words.is_number(row["worst"]) else "–"
            yield link, f"{row['trials']:,}", words.percent(row["share"]), worst


def _split(contrasts: Sequence[Stopped]) -> tuple[list[Stopped], list[Stopped], list[Stopped]]:
    """Narrow enough, still wide, failed."""
    narrow = [one for one in contrasts if one.reason == "target"]
    failed = [one for one in contrasts if one.reason == "failed"]
    return narrow, [one for one in contrasts if one.reason not in ("target", "failed")], failed


def _blocks(contrasts: Sequence[Stopped]) -> str:
    counts = [one.blocks for one in contrasts]
    return (
        words.plural(counts[0], "repetition")
        if len(set(counts)) == 1
        else f"{min(counts)} to {max(counts)} repetitions"
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _details(view: RunView) -> dict[str, dict[str, str]]:
    """What the manifest records of machine, storage, software and protocol."""
    run = view.manifest
    details = {"Machine": _named(run.machine.model_dump(exclude={"storage", "machine_id"}))}
    if run.machine.storage:
        details["Storage"] = _named(run.machine.storage.model_dump())
    details["Software"] = _named(run.software.model_dump(exclude_none=True) | run.runtime)
    details["Protocol"] = {} if run.script else _protocol(run.protocol)
    return {title: values for title, values in details.items() if values}


def _protocol(protocol: Protocol) -> dict[str, str]:
    """The protocol in words where its names alone do not say what a number means."""
    fewest, most = protocol.blocks
    spoken = {
        "blocks": f"{fewest} to {most}: a comparison stops between them once it is narrow enough",
        "ci_target_pct": f"±{protocol.ci_target_pct:g} % is narrow enough for a comparison",
        "control_every": f"the control setting runs again every {words.plural(protocol.control_every, 'measurement')}",
    }
    return _named(protocol.model_dump() | spoken)


def _named(values: Mapping[str, Any]) -> dict[str, str]:
    return {_label(name): _fact(name, value) for name, value in values.items()}


def _label(name: str) -> str:
    spoken = _LABELS.get(name, name).removesuffix("_bytes").removesuffix("_s").replace("_", " ")
    return re.sub(r"\b(cpu|gpu)\b", lambda match: match[1].upper(), spoken)


def _fact(name: str, value: Any) -> str:
    if value is None:
        return "none" if name.startswith(("gpu", "cpu_quota", "memory_limit")) else "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_bytes"):
        return descriptions.size(value)
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return f"{value:g} s" if name.endswith("_s") else str(value)
