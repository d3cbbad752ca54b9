"""The path of a search: every trial in its order, and what it found.

Marks are single trials. It does not show settings that were set aside, and whether two settings differ is not read off
it: the search compares them within blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from feedrate.analysis.blocks import successful
from feedrate.analysis.estimates import AXIS_NAMES, rows_of
from feedrate.attach.space import Setting
from feedrate.attach.tune_report import snippet
from feedrate.charts.figure import Figure, Key, Row, Sheet, chart, listed
from feedrate.charts.plot import Fields, Looks, Plot, Side, amount, of_workers
from feedrate.charts.theme import colour
from feedrate.pages import descriptions
from feedrate.pages.headlines import task_cell
from feedrate.pages.runs import RunView
from feedrate.pages.tasks import kind_of
from feedrate.plan import tuning
from feedrate.plan.search import GRID_BLOCKS
from feedrate.schema import words
from feedrate.schema.axes import AXES, BY_NAME, cell_id, lives
from feedrate.store.manifest import Tuned

_NOT_SHOWN = ("start_method", "batch_size", "non_blocking")
"""Settings that are named only where a search tried several."""


def settings_of(trials: pd.DataFrame) -> dict[str, Setting]:
    """Give the settings of a search's trials by their cells, whether workers live on or not."""
    cells = trials.drop_duplicates("cell_id")
    fixed = [name for name in _NOT_SHOWN if cells[name].nunique() < 2]
    by_cell = {}
    for row in rows_of(cells[list(AXIS_NAMES)]):
        cell = {axis.name: axis.type(row[axis.name]) for axis in AXES if not pd.isna(row[axis.name])}
        for life in lives(cell):
            named: dict[str, Any] = {name: life.get(name, BY_NAME[name].default) for name in Setting._fields}
            by_cell[cell_id(life)] = Setting(**named | dict.fromkeys(fixed))
    return by_cell


def marked(trials: pd.DataFrame, settings: Mapping[str, Setting], tuned: Tuned) -> dict[str, str]:
    """Name the cells whose trials show the recommended and the present settings; one can be both."""
    marks: dict[str, str] = {}
    ran = set(trials["cell_id"])
    for name, chosen in (("recommended", tuned.recommended), ("present", tuned.present)):
        if chosen is not None:
            wanted = settings[chosen]
            alike = (
                cell for cell in ran if settings[cell]._replace(persistent_workers=wanted.persistent_workers) == wanted
            )
            cell = chosen if chosen in ran else next(alike)
            marks[cell] = f"{marks[cell]}, {name}" if cell in marks else name
    return marks


def section(view: RunView) -> dict[str, Any] | None:
    """What the page of a search's run begins with; None of other runs."""
    if (search := view.manifest.search) is None:
        return None
    settings = settings_of(view.trials)
    best, present = settings[search.recommended], settings.get(search.present or "")
    return {
        "found": search,
        "best": best,
        "present": present,
        "gain": words.estimate(search.gain, "ratio", write="{:.2f}".format) if search.gain else "",
        "snippet": snippet(best, present),
        "bound": " ".join(map(words.sentence, tuning.sentences(search))),
        "grid": GRID_BLOCKS,
        "settings": list(_rows(view, settings, search)),
        "aside": [(f"{entry.count:,}", entry.reason) for entry in (*search.aside, *view.manifest.excluded)],
        "audits": [
            (str(settings[audit.cell_id]), words.number(audit.predicted), words.number(audit.measured))
            for audit in search.audits
        ],
    }


def searches(view: RunView) -> list[tuple[object, ...]]:
    """What the searches of a tuned sweep found, a row a task; none of other runs."""
    if view.manifest.search is not None or not view.manifest.tuned:
        return []
    cells = {str(row["cell_id"]): row for row in rows_of(view.cells)}
    return [_task(tuned, cells[tuned.recommended]) for tuned in view.manifest.tuned]


def _task(tuned: Tuned, best: Mapping[Any, Any]) -> tuple[object, ...]:
    """A task, its setting, how far from the best it can be, and trials."""
    bound = "not known" if tuned.bound_pct is None else words.per_cent(tuned.bound_pct, 1)
    return (
        task_cell({**best, "kind": kind_of(best)}),
        descriptions.knobs(best),
        bound if tuned.known else f"{bound} (open)",
        f"{tuned.trials:,} of {tuned.settings * GRID_BLOCKS:,}",
    )


