"""Why training is not faster: of a suite's telling cells what was reached, what each stage does alone, what is hidden.

Above the table stands a sentence a task, made from the numbers of its fastest cell. The cells that are not shown come
as a file.

Which training cells of a suite tell most about what holds each of its tasks back.

A matrix has hundreds of them. Of each task these are the fastest, the one with PyTorch's defaults at the same format
and batch, the least efficient, and the fastest of every other bottleneck.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import pandas as pd

from feedrate.analysis.blocks import KEYS
from feedrate.analysis.ceilings import BALANCED_WITHIN, STAGES
from feedrate.analysis.contrasts import grouping_keys
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.prediction import held_out
from feedrate.analysis.summary import CONDITIONS, KNOBS
from feedrate.charts.embed import csv_field
from feedrate.charts.figure import EMULATED, PHOTOGRAPHS
from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView
from feedrate.schema import words
from feedrate.schema.axes import AXES, BY_NAME

CELLS = 6
"""Cells of a task that are shown."""


def training_cells(shown: RunView, suite: str) -> pd.DataFrame:
    """Training cells of a suite that ended well, with what is known of their stages and their overlap."""
    own = shown.judged
    own = own[own["suite"].eq(suite).fillna(False) & own["mode"].eq("train") & own["samples_per_s"].notna()]
    stages = shown.stages.drop(columns="n")
    stages["dominant_share"] = [
        row[f"{row['dominant']}_share"] if isinstance(row["dominant"], str) else None for row in rows_of(stages)
    ]
    return own.merge(stages, on=KEYS, how="left").merge(shown.overlap, on=KEYS, how="left").reset_index(drop=True)


@dataclass(frozen=True, slots=True)
class Task:
    """Cells of the same conditions."""

    cells: pd.DataFrame
    told: list[tuple[str, dict[Any, Any]]]
    """Why a cell is shown, and the cell."""

    @property
    def fastest(self) -> dict[Any, Any]:
        """The one of which a task's sentence speaks."""
        return self.told[0][1]


def by_task(cells: pd.DataFrame) -> list[pd.DataFrame]:
    """Split by conditions: real training first, photographs before synthetic samples."""
    groups = [group for _, group in cells.groupby(grouping_keys(cells, CONDITIONS), sort=False, dropna=False)]

    def rank(group: pd.DataFrame) -> tuple[Any, ...]:
        first = group.iloc[0]
        return first["step"] == EMULATED, first["workload"] not in PHOTOGRAPHS, first["workload"], first["patch_size"]

    return sorted(groups, key=rank)


def telling(cells: pd.DataFrame) -> Task:
    """Choose the cells that tell most, the fastest first."""
    ranked: list[dict[Any, Any]] = rows_of(cells.sort_values("samples_per_s", ascending=False, kind="stable"))
    fastest = ranked[0]
    wanted = [("fastest", fastest), *((("PyTorch’s defaults", cell),) if (cell := _default(ranked, fastest)) else ())]
    known = [cell for cell in ranked if words.known(cell["efficiency"])]
    if known:
        wanted.append(("least efficient", min(known, key=lambda cell: float(cell["efficiency"]))))
    for cell in ranked:
        if cell["bottleneck"] not in {other["bottleneck"] for _, other in wanted}:
            wanted.append((f"fastest that is {cell['bottleneck']}", cell))
    merged: dict[str, tuple[list[str], dict[Any, Any]]] = {}
    for reason, cell in wanted:
        merged.setdefault(cell["cell_id"], ([], cell))[0].append(reason)
    return Task(cells, [(", ".join(reasons), cell) for reasons, cell in merged.values()][:CELLS])


def _default(cells: list[dict[Any, Any]], fastest: Mapping[Any, Any]) -> dict[Any, Any] | None:
    """The cell of the fastest one's format and batch whose every other knob is at its default."""
    given = {name: fastest[name] for name in ("storage_format", "batch_size")}
    wanted = {name: given.get(name, BY_NAME[name].default) for name in KNOBS}
    return next(
        (cell for cell in cells if all(pd.isna(cell[name]) or cell[name] == wanted[name] for name in KNOBS)), None
    )


