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
from feedrate.attach.predictions import ABOUT, MODELLED
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

ALONE = {"train": "The training loop", "compute": "The step alone, without its loader", "load": "The loader alone"}
"""What a cell of a script ran."""
_ELSEWHERE = ("time", "held back by", "next", "by the model", "alone")
"""What the answer says, or a table of its own."""
_LONGEST = 90
"""Characters of a line of code."""
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
    name, report = script_name(view), _report(view)
    if not name:
        return None
    cells = {str(row["mode"]): row for row in rows_of(view.judged)}
    said = report["said"] if report else []
    own = [(about.capitalize() or "Script", text) for about, text in said if about not in _ELSEWHERE]
    return {
        "name": name,
        "report": report,
        "said": dict(said),
        "waits": words.percent(float(cells["train"]["fetch_share"])),
        "alone": list(_alone(cells)),
        "bound": cells["train"]["bottleneck"],
        "facts": own if report else _facts(cells["train"]),
        "rows": list(_rows(report)) if report else [],
    }


def _report(view: RunView) -> dict[str, Any] | None:
    """What ``feedrate run`` said; None of runs that came from elsewhere."""
    path = report_of(view.run.folder)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


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
    report = _report(view) if script_name(view) else None
    if not report or not report["account"]:
        return None
    totals = report["account"]
    rows = [
        {"bar": "time", "order": at, "row": ROWS[name].words, "kind": _KINDS[ROWS[name].kind][0], "s": ns / 1e9}
        for at, name in enumerate(ROWS)
        if (ns := totals["rows"].get(name, 0)) > 0
    ]
    rows = [row | {"share": row["s"] * 1e9 / totals["wall_ns"]} for row in rows]
    kinds = {kind: tint for kind, tint in _KINDS.values() if any(row["kind"] == kind for row in rows)}
    sheet = Sheet("Where the time went", "What did the training process do, from its start to its end?")
    x = Side("s", "seconds", {"domain": [0, totals["wall_ns"] / 1e9]}, {"tickCount": 5, "labelOverlap": True})
    also: Fields = {"row:N": "", "share:Q": ("share", ".1%")}
    bar = Bars(rows, x, names("bar", ["time"], labels=False), "kind", kinds, also=also)
    largest = sorted(rows, key=lambda row: -row["s"])[:3]
    shares = ", ".join(f"{row['row']} {words.percent(row['share'])}" for row in largest)
    message = words.sentence(f"{shares} of {words.number(totals['wall_ns'] / 1e9)} s")
    columns = {"row": "row", "kind": "kind", "seconds": "s", "share": "share"}
    panel = bar.panel(script_name(view), "wall clock of the training process", message)
    sheet.add(panel, listed(rows, {}, columns))
    return sheet.figure([Key(kind, tint) for kind, tint in kinds.items()], "")


def _line(line: Mapping[str, Any]) -> Markup:
    """A line of code, its share of its row, and where it stands."""
    location = f"{words.percent(line['share'])} of it, {Path(line['file']).name}:{line['line']}, {line['name']}"
    code = line["code"] if len(line["code"]) <= _LONGEST else f"{line['code'][:_LONGEST]}…"
    return markup.two_lines(markup.code(code), location) if code else Markup("{}").format(location)


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
    rows = _settings(report) if script_name(view) and (report := _report(view)) else []
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
    now = next(row for row in rows if row["kind"] == "measured")
    others = [row for row in rows if row is not now]
    most = max(row["value"] for row in others)
    best = next(row for row in others if row["value"] >= ABOUT * most)
    measured = f"the {words.number(now['value'])} steps/s that were measured with {now['num_workers']}"
    if best["lo"] <= now["value"]:
        return f"By the model no other number of workers is clearly faster than {measured}."
    return (
        f"By the model the loop does {words.number(best['value'])} steps/s "
        f"({words.interval(best['lo'], best['hi'])}) with num_workers={best['num_workers']}, "
        f"{words.times(best['times'])} {measured}; more workers give no more."
    )


def _alone(cells: Mapping[str, Mapping[Any, Any]]) -> Iterator[tuple[object, ...]]:
    """What loop, step and loader do; nothing where the stages were not measured alone."""
    for mode, what in ALONE.items():
        if mode in cells and len(cells) > 1:
            cell = cells[mode]
            yield what, words.number(cell["samples_per_s"]), words.interval(cell["lo"], cell["hi"]), cell["n"]


FIGURES = {"account": account, "predictions": predicted}
"""Pictures of a report, by name."""
