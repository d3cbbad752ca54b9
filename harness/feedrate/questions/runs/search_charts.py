"""The path of a search: every trial in its order, and what it found.

Marks are single trials. It does not show settings that were set aside, and whether two settings differ is not read off
it: the search compares them within blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from feedrate.analysis.blocks import successful
from feedrate.analysis.crossfit import LEAST_BLOCKS, over
from feedrate.analysis.estimates import AXIS_NAMES, rows_of
from feedrate.attach.space import Setting
from feedrate.attach.tune_report import snippet
from feedrate.charts.figure import Figure, Key, Row, Sheet, chart, data, listed, plain
from feedrate.charts.plot import Fields, Looks, Plot, Side, amount, keys, mark, of_workers
from feedrate.charts.theme import colour
from feedrate.pages import descriptions, markup
from feedrate.pages.headlines import task_cell
from feedrate.pages.runs import RunView
from feedrate.pages.tasks import kind_of
from feedrate.plan import tuning
from feedrate.plan.search import GRID_BLOCKS
from feedrate.schema import words
from feedrate.schema.axes import AXES, BY_NAME, KNOBS, cell_id, lives
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
    for name, chosen in (("recommended", tuned.recommended), ("present", tuned.present)):
        if chosen is not None:
            alike = [chosen, *(candidate for candidate in settings if _alike(settings[candidate], settings[chosen]))]
            cell = next(candidate for candidate in alike if candidate in set(trials["cell_id"]))
            marks[cell] = f"{marks[cell]}, {name}" if cell in marks else name
    return marks


def _alike(setting: Setting, other: Setting) -> bool:
    return setting._replace(persistent_workers=other.persistent_workers) == other


def section(view: RunView) -> dict[str, Any] | None:
    """What the page of a search's run begins with; None of other runs."""
    if (search := view.manifest.search) is None:
        return None
    settings = settings_of(view.trials)
    best = settings[search.recommended]
    grid = f"A grid of {search.settings:,} settings × {GRID_BLOCKS} repetitions takes {search.settings * GRID_BLOCKS:,}"
    return {
        "answer": Markup(" ").join((_answer(best, view.manifest.script, search.known), _gain(search, settings))),
        "snippet": snippet(best, settings.get(search.present or "")),
        "facts": [
            ("Bound", " ".join(map(words.sentence, tuning.sentences(search)))),
            ("Measurements", f"{search.trials:,} of {words.plural(view.manifest.cells, 'setting')}. {grid}."),
        ],
        "settings": list(_rows(view, settings, search)),
        "aside": [(f"{entry.count:,}", entry.reason) for entry in (*search.aside, *view.manifest.excluded)],
        "audits": [
            (str(settings[audit.cell_id]), words.number(audit.predicted), words.number(audit.measured))
            for audit in search.audits
        ],
    }


def searches(view: RunView) -> list[tuple[object, ...]]:
    """What the searches of a tuned sweep found, a row a task; none of other runs."""
    if view.manifest.search is not None:
        return []
    cells = {str(row["cell_id"]): row for row in rows_of(view.cells)}
    return [tuple(_task(view, tuned, cells)) for tuned in view.manifest.tuned]


def _task(view: RunView, tuned: Tuned, cells: Mapping[str, Mapping[Any, Any]]) -> Iterator[object]:
    """A task, its setting, what that gains over the defaults, how far from the best it can be, and trials."""
    best = cells[tuned.recommended]
    yield task_cell({**best, "kind": kind_of(best)})
    yield descriptions.knobs(best)
    yield _over_defaults(view.trials, tuned, cells)
    bound = "not known" if tuned.bound_pct is None else words.per_cent(tuned.bound_pct, 1)
    yield bound if tuned.known else f"{bound} (open)"
    yield f"{tuned.trials:,} of {tuned.settings * GRID_BLOCKS:,}"


def _over_defaults(trials: pd.DataFrame, tuned: Tuned, cells: Mapping[str, Mapping[Any, Any]]) -> str:
    if tuned.present is None:
        return "they were not tried"
    if tuned.present == tuned.recommended:
        return "these are the defaults"
    best, fixed = cells[tuned.recommended], [name for name in AXIS_NAMES if name not in KNOBS]
    alike = [cell for cell in cells.values() if all(plain(cell[name]) == plain(best[name]) for name in fixed)]
    logs: dict[str, dict[int, float]] = {str(cell["cell_id"]): {} for cell in alike if not cell["failed"]}
    for row in rows_of(successful(trials)[["cell_id", "block", "samples_per_s"]]):
        if row["cell_id"] in logs:
            logs[row["cell_id"]][row["block"]] = -math.log(row["samples_per_s"])
    gain = over(logs, tuned.present, tuned.recommended)
    if gain is None or not gain.ratio.known:
        return f"needs {LEAST_BLOCKS} repetitions with both"
    return gain.ratio.with_n()


def _answer(best: Setting, name: str, settled: bool) -> Markup:
    searched = Markup("Best setting found: {} for {}.")
    tried = Markup("Best setting so far: {} for {}.")
    return (searched if settled else tried).format(markup.code(str(best)), name)


