"""What each stage of a run's best training settings does alone, on the run's page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from feedrate.analysis.ceilings import STAGES, ceiling_ids
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.summary import EMULATED
from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView
from feedrate.pages.tasks import task_words
from feedrate.pages.template import table
from feedrate.schema import words

_NONE = "–"
_COLUMNS = ("Task, best setting", "All together", "Loader alone", "Copy alone", "Step alone", "Held back by")


def listing(view: RunView) -> Markup:
    """Write a row a training task: its best setting, and each of its stages alone; nothing without any.

    Columns that would be empty are left out.
    """
    rows = []
    for best in rows_of(view.headlines):
        stages = list(_alone(view, best)) if best["mode"] == "train" else [_NONE]
        if set(stages) != {_NONE}:
            task = task_words(best)
            name = markup.two_lines(task[:1].upper() + task[1:], descriptions.knobs(best))
            rows.append([name, _rate_and_spread(best), *stages, str(best["bound"])])
    kept = [at for at in range(len(_COLUMNS)) if any(row[at] != _NONE for row in rows)]
    columns = [_COLUMNS[at] for at in kept]
    if not rows:
        return Markup()
    return table(
        "Stages alone and together", columns, [[row[at] for at in kept] for row in rows], columns[1:-1], stack=True
    )


def _alone(view: RunView, best: Mapping[Any, Any]) -> Iterator[str]:
    """Each stage's throughput with its interval; an emulated step's is declared."""
    ids = ceiling_ids(best)
    cells = view.cells
    for stage in STAGES:
        of_stage = rows_of(cells[cells["cell_id"].eq(ids.get(stage, "")) & cells["samples_per_s"].notna()])
        if of_stage:
            yield _rate_and_spread(of_stage[0])
        elif stage == "compute" and best["kind"] == EMULATED:
            rate = 1000 * int(best["batch_size"]) / float(best["step_ms"])
            yield markup.two_lines(words.number(rate), "declared")
        else:
            yield _NONE


def _rate_and_spread(cell: Mapping[Any, Any]) -> str:
    return markup.two_lines(words.number(cell["samples_per_s"]), words.interval(cell["lo"], cell["hi"], cell["n"]))
