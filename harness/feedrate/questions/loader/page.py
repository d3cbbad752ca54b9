"""Why training is not faster: what a suite's cells reached, what each stage does alone, and what is hidden.

A matrix has hundreds of training cells. Of each task the page shows the fastest, the one with PyTorch's defaults at the
same format and batch, and the fastest of every other bottleneck; all of them come as a file. Above the table stands a
sentence a task, made from the numbers of its fastest cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pandas as pd
from markupsafe import Markup

from feedrate.analysis.blocks import KEYS
from feedrate.analysis.ceilings import BALANCED_WITHIN, LAUNCH_BOUND, STAGES
from feedrate.analysis.contrasts import grouping_keys
from feedrate.analysis.estimate import Estimate
from feedrate.analysis.estimates import rows_of
from feedrate.charts.embed import csv_field
from feedrate.charts.figure import Row
from feedrate.pages import descriptions, markup
from feedrate.pages.headlines import RULE
from feedrate.pages.runs import RunView
from feedrate.pages.tasks import task_key, task_words
from feedrate.pages.template import render
from feedrate.schema import words
from feedrate.schema.axes import AXES, BY_NAME, CONDITIONS, EMULATED_STEPS, PHOTOGRAPHS, SETTINGS

CELLS = 6
"""Cells of a task that are shown."""
TASKS = 6
"""Tasks that are shown; more of them are in the file alone."""
_STAGES = {"load": "loader", "copy": "copy", "compute": "step"}
_DOING = {"read": "reading", "decode": "decoding", "transform": "transforming", "collate": "collating"}
_FILE = (
    *("samples_per_s", "lo", "hi", "n"),
    *(f"{stage}_ceiling" for stage in STAGES),
    *("limit", "efficiency", "efficiency_lo", "efficiency_hi", "au", "bottleneck"),
    *("bound", "dominant", "dominant_share", "fetch_hidden", "copy_hidden"),
)
_MEANINGS = {
    "loader-bound": ("The loader holds it back", ""),
    "copy-bound": ("Copying to the device holds it back", "a faster loader or model would gain little"),
    "compute-bound": ("The model holds it back", "a faster loader would gain little"),
    "emulated-step-bound": ("The emulated step holds it back", "a faster loader would gain little"),
    LAUNCH_BOUND: ("The host that launches the step’s kernels holds it back", "a faster device would gain little"),
    "balanced": (f"Two stages are about equally slow (within {BALANCED_WITHIN:g}×)", "to speed up one gains little"),
}
"""What a bottleneck means, and what follows where stages work at the same time."""
_IN_TURNS = "without workers loading and step take turns, so a faster one of either gains"
_SHARED = "workers and model share the cores; without loading it would be up to {} as fast"


Task = tuple[pd.DataFrame, Sequence[tuple[str, Row]]]
"""Cells of the same conditions, and those that are shown, each with why; the fastest is the first."""


def section(view: RunView, suite: str, path: str) -> tuple[str, dict[str, str]]:
    """Explain what holds the training cells of a suite back, on the page at ``path``; nothing where none ended well.

    Returns:
        The section, and the file with all such cells: path to content.
    """
    cells = training_cells(view, suite)
    if not len(cells):
        return "", {}
    shown = tasks(cells)[:TASKS]
    best = {task_key(row): row for row in rows_of(view.headlines_of(suite))}
    rows = [row for task in shown for row in _rows(task, alone=len(shown) == 1)]
    columns = [name for name in rows[0] if any(row[name] for row in rows)]
    axes = [axis.name for axis in AXES if cells[axis.name].notna().any()]
    file = f"data/{markup.slug(suite)}-why-{view.mark}.csv"
    html = render(
        "loader/why.md",
        mark=view.mark,
        path=path,
        rule=RULE,
        file=file,
        count=len(cells),
        tasks=[_told(task, best.get(task_key(task[1][0][1]))) for task in shown],
        columns=columns,
        rows=[[row[name] or "–" for name in columns] for row in rows],
        shares_cores=view.manifest.device == "cpu" and cells["num_workers"].gt(0).any(),
    )
    listed = cells[[*axes, *_FILE]].astype(object).map(csv_field)
    return html, {file: listed.to_csv(index=False, lineterminator="\n")}


def training_cells(view: RunView, suite: str) -> pd.DataFrame:
    """Training cells of a suite that ended well, with what is known of their stages and their overlap."""
    training = view.judged
    training = training[
        training["suite"].eq(suite).fillna(False) & training["mode"].eq("train") & training["samples_per_s"].notna()
    ]
    stages = view.stages.drop(columns="n")
    stages["dominant_share"] = [
        row[f"{row['dominant']}_share"] if isinstance(row["dominant"], str) else None for row in rows_of(stages)
    ]
    return training.merge(stages, on=KEYS, how="left").merge(view.overlap, on=KEYS, how="left").reset_index(drop=True)


def tasks(cells: pd.DataFrame) -> list[Task]:
    """Split cells by conditions, real training first, photographs first, and select those to show."""
    groups = [group for _, group in cells.groupby(grouping_keys(cells, CONDITIONS), sort=False, dropna=False)]

    def rank(group: pd.DataFrame) -> tuple[Any, ...]:
        first = group.iloc[0]
        size = first["patch_size"] if words.is_number(first["patch_size"]) else 0
        return first["step"] in EMULATED_STEPS, first["workload"] not in PHOTOGRAPHS, first["workload"], size

    return [(group, _selected(group)) for group in sorted(groups, key=rank)]


def _selected(cells: pd.DataFrame) -> Sequence[tuple[str, Row]]:
    """The cells that tell most of a task, each with the reasons, the fastest first."""
    ranked = rows_of(cells.sort_values("samples_per_s", ascending=False, kind="stable"))
    given = {name: ranked[0][name] for name in ("storage_format", "batch_size")}
    default = {name: given.get(name, BY_NAME[name].default) for name in SETTINGS}
    usual = (cell for cell in ranked if all(pd.isna(cell[name]) or cell[name] == default[name] for name in SETTINGS))
    reasons: dict[str, list[str]] = {ranked[0]["cell_id"]: ["fastest"]}
    for cell in islice(usual, 1):
        reasons.setdefault(cell["cell_id"], []).append("PyTorch’s defaults")
    by_id = {cell["cell_id"]: cell for cell in ranked}
    for cell in ranked:
        if cell["bottleneck"] not in {by_id[cell_id]["bottleneck"] for cell_id in reasons}:
            reasons[cell["cell_id"]] = [f"fastest that is {cell['bottleneck']}"]
    return [(", ".join(cell_reasons), by_id[cell_id]) for cell_id, cell_reasons in reasons.items()][:CELLS]


def _rows(task: Task, *, alone: bool) -> Iterator[dict[str, str]]:
    """A row a cell, heading to its text; where a table has one task alone, its rows do not repeat it."""
    for reason, cell in task[1]:
        ceilings = {name: cell[f"{stage}_ceiling"] for stage, name in _STAGES.items()}
        hidden = {what: cell[f"{what}_hidden"] for what in ("fetch", "copy")}
        loading = []
        if isinstance(cell["dominant"], str):
            loading.append(f"{cell['dominant']} {words.percent(float(cell['dominant_share']))}")
            loading += [cell["bound"]] if isinstance(cell["bound"], str) else []
        yield {
            "Setting": markup.two_lines(descriptions.knobs(cell), reason if alone else f"{task_words(cell)}: {reason}"),
            "Samples/s": words.number(float(cell["samples_per_s"])),
            "Each stage alone": _lines(
                f"{name} {words.number(float(rate))}" for name, rate in ceilings.items() if words.is_number(rate)
            ),
            "Efficiency": _efficiency(cell),
            "AU": words.percent(float(cell["au"])) if words.is_number(cell["au"]) else "",
            "Held back by": str(cell["bottleneck"]),
            "In the loader": _lines(loading),
            "Hidden": _lines(
                f"{what} {words.percent(float(share))}" for what, share in hidden.items() if words.is_number(share)
            ),
        }


def _lines(lines: Iterable[str]) -> Markup:
    """Lines of a cell, none of which breaks."""
    return Markup("<br>").join(line.replace(" ", "\u00a0") for line in lines)


def _efficiency(cell: Row) -> str:
    if not words.is_number(cell["efficiency"]):
        return ""
    spread = words.interval(cell["efficiency_lo"], cell["efficiency_hi"], write=words.percent)
    return markup.two_lines(words.percent(float(cell["efficiency"])), spread)


def _told(task: Task, best: Row | None) -> dict[str, Any]:
    """What the template says of a task: the numbers of its fastest cell, of its headline where that is the same."""
    cells, ((_, cell), *_) = task
    rate = f"{words.number(float(cell['samples_per_s']))} samples a second"
    if best and best["cell_id"] == cell["cell_id"]:
        rate = Estimate.of_row(best).text(" samples a second")
    told: dict[str, Any] = {"what": words.sentence(task_words(cell)).rstrip("."), "setting": descriptions.knobs(cell)}
    told |= {"rate": rate, "meaning": meaning(cell) if cell["bottleneck"] in _MEANINGS else ""}
    if words.is_number(cell["efficiency"]) and isinstance(cell["limit"], str):
        turns = cell["limit"] != "load" and words.is_number(cell["device_ceiling"])
        told["alone"] = "copies and step in turns" if turns else f"{_STAGES[cell['limit']]} alone"
        told["reached"] = words.percent(float(cell["efficiency"]))
    if cell["bottleneck"] == "loader-bound" and isinstance(cell["dominant"], str):
        told["largest"] = f"{_DOING[cell['dominant']]} ({words.percent(float(cell['dominant_share']))})"
    counts = cells["bottleneck"].value_counts().items()
    told["counts"] = [f"{count} {'is' if count == 1 else 'are'} {name}" for name, count in counts]
    return told | {"settings": len(cells)}


def meaning(cell: Row) -> str:
    """Say what a bottleneck means; where stages were not measured alone, no more than what phases tell."""
    means, follows = _MEANINGS[cell["bottleneck"]]
    if not isinstance(cell["limit"], str):
        balanced = cell["bottleneck"] == "balanced"
        return "No phase takes half of the time" if balanced else f"{means}, as far as its phases tell"
    shares = cell["device"] == "cpu" and cell["step"] not in EMULATED_STEPS and cell["limit"] == "compute"
    if cell["num_workers"] and shares and words.is_number(cell["efficiency"]) and cell["efficiency"] < 1:
        follows = _SHARED.format(words.times(1 / cell["efficiency"]))
    return ": ".join(filter(None, (means, follows if cell["num_workers"] else _IN_TURNS)))
