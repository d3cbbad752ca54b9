"""What a script was found to wait for, as ``feedrate run`` said it: never published."""

from __future__ import annotations

import json
from typing import Any

from markupsafe import Markup

from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView
from feedrate.schema import words
from feedrate.store.runs import report_of


def section(view: RunView) -> dict[str, Any] | None:
    """The report of a run, fit for its page; None of runs without one."""
    path = report_of(view.run.folder)
    if not path.is_file():
        return None
    report = json.loads(path.read_text(encoding="utf-8"))
    waits = report["pacing"]["wait_share"]["value"] if report["pacing"] else 0.0
    predictions = report["predictions"] or {"others": [], "present": None}
    return {
        "said": [(about.capitalize() or "Script", text) for about, text in report["said"] if about not in _ELSEWHERE],
        "lines": [
            (
                markup.code(f"{line['file']}:{line['line']}"),
                markup.code(line["code"]) if line["code"] else Markup(""),
                words.percent(line["share"]),
                words.percent(line["share"] * waits),
            )
            for line in report["lines"]
        ],
        "predictions": [
            (
                str(each["num_workers"]),
                words.number(each["steps_per_s"]["value"]),
                descriptions.spread(each["steps_per_s"]["lo"], each["steps_per_s"]["hi"]),
            )
            for each in predictions["others"]
        ],
        "basis": _basis(predictions["present"], report["pacing"]) if predictions["others"] else "",
    }


_ELSEWHERE = ("line", "prediction")
"""What stands in tables of its own."""


def _basis(present: float, pacing: dict[str, Any]) -> str:
    measured = pacing["steps_per_s"]["value"]
    return (
        f"The model is fitted to this one run. It gives {words.number(present)} steps/s for the present setting, which "
        f"ran at {words.number(measured)}: the range holds that difference, and 10 % at least."
    )
