"""The pipeline's roofline: what a training cell achieves against what its loader, its copies and its step do alone.

In the first panels both axes are divided by what the step alone could do, so that cells of every task stand under one
roof: where the roof slants, the cell is fed too slowly; where it is flat, the step has all that it can take. The panels
after them show the ceilings themselves as the batch grows. It does not show that a cell could reach its roof: on a CPU
loader and model share the cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from feedrate.analysis.ceilings import roofline
from feedrate.charts import ceilings, marks
from feedrate.charts.figure import EMULATED, MOST_PANELS, TRAIN, Figure, Sheet, Slice, held, listed, slices

TITLE = "Pipeline roofline"
QUESTION = "What is each setting’s roof, and how far below it does it stay?"
READS = "trials"
KINDS = {TRAIN: "Real training", EMULATED: "Before an emulated step"}
_MISSING = "No training cell ran here whose loader and step were both measured alone, so that its roof is not known."


def draw(trials: pd.DataFrame) -> Figure:
    """Draw a roof for real training and one for emulated steps, then the ceilings of single tasks."""
    sheet, used = Sheet(TITLE, QUESTION), set[str]()
    found = roofline(trials) if len(trials) else trials
    parts = slices(found, (TRAIN, EMULATED)) if len(found) else []
    for kind, title in KINDS.items():
        own = [part for part in parts if part.kind == kind]
        if rows := [row for part in own for row in ceilings.drawn(part)]:
            sheet.add(ceilings.panel(title, own, rows), listed(rows, {"panel": title}, ceilings.COLUMNS), {})
            used |= {str(row["bound"]) for row in rows}
    for part in parts:
        frame, kept = held(part.frame, ("batch_size", "num_workers"))
        rows = ceilings.draw_ceilings(frame, part.kind)
        if len({row["batch"] for row in rows}) > 1 and len(sheet.panels) < MOST_PANELS:
            given = {"panel": f"{part.title}, {part.subtitle}"}
            sheet.add(ceilings.ceilings_panel(part, rows), listed(rows, given, ceilings.CEILING_COLUMNS), kept)
            used |= {str(row["bound"]) for row in rows}
    for note in _notes(trials, parts) if sheet.panels else ():
        sheet.note(note)
    return sheet.figure(marks.keys(used), _MISSING)


def _notes(trials: pd.DataFrame, parts: Sequence[Slice]) -> Iterator[str]:
    yield (
        "The roof: achieved ÷ step alone can be no more than 1 (flat), and no more than feed ÷ step alone (slanted); "
        "the feed is the slower of loader and copies, each alone. In the shaded middle both hold the cell back. "
        "Intervals are Student’s t over blocks on logs, paired by block where both sides were measured; an emulated "
        "step’s rate is declared."
    )
    if trials["device"].eq("cpu").fillna(False).any() and any(part.kind == TRAIN for part in parts):
        yield (
            "On a CPU, workers and model share the cores: no setting can have both ceilings at once, and one that "
            "stays below its roof wastes nothing by that alone."
        )
