"""The run of a search: the settings to paste, what they gain, how far from the best they can be, and what spoke for it.

All of it comes from the manifest and the trials, so that runs from elsewhere say as much as one's own. A trial shows
the window of a setting, where epochs are long whether its workers live on or not; what that changes at the start of an
epoch is in the gain and in the bound, and not in the samples a second that are listed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from markupsafe import Markup

from feedrate.analysis.blocks import successful
from feedrate.analysis.crossfit import LEAST_BLOCKS, over
from feedrate.analysis.estimates import AXIS_NAMES, rows_of
from feedrate.attach.space import Setting
from feedrate.attach.tune_report import snippet
from feedrate.pages import descriptions, markup
from feedrate.pages.headlines import task_cell
from feedrate.pages.runs import RunView
from feedrate.pages.tasks import kind_of
from feedrate.plan.search import GRID_BLOCKS
from feedrate.schema import words
from feedrate.schema.axes import AXES, BY_NAME, KNOBS, cell_id, lives
from feedrate.store.manifest import Tuned

_NOT_SHOWN = ("start_method", "batch_size", "non_blocking")
"""Settings that are named only where a search tried several."""


def settings_of(trials: pd.DataFrame) -> dict[str, Setting]:
    """Give the settings of a search's trials by their cells, whether workers live on or not."""
    known = trials.drop_duplicates("cell_id")
    fixed = [name for name in _NOT_SHOWN if known[name].nunique() < 2]
    found = {}
    for row in rows_of(known[list(AXIS_NAMES)]):
        cell = {axis.name: axis.type(row[axis.name]) for axis in AXES if not pd.isna(row[axis.name])}
        for each in lives(cell):
            named: dict[str, Any] = {name: each.get(name, BY_NAME[name].default) for name in Setting._fields}
            found[cell_id(each)] = Setting(**named | dict.fromkeys(fixed))
    return found


def marked(trials: pd.DataFrame, settings: Mapping[str, Setting], found: Tuned) -> dict[str, str]:
    """Name the cells whose trials show the recommended and the present settings; one can be both."""
    marks: dict[str, str] = {}
    for name, own in (("recommended", found.recommended), ("present", found.present)):
        if own is not None:
            alike = [own, *(each for each in settings if _alike(settings[each], settings[own]))]
            cell = next(each for each in alike if each in set(trials["cell_id"]))
            marks[cell] = f"{marks[cell]}, {name}" if cell in marks else name
    return marks


def _alike(setting: Setting, other: Setting) -> bool:
    return setting._replace(persistent_workers=other.persistent_workers) == other


def section(view: RunView) -> dict[str, Any] | None:
    """What the page of a search's run begins with; None of other runs."""
    if (found := view.manifest.search) is None:
        return None
    settings = settings_of(view.trials)
    best = settings[found.recommended]
    grid = f"A grid of {found.settings:,} settings × {GRID_BLOCKS} blocks takes {found.settings * GRID_BLOCKS:,}"
    return {
        "answer": Markup(" ").join((_answer(best, view.manifest.script), _gain(found, settings))),
        "snippet": snippet(best),
        "facts": [
            ("Bound", _bound(found)),
            ("Trials", f"{found.trials:,} of {words.plural(view.manifest.cells, 'setting')}. {grid}."),
        ],
        "settings": list(_rows(view, settings, found)),
        "aside": [(f"{part.count:,}", part.reason) for part in (*found.aside, *view.manifest.excluded)],
        "audits": [
            (str(settings[each.cell_id]), words.number(each.predicted), words.number(each.measured))
            for each in found.audits
        ],
    }


def searches(view: RunView) -> list[tuple[object, ...]]:
    """What the searches of a tuned sweep found, a row a task; none of other runs."""
    if view.manifest.search is not None:
        return []
    cells = {str(row["cell_id"]): row for row in rows_of(view.cells)}
    return [tuple(_task(view, found, cells)) for found in view.manifest.tuned]


