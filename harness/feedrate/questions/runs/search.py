"""The run of a search: the settings to paste, what they gain, how far from the best they can be, and what spoke for it.

All of it comes from the manifest and the trials, so that runs from elsewhere say as much as one's own. A trial shows
the window of a setting, where epochs are long whether its workers live on or not; what that changes at the start of an
epoch is in the gain and in the bound, and not in the samples a second that are listed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from markupsafe import Markup

from feedrate.analysis.estimates import AXIS_NAMES, rows_of
from feedrate.attach.space import Setting
from feedrate.attach.tuned import snippet
from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView
from feedrate.plan.search import GRID_BLOCKS
from feedrate.schema import words
from feedrate.schema.axes import AXES, BY_NAME, cell_id, lives
from feedrate.store.manifest import Tuned

_NOT_SHOWN = ("start_method", "batch_size")
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