TASKS = 6
"""Tasks that are shown; more of them are in the file alone."""
PREDICTED = 150
"""With more cells than this only the shown ones are predicted: the model runs batch by batch."""
STAGE_WORDS = {"load": "loader", "copy": "copy", "compute": "step"}
STAGE_DOING = {"read": "reading", "decode": "decoding", "transform": "transforming", "collate": "collating"}
_SAID = ("workload", "mode", "step", "step_ms", "patch_size", "scale", "n_samples", "page_cache", "access")
"""Conditions of a task that its name has words for, or that no two tasks of a run differ in."""
_FILE = (
    "samples_per_s",
    "lo",
    "hi",
    "n",
    *(f"{stage}_ceiling" for stage in STAGES),
    "limit",
    "efficiency",
    "efficiency_lo",
    "efficiency_hi",
    "au",
    "bottleneck",
    "bound",
    "dominant",
    "dominant_share",
    "fetch_hidden",
    "copy_hidden",
)
_MEANS = {
    "loader-bound": ("The loader holds it back", ""),
    "copy-bound": ("Copying to the device holds it back", "a faster loader or model would gain little"),
    "compute-bound": ("The model holds it back", "a faster loader would gain little"),
    "emulated-step-bound": ("The emulated step holds it back", "a faster loader would gain little"),
    "balanced": (
        f"Two stages lie within {BALANCED_WITHIN:g} times of one another",
        "a faster one alone gains little",
    ),
}
"""What a bottleneck means, and what follows where stages work at the same time."""
_IN_TURNS = "without workers loading and step take turns, so that either being faster gains"


@dataclass(frozen=True, slots=True)
class Why:
    """A section of a suite's page."""

    html: str
    files: Mapping[str, str] = field(default_factory=dict)
    """Path to content of the whole list."""


def section(shown: RunView, suite: str, path: str) -> Why:
    """Explain what holds the training cells of a suite back; nothing where none ended well.

    Args:
        shown: a run.
        suite: whose cells.
        path: of the page.
    """
    cells = training_cells(shown, suite)
    if not len(cells):
        return Why("")
    mark = shown.mark
    file = f"data/{markup.slug(suite)}-why-{mark}.csv"
    tasks = [telling(task) for task in by_task(cells)][:TASKS]
    predicted = _predicted(shown, {str(cell["cell_id"]) for task in tasks for _, cell in task.told})
    rows = [row for task in tasks for row in _rows(task, predicted, alone=len(tasks) == 1)]
    said = [markup.paragraph(_sentence(task), "fr-answer") for task in tasks]
    body = [
        markup.heading(3, "Why is it not faster?", f"why-{mark}"),
        *said,
        _table(rows),
        *_notes(shown, cells, predicted, path, file),
    ]
    return Why("\n".join(body), {file: _listed(cells)})


def _listed(cells: pd.DataFrame) -> str:
    axes = [axis.name for axis in AXES if cells[axis.name].notna().any()]
    return cells[[*axes, *_FILE]].astype(object).map(csv_field).to_csv(index=False, lineterminator="\n")


def _predicted(shown: RunView, wanted: set[str]) -> pd.DataFrame:
    """Predictions of cells that the model was not fitted to, by other workers where possible; a row a cell."""
    trials = shown.trials
    if len(shown.judged) > PREDICTED:
        fitted = trials["num_workers"].le(1).fillna(False)
        trials = trials[fitted | trials["cell_id"].isin(sorted(wanted))]
    if not trials["num_workers"].eq(1).any():
        return pd.DataFrame({"cell_id": [], "predicted_samples_per_s": [], "error_pct": [], "within": []})
    found = held_out(trials, shown.run.table("steps"), shown.cores)
    return found[found["error_pct"].notna()].drop_duplicates("cell_id")


_COLUMNS = (
    "Setting",
    "Samples/s",
    "Each stage alone",
    "Efficiency",
    "AU",
    "Held back by",
    "In the loader",
    "Hidden",
    "Predicted",
)


def _rows(task: Task, predicted: pd.DataFrame, *, alone: bool) -> Iterator[tuple[str, ...]]:
    """A row a cell; where a table has one task alone, its rows do not repeat it."""
    by_cell = predicted.set_index("cell_id").to_dict("index")
    for reason, cell in task.told:
        yield (
            f"{escape(descriptions.knobs(cell))}<br>"
            f'<span class="fr-kind">{escape(reason if alone else f"{_task(cell)}: {reason}")}</span>',
            words.number(float(cell["samples_per_s"])),
            _lines(_alone(cell)),
            _efficiency(cell),
            words.percent(float(cell["au"])) if words.known(cell["au"]) else "",
            escape(str(cell["bottleneck"])),
            _lines(_loader(cell)),
            _lines(_hidden(cell)),
            _prediction(by_cell.get(cell["cell_id"])),
        )


def _table(rows: list[tuple[str, ...]]) -> str:
    """The table without the columns that nothing is known of."""
    kept = [place for place in range(len(_COLUMNS)) if any(row[place] for row in rows)]
    columns = [_COLUMNS[place] for place in kept]
    lines = [[row[place] or "–" for place in kept] for row in rows]
    numeric = ("Samples/s", "Efficiency", "AU", "Predicted")
    return markup.table("What holds training back", columns, lines, numeric, stack=True)


def _lines(parts: list[str]) -> str:
    return "<br>".join(escape(part).replace(" ", "\u00a0") for part in parts)


def _task(cell: Mapping[Any, Any]) -> str:
    kind = f"emulated step of {cell['step_ms']:g} ms" if cell["step"] == EMULATED else "real training"
    more = descriptions.changed({name: cell[name] for name in CONDITIONS if name not in _SAID})
    reading = filter(None, (*descriptions.reading(cell), more))
    return ", ".join((kind, str(cell["workload"]), f"{cell['patch_size']} px", *reading))


