"""The page Explore: every number of every setting, to be picked, filtered, drawn, read and taken away.

``site/scripts/explore/page.js`` draws it from the files of the runs that it shows (``run_files``) and one index.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from feedrate.analysis.machines import SAME_IN_BOTH
from feedrate.analysis.measures import MEASURES
from feedrate.charts.plot import unlike
from feedrate.charts.theme import SHAPES, colour
from feedrate.pages import markup
from feedrate.pages.markup import Page, Placed, addressed
from feedrate.pages.runs import RunView
from feedrate.pages.selection import Selection
from feedrate.pages.template import render
from feedrate.questions.explore.run_files import FORMAT, GIVEN, RAN, json_text, path_of
from feedrate.questions.home.charts import Machines
from feedrate.questions.home.page import named, speaking
from feedrate.schema.axes import AXES
from feedrate.schema.plugins import names

PATH = "explore.md"
INDEX = "explore/index.json"
_SERIES = 7


def page(everyone: Selection, texts: Mapping[str, str]) -> Page:
    """Write the page and its index; ``texts``: the file of each run by its path."""
    have = [view for view in everyone.every if texts.get(path_of(view))]
    shown = [run for run in [*speaking(everyone.featured), *have] if run in have]
    if not shown:
        return Page(PATH, "Explore", render("explore/page.md", opening=None), hide=("navigation", "toc"))
    index = json_text(_index(have, texts, shown[0].manifest.run_id, named(everyone.at_home())))
    frame = Placed("explore", markup.scripted("explore", addressed(INDEX, index)))
    body = render("explore/page.md", opening=shown[0])
    return Page(PATH, "Explore", body, {"explore": frame}, {INDEX: index}, hide=("navigation", "toc"))


def _index(views: Sequence[RunView], texts: Mapping[str, str], opening: str, machines: Machines) -> dict[str, Any]:
    """Write what the page must know before it has any cell."""
    files = [json.loads(texts[path_of(view)]) for view in views]
    dims, measures = ({name for file in files for name in file[section]} for section in ("dims", "measures"))
    return {
        "format": FORMAT,
        "opening": opening,
        "runs": [
            {**file["about"], "cells": addressed(path_of(view), texts[path_of(view)]), "count": len(file["cell"])}
            for view, file in zip(views, files, strict=True)
        ],
        "dims": [
            *({"name": name} for name in GIVEN if name != "data_hash"),
            *({"name": axis.name, "default": axis.default} for axis in AXES if axis.name in dims),
        ],
        "measures": [
            {"name": measure.name, "label": measure.label, "unit": measure.unit, "logs": measure.logs}
            | ({"most": measure.most} if math.isfinite(measure.most) else {})
            for measure in MEASURES
            if measure.name in measures
        ],
        "ran": [{"name": name, "label": label} for name, label in RAN.items()],
        "ordered": [colour(f"series-{index}") for index in range(_SERIES)],
        "named": [colour(f"name-{index}") for index in range(_SERIES)],
        "shapes": SHAPES,
        "colours": _colours(machines),
        "same_in_both": SAME_IN_BOTH,
    }


def _colours(machines: Machines) -> dict[str, dict[str, str]]:
    """Give each format, loader and machine the colour that charts give it, whichever are drawn."""
    every = [name for name, _ in machines.values()]
    looks = unlike(every, every)
    kinds = {"storage_format": "feedrate.formats", "loader": "feedrate.loaders"}
    colours = {axis: {name: tint for name, (tint, _) in unlike(names(kind)).items()} for axis, kind in kinds.items()}
    return {**colours, "machine": {machine: looks[name][0] for (machine, _), (name, _) in machines.items()}}