def _task(view: RunView, found: Tuned, cells: Mapping[str, Mapping[Any, Any]]) -> Iterator[object]:
    """A task, its setting, what that gains over the defaults, how far from the best it can be, and trials."""
    best = cells[found.recommended]
    yield task_cell({**best, "kind": kind_of(best)})
    yield descriptions.knobs(best)
    yield _over_defaults(view.trials, found, cells)
    bound = "not known" if found.bound_pct is None else f"{found.bound_pct:.1f}\u00a0%"
    yield bound if found.known else f"{bound} (open)"
    yield f"{found.trials:,} of {found.settings * GRID_BLOCKS:,}"


def _over_defaults(trials: pd.DataFrame, found: Tuned, cells: Mapping[str, Mapping[Any, Any]]) -> str:
    if found.present is None:
        return "they were not tried"
    if found.present == found.recommended:
        return "these are the defaults"
    own = _alike_in_all_but_knobs(trials, found.recommended)
    logs: dict[str, dict[int, float]] = {cell: {} for cell in own if not cells[cell]["failed"]}
    for row in rows_of(successful(trials)[["cell_id", "block", "samples_per_s"]]):
        if row["cell_id"] in logs:
            logs[row["cell_id"]][row["block"]] = -math.log(row["samples_per_s"])
    gain = over(logs, found.present, found.recommended)
    if gain is None or math.isnan(gain.log):
        return f"needs {LEAST_BLOCKS} blocks with both"
    ends = gain.interval()
    return f"×\u00a0{words.number(ends['ratio'])} ({words.interval(ends['lo'], ends['hi'], int(ends['n']))})"


def _alike_in_all_but_knobs(trials: pd.DataFrame, cell: str) -> set[str]:
    """The cells of a cell's task."""
    fixed = [name for name in AXIS_NAMES if name not in KNOBS]
    keys = {
        str(row["cell_id"]): tuple(None if pd.isna(row[name]) else row[name] for name in fixed)
        for row in rows_of(trials.drop_duplicates("cell_id"))
    }
    return {each for each, key in keys.items() if key == keys[cell]}


def _answer(best: Setting, name: str) -> Markup:
    return Markup("Of the settings that were searched, {} is the one for {}.").format(markup.code(str(best)), name)


def _gain(found: Tuned, settings: Mapping[str, Setting]) -> Markup:
    """What the recommended settings gain over the present ones, in a sentence."""
    if found.present is None:
        return Markup()
    if found.present == found.recommended:
        return Markup("The script has it already.")
    present = markup.code(str(settings[found.present]))
    if found.gain is None:
        return Markup("What it gains over {} is not known: too few blocks ran with both.").format(present)
    ratio, lo, hi = found.gain
    interval = f"95\u00a0% interval {lo:.2f} to {hi:.2f}"
    if lo <= 1 <= hi:
        return Markup("It cannot be told from {}, which the script has: {} as fast ({}).").format(
            present, words.times(ratio), interval
        )
    return Markup("It is {} as fast as {}, which the script has ({}).").format(words.times(ratio), present, interval)


def _bound(found: Tuned) -> str:
    """How far the best setting can be from the recommended one."""
    if found.bound_pct is None:
        return "Not known: the search ended before the settings were told apart."
    most = f"{found.bound_pct:.1f}\u00a0% faster, with 95\u00a0% confidence"
    said = f"The best of all {found.settings:,} settings is at most {most}"
    asked = f"the {found.within_pct:g}\u00a0% that the search was asked for"
    return f"{said}: within {asked}." if found.known else f"{said}. The time was used up before it was within {asked}."


def _rows(view: RunView, settings: Mapping[str, Setting], found: Tuned) -> Iterator[tuple[object, ...]]:
    """Every setting that ran: the fastest first, those that only failed last."""
    ran, marks = view.trials["cell_id"].value_counts(), marked(view.trials, settings, found)
    for row in rows_of(view.cells.sort_values("samples_per_s", ascending=False)):
        cell = str(row["cell_id"])
        said = [Markup("<strong>{}</strong>").format(marks[cell])] if cell in marks else []
        said += [Markup("failed")] if row["failed"] else []
        rate = words.number(row["samples_per_s"]) if words.known(row["samples_per_s"]) else "–"
        spread = descriptions.spread(row["lo"], row["hi"]) if row["n"] > 1 else "–"
        yield str(settings[cell]), rate, spread, f"{ran[cell]}", Markup(", ").join(said) or "–"