def _rows(view: RunView, settings: Mapping[str, Setting], tuned: Tuned) -> Iterator[tuple[object, ...]]:
    """Every setting that ran: the fastest first, those that only failed last."""
    ran, marks = view.trials["cell_id"].value_counts(), marked(view.trials, settings, tuned)
    for row in rows_of(view.cells.sort_values("samples_per_s", ascending=False)):
        cell = str(row["cell_id"])
        remarks: list[str] = [Markup("<strong>{}</strong>").format(marks[cell])] if cell in marks else []
        remarks += ["failed"] if row["failed"] else []
        rate = words.number(row["samples_per_s"]) if words.is_number(row["samples_per_s"]) else "–"
        spread = words.interval(row["lo"], row["hi"]) if row["n"] > 1 else "–"
        yield str(settings[cell]), rate, spread, ran[cell], Markup(", ").join(remarks) or "–"


_MISSING = "No measurement of a search ended well."
_SHAPES = {"none": "circle", "recommended": "diamond", "present": "square", "recommended, present": "triangle-up"}


@chart("The path of the search", "Which settings did the search try, in which order, and what did each give?")
def search(sheet: Sheet, trials: pd.DataFrame, tuned: Tuned | None = None) -> Figure:
    """Draw the samples a second of every trial in its order."""
    ordered = trials.sort_values(["block", "position"]).assign(trial=range(1, len(trials) + 1))
    ended = successful(ordered)
    if tuned is None or not len(ended):
        return sheet.figure((), _MISSING)
    settings = settings_of(trials)
    marks = marked(trials, settings, tuned)
    rows = [
        {
            "trial": int(row["trial"]),
            "block": int(row["block"]),
            "workers": words.plural(int(row["num_workers"]), "worker"),
            "setting": str(settings[row["cell_id"]]),
            "value": float(row["samples_per_s"]),
            "mark": marks.get(row["cell_id"], "none"),
            "lo": None,
            "hi": None,
        }
        for row in rows_of(ended[["trial", "block", "num_workers", "cell_id", "samples_per_s"]])
    ]
    if failed := len(ordered) - len(ended):
        sheet.note(f"{words.plural(failed, 'measurement')} failed and {'has' if failed == 1 else 'have'} no mark.")
    sheet.note("A mark is one measurement; the start of a long epoch is not part of it.")
    looks = of_workers(sorted(int(count) for count in ended["num_workers"].unique()))
    panel = _plot(rows, looks).panel(
        str(trials["script"].iloc[0]), f"{len(rows)} measurements in their order", _message(rows)
    )
    columns = {"trial": "trial", "block": "block", "setting": "setting", "samples per s": "value", "marked": "mark"}
    sheet.add(panel, listed(rows, {}, columns))
    shapes = [Key(name, colour("ink"), _SHAPES[name]) for name in _SHAPES if name in set(marks.values())]
    return sheet.figure([*(Key(name, tint, "circle") for name, (tint, _) in looks.items()), *shapes], _MISSING)


def _plot(rows: Sequence[Row], looks: Looks) -> Plot:
    axis = {"grid": False, "tickMinStep": 1, "format": "d", "tickCount": 8}
    x = Side("trial", "measurement", {"nice": False, "zero": False, "padding": 10}, axis)
    y = amount("value", "samples per second")
    tooltip: Fields = {"trial:Q": "", "block:Q": "repetition", "setting:N": "", "value:Q": (str(y.title), ",.4~g")}
    return Plot(rows, x, y, "workers", looks, shaped=("mark", _SHAPES), tooltip={**tooltip, "mark:N": ""}, size=70)


def _message(rows: Sequence[Row]) -> str:
    """Say how many trials there were, and what the marked settings gave."""
    count = words.plural(len({row["setting"] for row in rows}), "setting")
    phrases = [f"{words.plural(len(rows), 'measurement')} of {count}"]
    for name, own in pd.DataFrame(rows).query("mark != 'none'").groupby("mark", sort=False):
        rate = words.number(own["value"].median())
        phrases.append(f"the {name} one, {own['setting'].iloc[0]}, gave a median of {rate} samples/s")
    return words.sentence("; ".join(phrases))
