"""What each stage of a machine's training tasks does alone, beside what they do together: where the roof is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from harness.analysis.ceilings import STAGES, ceiling_ids
from harness.analysis.rows import rows_of
from harness.charts import _words as words
from harness.charts._slices import EMULATED
from harness.pages import described, markup
from harness.pages.headlines import task_words
from harness.pages.machine_tasks import Best, Tasks

_COLUMNS = ("Task, best setting", "All together", "Loader alone", "Copy alone", "Step alone", "Held back by")
_NONE = "–"


def table(found: Tasks, *, by_device: bool) -> str:
    """Write a row a training task and device; empty where no stage was measured alone.

    Args:
        found: the best setting of each of the machine's tasks.
        by_device: whether the device must be named.
    """
    rows = [
        (_named(best, by_device), _rate(best.row), *stages, escape(str(best.row["bound"])))
        for best in found.values()
        if best.row["mode"] == "train" and set(stages := tuple(_alone(best))) != {_NONE}
    ]
    if not rows:
        return ""
    kept = [place for place in range(len(_COLUMNS)) if any(row[place] != _NONE for row in rows)]
    columns = [_COLUMNS[place] for place in kept]
    lines = [[row[place] for place in kept] for row in rows]
    return markup.paragraph(
        "Samples a second of the best setting of each training task, and of each of its stages when nothing else "
        "runs. The slowest stage is the roof: a faster one beside it gains nothing. Where workers and model share "
        "the cores of a CPU, no two stages reach their own at once."
    ) + markup.table("Stages alone and together", columns, lines, columns[1:-1], stack=True)


def _named(best: Best, by_device: bool) -> str:
    device = best.shown.manifest.device
    task = task_words(best.row) + (f", {described.on_device(device)}" if by_device else "")
    setting = f'<span class="fr-kind">{escape(described.knobs(best.row))}</span>'
    return f"{escape(task[:1].upper() + task[1:])}<br>{setting}"


def _alone(best: Best) -> Iterator[str]:
    """Each stage's own throughput with its interval, measured in the same run; an emulated step's is declared."""
    ids = ceiling_ids(best.row)
    cells = best.shown.cells
    for stage in STAGES:
        own = rows_of(cells[cells["cell_id"].eq(ids.get(stage, "")) & cells["samples_per_s"].notna()])
        if own:
            yield _rate(own[0])
        elif stage == "compute" and best.row["kind"] == EMULATED:
            rate = 1000 * int(best.row["batch_size"]) / float(best.row["step_ms"])
            yield f'{words.number(rate)}<br><span class="fr-kind">declared</span>'
        else:
            yield _NONE


def _rate(cell: Mapping[Any, Any]) -> str:
    spread = described.spread(cell["lo"], cell["hi"])
    return f'{words.number(float(cell["samples_per_s"]))}<br><span class="fr-kind">{spread}, n = {cell["n"]}</span>'