def _gain(tuned: Tuned, settings: Mapping[str, Setting]) -> Markup:
    """What the recommended settings gain over the present ones, in a sentence."""
    if tuned.present is None:
        return Markup()
    if tuned.present == tuned.recommended:
        return Markup("The script has it already.")
    present = markup.code(str(settings[tuned.present]))
    if tuned.gain is None:
        return Markup("What it gains over {} is not known: too few repetitions ran with both.").format(present)
    _, lo, hi = tuned.gain
    ratio = words.estimate(tuned.gain, "ratio", write="{:.2f}".format)
    if lo <= 1 <= hi:
        return Markup("It ties with {}, which the script has: {} as fast.").format(present, ratio)
    return Markup("It is {} as fast as {}, which the script has.").format(ratio, present)


def _rows(view: RunView, settings: Mapping[str, Setting], tuned: Tuned) -> Iterator[tuple[object, ...]]:
    """Every setting that ran: the fastest first, those that only failed last."""
    ran, marks = view.trials["cell_id"].value_counts(), marked(view.trials, settings, tuned)
    for row in rows_of(view.cells.sort_values("samples_per_s", ascending=False)):
        cell = str(row["cell_id"])
        remarks = [Markup("<strong>{}</strong>").format(marks[cell])] if cell in marks else []
        remarks += [Markup("failed")] if row["failed"] else []
        rate = words.number(row["samples_per_s"]) if words.is_number(row["samples_per_s"]) else "–"
        spread = words.interval(row["lo"], row["hi"]) if row["n"] > 1 else "–"
        yield str(settings[cell]), rate, spread, f"{ran[cell]}", Markup(", ").join(remarks) or "–"


_MISSING = "No search chose the measurements of this run."
_RINGS = {"recommended": (colour("accent"), "circle"), "present": (colour("source"), "square")}
"""What lies behind the marks of two settings."""


@chart("The path of the search", "Which settings did the search try, in which order, and what did each give?")
def search(sheet: Sheet, trials: pd.DataFrame, tuned: Tuned | None = None) -> Figure:
    """Draw the samples a second of every trial in its order."""
    if tuned is None:
        return sheet.figure((), _MISSING)
    settings = settings_of(trials)
    marks = marked(trials, settings, tuned)
    ordered = trials.sort_values(["block", "position"]).assign(trial=range(1, len(trials) + 1))
    ended = successful(ordered)
    looks = of_workers(sorted(int(count) for count in ended["num_workers"].unique()))
    rows: list[dict[str, Any]] = [
        {
            "trial": int(row["trial"]),
            "block": int(row["block"]),
            "workers": words.plural(int(row["num_workers"]), "worker"),
            "setting": str(settings[row["cell_id"]]),
            "value": float(row["samples_per_s"]),
            "mark": marks.get(row["cell_id"], "none"),
        }
        for row in rows_of(ended[["trial", "block", "num_workers", "cell_id", "samples_per_s"]])
    ]
    if not rows:
        return sheet.figure((), "No measurement of this search ended well.")
    if failed := len(ordered) - len(ended):
        sheet.note(f"{words.plural(failed, 'measurement')} failed and {'has' if failed == 1 else 'have'} no mark.")
    sheet.note("A mark is one measurement; the start of a long epoch is not part of it.")
    script = str(trials["script"].iloc[0])
    panel = _plot(rows, looks).panel(script, f"{len(rows)} measurements in their order", _message(rows))
    columns = {"trial": "trial", "block": "block", "setting": "setting", "samples per s": "value", "marked": "mark"}
    sheet.add(panel, listed(rows, {}, columns))
    rings = [Key(name, *_RINGS[name]) for name in _RINGS if any(name in row["mark"] for row in rows)]
    return sheet.figure([*keys(looks), *rings], _MISSING)


def _plot(rows: Sequence[Row], looks: Looks) -> Plot:
    """Marks in their order, rings behind those of two settings."""
    axis = {"grid": False, "tickMinStep": 1, "format": "d", "tickCount": 8}
    x = Side("trial", "measurement", {"nice": False, "zero": False, "padding": 10}, axis)
    y = amount("value", "samples per second")
    style, place = {"size": 190, "filled": False, "strokeWidth": 2, "opacity": 1}, {**x.along("x"), **y.along("y")}
    rings = [
        mark("point", data(ringed, "trial", "value"), {**style, "shape": form, "color": drawn}, **place)
        for name, (drawn, form) in _RINGS.items()
        if (ringed := [row for row in rows if name in row["mark"]])
    ]
    said: Fields = {"trial:Q": "", "block:Q": "repetition", "setting:N": ""}
    tooltip = {**said, "value:Q": (str(y.title), ",.4~g"), "mark:N": ""}
    drawn_rows = [{**row, "lo": None, "hi": None} for row in rows]
    return Plot(drawn_rows, x, y, "workers", looks, tooltip=tooltip, behind=rings, size=50)


def _message(rows: Sequence[Row]) -> str:
    """Say how many trials there were, and what the marked settings gave."""
    phrases = [
        f"{words.plural(len(rows), 'measurement')} of {words.plural(len({row['setting'] for row in rows}), 'setting')}"
    ]
    for name in _RINGS:
        if ringed := [row for row in rows if name in row["mark"]]:
            least, most = (words.number(end(row["value"] for row in ringed)) for end in (min, max))
            ends = least if least == most else f"{least} to {most}"
            count = words.plural(len(ringed), "measurement")
            phrases.append(f"the {name} one, {ringed[0]['setting']}, gave {ends} samples/s in {count}")
    return words.sentence("; ".join(phrases))
