"""The claims of the sources as a forest plot: what each effect is, in the direction that is claimed, with its interval.

A panel a machine, so that verdicts can be told by colour and shape; the same order of claims in all of them. Effects of
different quantities stand on one scale: right of 1 is what the claim says, left of it the contrary. Where a claim says
that there is *less* of something (waiting, memory), its ratio is turned round for that; where it says that there is no
difference, 1 is what it says. A tick is the worst of an effect's cases, a ring the source's figure. Facts have no
effect and are not drawn.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from feedrate.analysis.claim_values import observe
from feedrate.analysis.claims import VERDICTS, judge_claims
from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import Figure, Key, Panel, Sheet, chart, plain
from feedrate.charts.plot import BLOCKS, Looks, Plot, band, keys, log, names, rule
from feedrate.charts.theme import colour
from feedrate.plan import suite
from feedrate.plan.claim import Claims
from feedrate.schema import words
from feedrate.schema.metrics import METRICS, SAME

TITLE = "Effects of the sources’ claims"
QUESTION = "Which of the sources’ claims hold, and by how much?"
MISSING = "No claim whose effect can be measured was tested here."
LOOKS: Looks = {
    "confirmed": (colour("name-2"), "circle"),
    "depends": (colour("name-4"), "cross"),
    "refuted": (colour("name-1"), "diamond"),
    "no difference": (colour("name-0"), "square"),
    "inconclusive": (colour("name-6"), "triangle-up"),
}
ROW = 15
"""Height of a claim, in CSS pixels."""
_ROOM = 1.2
"""How far the axis goes beyond the outermost estimate; intervals that are longer are cut there."""
_COLUMNS = {name: name for name in ("device", "machine", "run", "claim", "verdict", "suite", "metric")}
_COLUMNS |= {"claimed": "says", "ratio": "ratio", "low": "low", "high": "high", "n": "n"}
_COLUMNS |= {"worst case": "worst_case", "its ratio": "worst"}


@chart(TITLE, QUESTION)
def claims(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Judge the claims of a run and draw those of the suites that its trials were made for."""
    if not len(trials):
        return sheet.figure((), MISSING)
    asked = suite.claims()
    findings = judge_claims([observe(trials, asked)], asked).claims
    suites = set(trials["suite"].dropna())
    return forest(findings if suite.CLAIMS in suites else findings[findings["suite"].isin(suites)], asked)


def forest(rows_of_claims: pd.DataFrame, asked: Claims, machines: Mapping[str, str] | None = None) -> Figure:
    """Draw the effects of claims, a panel a machine and device."""
    drawn = _effects(rows_of_claims, asked)
    if not drawn:
        return Figure(TITLE, QUESTION, missing=MISSING)
    # The largest effect first, by its mean over machines, so that a claim stands in the same place in every panel.
    logs: dict[str, list[float]] = {}
    for row in drawn:
        logs.setdefault(row["claim"], []).append(math.log(row["value"]))
    drawn.sort(key=lambda row: (-sum(logs[row["claim"]]) / len(logs[row["claim"]]), row["claim"]))
    panels: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in drawn:
        panels.setdefault((row["machine"], row["device"]), []).append(row)
    low, high = SAME
    seen = {row["verdict"] for row in drawn}
    marks = (("worst setting", "tick"), ("source’s figure", "ring"))
    return Figure(
        TITLE,
        QUESTION,
        tuple(_panel(machine, device, rows, machines or {}) for (machine, device), rows in panels.items()),
        (
            *keys(LOOKS, seen),
            *(Key(name, colour("muted"), mark) for name, mark in marks if any(row[mark] for row in drawn)),
        ),
        tuple({heading: row[key] for heading, key in _COLUMNS.items()} for rows in panels.values() for row in rows),
        (
            "Right of 1 agrees with the claim’s direction; a claim of no difference expects 1. Of a source’s "
            "figure a claim needs 80 %. If a claim says “less”, the picture inverts its ratio, the table does not.",
            f"Band: {low:g} to {high:g}; an interval inside it means no difference. Lines: 95 % intervals, each claim "
            "by itself. Verdicts are corrected for the number of claims. Lines at the edge go on beyond it.",
        ),
        row_key=("claim", "machine", "device"),
    )


