"""The page Compare: two runs beside each other, published ones or files that a reader drops, which stay there.

The page is drawn by ``site/scripts/compare/page.js``. Published runs are read from ``run_files``; a Worker makes the
same of a file. Margins, caps and colours that Python decides stand in one index, so that the page cannot differ from
the package.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from feedrate import __version__
from feedrate.analysis.estimate import CONFIDENCE
from feedrate.analysis.machines import ONCE, ROUNDING, SAME_IN_BOTH
from feedrate.analysis.storage import PROVING
from feedrate.charts.theme import colour
from feedrate.pages import markup
from feedrate.pages.markup import Page, Placed, addressed
from feedrate.pages.selection import Selection
from feedrate.pages.template import render
from feedrate.pages.verdicts import Verdicts
from feedrate.questions.claims.charts import LOOKS
from feedrate.questions.compare.analysis import CAUTIONS, KINDS
from feedrate.questions.explore import run_files
from feedrate.questions.explore.run_files import FACTS, FORMAT, GIVEN, RAN, json_text, path_of
from feedrate.questions.machines.page import listing
from feedrate.questions.machines.store import section
from feedrate.schema.axes import AXES
from feedrate.schema.columns import PROTOCOL_VERSION, SCHEMA_VERSION
from feedrate.schema.metrics import CONFIRMED_OVER, REFUTED_UNDER, SAME
from feedrate.schema.window import COLD, READ_LEAST, WARM
from feedrate.share import findings as caps

PATH = "compare.md"
INDEX = "compare/index.json"
SETTINGS = "compare/settings.json"
"""The settings of every published run: read when a file is dropped, to find the run that has most of them."""
MOST_ROWS = 100_000
"""Of a dropped file; ``feedrate compare`` reads larger ones."""
MOST_TEXT = 200
"""Characters of a word that a file holds."""
_TONES = {
    "faster": ("confirmed", "B is faster"),
    "slower": ("refuted", "B is slower"),
    "no difference": ("no difference", f"the same within {100 * (SAME[1] - 1):g} %"),
    "inconclusive": ("inconclusive", "inconclusive"),
}
"""Verdict on B to the verdict on a claim whose colour and shape it has, and to its words."""


def page(everyone: Selection, verdicts: Verdicts, texts: Mapping[str, str], data: Path | None = None) -> Page:
    """Write the page and its index; without any run files can be dropped all the same.

    Args:
        everyone: runs that have pages.
        verdicts: on the claims.
        texts: the file of each run by its path.
        data: the compact data set of all runs, where these are more.
    """
    held = {path_of(view): json.loads(text) for view in everyone.every if (text := texts.get(path_of(view)))}
    published = [{**file["about"], "cells": addressed(path, texts[path])} for path, file in held.items()]
    settings = {file["about"]["run"]: run_files.settings(file) for file in held.values()}
    shared = _shared(settings)
    settings_text = json_text({"format": FORMAT, "settings": settings})
    index = json_text(
        {
            "format": FORMAT,
            "opening": _opening(published, shared),
            "published": published,
            "shared": shared,
            "settings": addressed(SETTINGS, settings_text),
            "tones": _tones(),
            "cautions": CAUTIONS,
            "kinds": {kind: RAN[kind] for kind in KINDS},
            "claims": _claims(verdicts),
            "rules": rules(),
        }
    )
    frame = Placed("compare", markup.scripted("compare", addressed(INDEX, index), ["explore"]))
    figures, files = {"compare": frame}, {INDEX: index, SETTINGS: settings_text}
    if data:
        machines, search, more = section(PATH, everyone, data)
        figures["hardware"], files = search, {**files, **more}
    else:
        machines = listing(PATH, everyone.every)
    body = render("compare/page.md", machines=machines, many=bool(data))
    return Page(PATH, "Compare", body, figures, files, hide=("navigation", "toc"))


def rules() -> dict[str, Any]:
    """Say how the scripts compare, and what they read of a file."""
    return {
        "axes": {axis.name: axis.default for axis in AXES},
        "given": GIVEN,
        "same_in_both": SAME_IN_BOTH,
        "same": SAME,
        "confirmed_over": CONFIRMED_OVER,
        "refuted_under": REFUTED_UNDER,
        "confidence": CONFIDENCE,
        "rounding": ROUNDING,
        "once": ONCE,
        "cold": COLD,
        "warm": WARM,
        "read_least": READ_LEAST,
        "proving": PROVING,
        "facts": [[name, path.split(".")] for name, path in FACTS],
        "versions": {"schema_version": SCHEMA_VERSION, "protocol_version": PROTOCOL_VERSION},
        "feedrate": __version__,
        "caps": {
            "bytes": caps.FILE_BYTES.most,
            "manifest": caps.MANIFEST_BYTES.most,
            "unpacked": caps.DECODED_BYTES.most,
            "rows": MOST_ROWS,
            "text": MOST_TEXT,
            "seconds": caps.SECONDS.most,
        },
    }


def _shared(settings: Mapping[str, Sequence[str]]) -> dict[str, dict[str, int]]:
    """Count the settings that two runs have both measured; pairs without any are left out."""
    runs_of: dict[str, list[str]] = {}
    for run, names in settings.items():
        for name in names:
            runs_of.setdefault(name, []).append(run)
    counts: dict[str, Counter[str]] = {}
    for runs in runs_of.values():
        for run, other in permutations(runs, 2):
            counts.setdefault(run, Counter())[other] += 1
    return {run: dict(others) for run, others in counts.items()}


def _opening(published: Sequence[Mapping[str, Any]], shared: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """Pick the pair that the page opens with: of two machines where there are such, then of most shared settings."""
    machines = {run["run"]: (run["name"], run["device"]) for run in published}
    order = {run: at for at, run in enumerate(machines)}
    pairs = [(a, b) for a, others in shared.items() for b in others if order[a] > order[b]]
    rank = {pair: (machines[pair[0]] != machines[pair[1]], shared[pair[0]][pair[1]]) for pair in pairs}
    a, b = max(pairs, key=rank.__getitem__, default=(next(iter(machines), ""), ""))
    return {"a": a, "b": b}


def _tones() -> dict[str, dict[str, str]]:
    """How a mark of each verdict looks; all settings together have a mark of their own."""
    tones = {
        name: {"colour": LOOKS[claim][0], "shape": LOOKS[claim][1], "says": says}
        for name, (claim, says) in _TONES.items()
    }
    tones[ONCE] = {"colour": colour("muted"), "shape": "triangle-down", "says": ONCE}
    return tones | {"overall": {"colour": colour("ink"), "shape": "cross", "says": "all settings"}}


def _claims(verdicts: Verdicts) -> dict[str, Any]:
    """What each claim says, and its verdicts by run: those of all runs of its machine that are pooled."""
    by_run: dict[str, dict[str, str]] = {}
    for name, results in verdicts.results.items():
        for result in results:
            for view in result.views if result.tested else ():
                by_run.setdefault(view.manifest.run_id, {})[name] = result.verdict
    tested = {name for by_claim in by_run.values() for name in by_claim}
    says = {name: claim.says for name, (_, claim) in verdicts.claims.items() if name in tested}
    return {"says": says, "verdicts": by_run}