def _alone(cell: Mapping[Any, Any]) -> list[str]:
    """What each stage could do alone; an emulated step's is declared."""
    return [
        f"{STAGE_WORDS[stage]} {words.number(float(rate))}"
        for stage in STAGES
        if words.known(rate := cell[f"{stage}_ceiling"])
    ]


def _efficiency(cell: Mapping[Any, Any]) -> str:
    if not words.known(cell["efficiency"]):
        return ""
    value = words.percent(float(cell["efficiency"]))
    lo, hi = cell["efficiency_lo"], cell["efficiency_hi"]
    if not (words.known(lo) and words.known(hi)):
        return f'{value}<br><span class="fr-kind">one block</span>'
    return f'{value}<br><span class="fr-kind">{100 * lo:.0f} – {100 * hi:.0f} %</span>'


def _loader(cell: Mapping[Any, Any]) -> list[str]:
    if not isinstance(cell["dominant"], str):
        return []
    said = [f"{cell['dominant']} {words.percent(float(cell['dominant_share']))}"]
    return [*said, *([cell["bound"]] if isinstance(cell["bound"], str) else [])]


def _hidden(cell: Mapping[Any, Any]) -> list[str]:
    return [
        f"{what} {words.percent(float(cell[f'{what}_hidden']))}"
        for what in ("fetch", "copy")
        if words.known(cell[f"{what}_hidden"])
    ]


def _prediction(found: Mapping[Any, Any] | None) -> str:
    if found is None:
        return ""
    rate, error = words.number(found["predicted_samples_per_s"]), f"{descriptions.signed(found['error_pct'])}"
    return f'{rate}<br><span class="fr-kind">{error}</span>'


def _meaning(cell: Mapping[Any, Any]) -> str:
    """What a bottleneck means for a reader; where its stages were not measured alone, no more than what phases tell."""
    meaning, follows = _MEANS[cell["bottleneck"]]
    if not isinstance(cell["limit"], str):
        balanced = cell["bottleneck"] == "balanced"
        return "No phase takes half of the time" if balanced else f"{meaning}, as far as its phases tell"
    follows = follows if cell["num_workers"] else _IN_TURNS
    return ": ".join(filter(None, (meaning, follows)))


def _sentence(task: Task) -> str:
    """Say in plain words what holds a task back, made from the numbers of its fastest cell."""
    cell, settings = task.fastest, len(task.cells)
    what, rate = _task(cell), words.number(float(cell["samples_per_s"]))
    said = (
        f"{what[:1].upper()}{what[1:]}: the fastest setting ({descriptions.knobs(cell)}) does {rate} samples a second"
    )
    if words.known(cell["efficiency"]) and isinstance(cell["limit"], str):
        said += f", {words.percent(float(cell['efficiency']))} of what its {STAGE_WORDS[cell['limit']]} does alone"
    said += f". {_meaning(cell)}" if cell["bottleneck"] in _MEANS else ""
    if cell["bottleneck"] == "loader-bound" and isinstance(cell["dominant"], str):
        share = words.percent(float(cell["dominant_share"]))
        said += f"; the largest part of loading is {STAGE_DOING[cell['dominant']]} ({share})"
    said += "."
    if words.known(cell["fetch_hidden"]):
        said += f" The step hides {words.percent(float(cell['fetch_hidden']))} of loading."
    counts = task.cells["bottleneck"].value_counts()
    if len(counts) > 1:
        parts = words.listed(f"{count} {'is' if count == 1 else 'are'} {name}" for name, count in counts.items())
        said += f" Of the {settings} settings of this task, {parts}."
    return said


def _notes(shown: RunView, cells: pd.DataFrame, predicted: pd.DataFrame, path: str, file: str) -> Iterator[str]:
    if shown.manifest.device == "cpu" and cells["num_workers"].gt(0).any():
        yield markup.paragraph(
            "On a CPU, workers and model share the cores: what each stage does alone cannot be reached together, and "
            "an efficiency under 100\u00a0% names no waste.",
            "fr-note",
        )
    if len(predicted):
        errors = predicted["error_pct"].abs()
        half, worst = (f"{words.number(float(value), 2)}\u00a0%" for value in (errors.median(), errors.max()))
        text = (
            f"A model of the pipeline predicted {words.plural(len(predicted), 'cell')} that it was not fitted to: half "
            f"of them within {half}, all within {worst}."
        )
        link = markup.link(path, "methodology.md#pipeline", "How it predicts")
        yield f'<p class="fr-note">{escape(text)} {link}.</p>\n'
    link = markup.download(path, file, f"All {len(cells):,} training cells as CSV")
    rules = markup.link(path, "methodology.md#ceilings", "What the columns mean")
    yield f'<p class="fr-note">{link}. {rules}.</p>\n'
