"""The run of a script: whether it is the data, in which lines, what would help, and the loop moment by moment.

Most of it is the report of ``feedrate run``, which lies beside the run and is never published. A run that came from
elsewhere has none: then its records alone speak, of how long it waits and of what each stage does alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from feedrate.analysis.estimate import Estimate
from feedrate.analysis.estimates import rows_of
from feedrate.attach.account import ROWS
from feedrate.attach.predictions import MODELLED
from feedrate.attach.report import SMALLEST
from feedrate.charts.figure import Figure, Key, Sheet, listed
from feedrate.charts.plot import Bars, Fields, Plot, Side, amount, keys, names
from feedrate.charts.theme import colour
from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView
from feedrate.questions.runs.facts import script_name
from feedrate.schema import words
from feedrate.schema.axes import AXES
from feedrate.store.runs import report_of

_ALONE = {"train": "The training loop", "compute": "The step alone, without its loader", "load": "The loader alone"}
_ELSEWHERE = ("time", "held back by", "next", "by the model", "alone")
"""What the answer says, or a table of its own."""
_KINDS = {
    "wait": ("feeds the step", colour("phase-fetch")),
    "step": ("the step", colour("phase-forward")),
    "other": ("all else", colour("phase-other")),
    "once": ("once a training", colour("phase-emulated")),
}
"""Kind of a row to its words and its colour."""
_LOOKS = {"measured": (colour("accent"), "diamond"), "by the model": (colour("name-0"), "circle")}


def section(view: RunView) -> dict[str, Any] | None:
    """What the page of a script's run begins with; None of other runs."""
    if not script_name(view):
        return None
    cells, report = {str(row["mode"]): row for row in rows_of(view.judged)}, _report(view)
    said = report["said"] if report else []
    own = [(about.capitalize() or "Script", text) for about, text in said if about not in _ELSEWHERE]
    return {
        "name": script_name(view),
        "report": report,
        "said": dict(said),
        "waits": words.percent(float(cells["train"]["fetch_share"])),
        "alone": list(_alone(cells)) if len(cells) > 1 else [],
        "bound": cells["train"]["bottleneck"],
        "facts": own if report else _facts(cells["train"]),
        "rows": list(_rows(report)) if report else [],
    }


def _report(view: RunView) -> dict[str, Any] | None:
    """What ``feedrate run`` said of where time went; None of runs that came from elsewhere."""
    path = report_of(view.run.folder)
    report = json.loads(path.read_text(encoding="utf-8")) if script_name(view) and path.is_file() else {}
    return report if report.get("account") else None


def _facts(loop: Mapping[Any, Any]) -> list[tuple[str, str]]:
    """What the records alone say of a loop."""
    named = [axis.name for axis in AXES if axis.of_scripts and axis.name not in ("workload", "script")]
    loader = descriptions.setting({name: loop[name] for name in named})
    return [("Pace", Estimate.of_row(loop).with_n(" samples/s")), ("Loader", loader)]


def _rows(report: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """The account of the training process, largest row first: what it did, for how long, and its hottest line."""
    account = report["account"]
    for name in sorted(account["rows"], key=lambda name: -account["rows"][name]):
        share = account["rows"][name] / account["wall_ns"]
        if share >= SMALLEST:
            line = next(iter(report["lines"].get(name, ())), None)
            yield ROWS[name].words, words.percent(share), _line(line) if line else "–"


def account(view: RunView) -> Figure | None:
    """Draw the account as one bar; None of runs whose report is not here."""
    if (report := _report(view)) is None:
        return None
    spent, whole = report["account"]["rows"], report["account"]["wall_ns"]
    rows = [
        {"bar": "time", "order": at, "row": row.words, "kind": _KINDS[row.kind][0], "s": ns / 1e9, "share": ns / whole}
        for at, (name, row) in enumerate(ROWS.items())
        if (ns := spent.get(name, 0)) > 0
    ]
    kinds = {kind: tint for kind, tint in _KINDS.values() if any(row["kind"] == kind for row in rows)}
    sheet = Sheet("Where the time went", "What did the training process do, from its start to its end?")
    x = Side("s", "seconds", {"domain": [0, whole / 1e9]}, {"tickCount": 5, "labelOverlap": True})
    also: Fields = {"row:N": "", "share:Q": ("share", ".1%")}
    bar = Bars(rows, x, names("bar", ["time"], labels=False), "kind", kinds, also=also)
    largest = sorted(rows, key=lambda row: -row["s"])[:3]
    shares = ", ".join(f"{row['row']} {words.percent(row['share'])}" for row in largest)
    message = words.sentence(f"{shares} of {words.number(whole / 1e9)} s")
    panel = bar.panel(script_name(view), "wall clock of the training process", message)
    sheet.add(panel, listed(rows, {}, {"row": "row", "kind": "kind", "seconds": "s", "share": "share"}))
    return sheet.figure([Key(kind, tint) for kind, tint in kinds.items()], "")


def _line(line: Mapping[str, Any]) -> Markup:
    """A line of code, its share of its row, and where it stands."""
    location = f"{words.percent(line['share'])} of it, {Path(line['file']).name}:{line['line']}, {line['name']}"
    return markup.two_lines(markup.code(line["code"]), location) if line["code"] else Markup("{}").format(location)


def _settings(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Numbers of workers in their order, with the steps a second of each; none where no worker is waited for."""
    if not report["predictions"] or report["cause"]["row"] not in MODELLED:
        return []
    now = report["pacing"]["steps_per_s"]
    texts = [
        {"num_workers": prediction["num_workers"], "kind": "by the model", **prediction["steps_per_s"]}
        for prediction in report["predictions"]["others"]
    ]
    texts.append({"num_workers": report["predictions"]["num_workers"], "kind": "measured", **now})
    return [row | {"times": row["value"] / now["value"]} for row in sorted(texts, key=lambda row: row["num_workers"])]


def predicted(view: RunView) -> Figure | None:
    """Draw what other numbers of workers would give; None where nothing could be predicted."""
    rows = _settings(report) if (report := _report(view)) else []
    if not rows:
        return None
    sheet = Sheet("What other numbers of workers would give", "How many steps a second would the same loop do?")
    drawn = [{**row, "label": f"num_workers={row['num_workers']}"} for row in rows]
    x, y = amount("value", "steps per second"), names("label", (row["label"] for row in drawn))
    plot = Plot(drawn, x, y, "kind", _LOOKS, also={"times:Q": ("times now", ".2f")})
    columns = {"num_workers": "num_workers", "known": "kind", "steps per s": "value", "low": "lo", "high": "hi"}
    columns |= {"times now": "times"}
    panel = plot.panel(script_name(view), "the same loop with other numbers of workers", _message(rows))
    sheet.add(panel, listed(rows, {}, columns))
    return sheet.figure(keys(_LOOKS), "")


def _message(rows: Sequence[Mapping[str, Any]]) -> str:
    known = {"measured": " (measured)", "by the model": ""}
    paces = (f"{words.number(row['value'])} with {row['num_workers']}{known[row['kind']]}" for row in rows)
    return f"Steps a second by the model, with other numbers of workers: {', '.join(paces)}."


def _alone(cells: Mapping[str, Mapping[Any, Any]]) -> Iterator[tuple[object, ...]]:
    """What loop, step and loader do."""
    for mode, what in _ALONE.items():
        if cell := cells.get(mode):
            yield what, words.number(cell["samples_per_s"]), words.interval(cell["lo"], cell["hi"]), cell["n"]


FIGURES = {"account": account, "predictions": predicted}
"""Pictures of a report, by name."""