def _effects(rows_of_claims: pd.DataFrame, asked: Claims) -> list[dict[str, Any]]:
    """Effects that are known, each turned into the direction that is claimed, with what it is the effect on."""
    drawn = []
    for row in rows_of(rows_of_claims):
        effect = asked[row["claim"]][1].on(row["device"]).effect if row["claim"] in asked else None
        if effect is None or not words.is_number(row["ratio"]) or not row["ratio"]:
            continue
        what = METRICS[effect.metric].noun + (f", per doubling of {effect.along}" if effect.along else "")
        what += ", as a share of the source’s figure" if effect.level else ""
        what += ", factor here ÷ factor there" if effect.against else ""
        ratio, low, high, worst = (plain(row[name]) for name in ("ratio", "lo", "hi", "worst"))
        figure = None if effect.level else effect.figure
        value, tick, ring, lo, hi = ratio, worst, figure, low, high
        if effect.says == "less":
            value, tick, ring, lo, hi = (each and 1 / each for each in (ratio, worst, figure, high, low))
        drawn.append(
            {name: str(row[name]) for name in ("claim", "suite", "device", "verdict")}
            | {"machine": str(row["machine_id"]), "runs": row["run_ids"], "run": ", ".join(row["run_ids"])}
            | {"metric": what, "says": effect.says, "n": int(row["n"]), "worst_case": row["worst_case"]}
            | {"ratio": ratio, "low": low, "high": high, "worst": worst, "figure": figure}
            | {"value": value, "lo": lo, "hi": hi, "tick": tick, "ring": ring}
        )
    return drawn


def _panel(machine: str, device: str, rows: Sequence[dict[str, Any]], machines: Mapping[str, str]) -> Panel:
    runs = list(dict.fromkeys(run for row in rows for run in row["runs"]))
    subtitle = f"{device}, {f'run {runs[0]}' if len(runs) == 1 else words.plural(len(runs), 'run')}"
    panel = _plot(rows).panel(machines.get(machine, machine), subtitle, _message(rows))
    panel.chart.title.limit = 310
    # For a page that shows some of the rows: how tall a row is, and whose they are.
    panel.chart.usermeta = {"row": ROW, "machine": machine, "device": device}
    return panel


def _plot(rows: Sequence[dict[str, Any]]) -> Plot:
    values = [value for row in rows for value in (row["value"], row["tick"], row["ring"]) if value]
    lo, hi = min(0.8, min(values) / _ROOM), max(1.25, max(values) * _ROOM)
    x = log("value", "times, in the claimed direction", (lo, hi), "~r")
    y = names("claim", (row["claim"] for row in rows), grid=False, labelLimit=170)
    cut = [
        {**row, "from": row["lo"] and max(lo, min(hi, row["lo"])), "to": row["hi"] and max(lo, min(hi, row["hi"]))}
        for row in rows
    ]
    form, ring, ends = ",.3~g", "ring" if any(row["ring"] for row in rows) else "", ("from", "to")
    numbers = {"low:Q": ("", form), "high:Q": ("", form), "worst:Q": ("worst case", form), **BLOCKS}
    tooltip = {"claim:N": "", "verdict:N": "", "metric:N": "of", "ratio:Q": ("B ÷ A", form), **numbers}
    behind = [band(x, "x", SAME, "line", 0.7), rule(x, "x", 1.0)]
    return Plot(
        cut, x, y, "verdict", LOOKS, ends=ends, tooltip=tooltip, tick="tick", ring=ring, size=46, row=ROW, behind=behind
    )


def _message(rows: Sequence[dict[str, Any]]) -> str:
    """Count the verdicts, and name the clearest of those that are refuted."""
    tally = Counter(row["verdict"] for row in rows)
    counts = words.listed(f"{tally[verdict]} {verdict}" for verdict in VERDICTS if tally[verdict])
    text = f"Of {words.plural(len(rows), 'effect')}: {counts}."
    if refuted := [row for row in rows if row["verdict"] == "refuted"]:
        most = max(refuted, key=lambda row: abs(math.log(row["value"] / (row["ring"] or 1))))
        ratio = words.estimate((most["ratio"], most["low"], most["high"]), "ratio", n=most["n"])
        says = f"; its source says {words.times(most['figure'])}" if most["figure"] else ""
        text += f" Clearest of the refuted: {most['claim']}, {most['metric']} {ratio}{says}."
    return text
