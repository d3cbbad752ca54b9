"""The page Compare: two runs beside each other, published ones or files that a reader drops, which stay there.

The page is drawn by ``site/assets/compare.js``; a Worker reads the files and compares them by the rules of
``harness.compare_rules``. Everything that Python decides goes into one index: caps, columns, margins, published runs
and the verdicts of their machines, so that page and package cannot differ.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from harness import __version__, compare_rules, migration
from harness.analysis.compared import KINDS
from harness.analysis.compared_stages import STAGES
from harness.axes import AXES
from harness.charts._theme import colour
from harness.charts.claims import TONES as VERDICT_TONES
from harness.incoming import caps
from harness.machine import Software
from harness.margins import SAME
from harness.pages import described, markup
from harness.pages.explore_shards import RAN
from harness.pages.featured import Cast
from harness.pages.gathered import Shown
from harness.pages.home import leading
from harness.pages.markup import Page
from harness.pages.placed import Placed
from harness.pages.verdicts import Verdicts
from harness.records import TRIALS

PATH = "compare.md"
INDEX = "compare/index.json"
FORMAT = 1
"""Of the index: a script of another build refuses what it does not know."""
SCRIPTS = (
    "compare_address",
    "compare_forest",
    "compare_grid",
    "compare_reader",
    "compare_sides",
    "compare_specs",
    "compare_views",
    "compare_words",
    "explore_charts",
    "explore_data",
    "explore_dom",
    "explore_state",
    "explore_table",
    "explore_words",
)
"""Modules that ``compare.js`` needs, each ``NAME.js``: asked for at once, as each names the next."""
CAPS = {
    "bytes": caps.FILE_BYTES,
    "footer": caps.FOOTER_BYTES,
    "manifest": caps.MANIFEST_BYTES,
    "columns": caps.COLUMNS,
    "groups": caps.ROW_GROUPS,
    "rows": caps.ROWS,
    "pages": caps.PAGES,
    "page": caps.PAGE_BYTES,
    "unpacked": caps.DECODED_BYTES,
    "text": caps.TEXT_CHARACTERS,
    "seconds": caps.SECONDS,
}
"""What the scripts call each cap of a file that comes from others."""
SHOWN = {
    "values": 6_000_000,
    "held": 70_000_000,
    "cells": 20_000,
    "estimates": caps.ROWS.most,
    "shown": 200,
    "label": 300,
    "listed": 200,
    "reasons": 50,
}
"""Caps of the page alone. What its memory has room for: values in a footer, numbers of the runs that are compared (two
of a million trials), cells and cells × blocks of one. What is written out: characters, cells and reasons."""
REQUIRED = ("run_id", "cell_id", "device", "block", "outcome", "samples_per_s", "protocol_version")
"""Columns that files of every version have."""
FACTS = (
    ("device", "device", ""),
    ("began", "started_at", ""),
    ("processor", "machine.cpu_model", ""),
    ("hardware threads", "machine.cores_logical", ""),
    ("cores", "machine.cores_physical", ""),
    ("cores by quota", "machine.cpu_quota_cores", ""),
    ("memory", "machine.memory_bytes", "bytes"),
    ("memory limit", "machine.memory_limit_bytes", "bytes"),
    ("GPU", "machine.gpu_name", ""),
    ("GPUs", "machine.gpu_count", ""),
    ("GPU memory", "machine.gpu_memory_bytes", "bytes"),
    ("virtual machine", "machine.virtualised", ""),
    ("architecture", "machine.architecture", ""),
    ("system", "machine.distribution", ""),
    ("kernel", "machine.kernel", ""),
    ("file system of the data", "machine.storage.file_system", ""),
    ("disk of the data", "machine.storage.device_class", ""),
    ("I/O scheduler of the disk", "machine.storage.scheduler", ""),
    ("read-ahead of the disk", "machine.storage.read_ahead_bytes", "bytes"),
    *((name, f"software.{name}", "") for name in Software.model_fields),
    ("feedrate", "feedrate_version", ""),
    ("protocol", "protocol_version", ""),
    ("least window, seconds", "protocol.window_s", ""),
    ("blocks", "blocks", ""),
    ("profile", "profile", ""),
)
"""What of a manifest is held against the other's: name for people, path, unit. Whatever it says of its ``runtime`` is,
too."""
NAMED = ("storage_format", "batch_size", "num_workers")
"""Knobs that are said of a best setting even where they are at their default."""
_GLYPHS = {"faster": "●", "slower": "◆", "no difference": "■", "inconclusive": "▲"}
_SHAPES = {"faster": "circle", "slower": "diamond", "no difference": "square", "inconclusive": "triangle-up"}
_TONES = {"faster": "confirmed", "slower": "refuted", "no difference": "no difference", "inconclusive": "inconclusive"}
_SAYS = {
    "faster": "B is faster",
    "slower": "B is slower",
    "no difference": f"the same within {100 * (SAME[1] - 1):g} %",
    "inconclusive": "inconclusive",
}
_LEAD = (
    "How does one machine compare with another, setting by setting, and why? Choose two published runs, or drop your "
    "own trials.parquet: it is read by this page, in your browser, and sent nowhere."
)
_HOW = (
    "Cells are compared where both runs have measured the same one: same settings, device, protocol, version of the "
    "workload and data. A cell’s interval is Welch’s on log throughput: what further blocks of these two runs would "
    "give. That of a geometric mean over cells is Student’s t over the cells’ log ratios. All are single ones of "
    "95\u00a0%. Files are data to this page: they are capped in size, rows and time, read apart from it, and "
    "their words are shown as text. Whether their numbers agree with each other is not looked at here: "
    "make validate FILES=… does."
)
_UNREAD = "To read files in your browser this page needs JavaScript. The same comparison is a command:"
_COMMANDS = (
    ("make compare A=RUN B=RUN", "the same in the terminal; A and B are machines, runs, folders or files"),
    ("make sweep", "measure this machine: the file to drop is results/MACHINE/RUN/trials.parquet"),
)


def page(everyone: Cast, told: Verdicts) -> Page:
    """Write the page and its index.

    Args:
        everyone: all runs; none is fine, files can be dropped all the same.
        told: what they say of claims.
    """
    index = json.dumps(_index(everyone, told), sort_keys=True, separators=(",", ":")) + "\n"
    body = [
        "# Compare\n",
        markup.paragraph(_LEAD, "fr-lead"),
        markup.slot("compare"),
        "\n",
        _plain(),
        markup.paragraph(_HOW, "fr-note"),
    ]
    frame = Placed("compare", _frame(markup.addressed(INDEX, index)))
    return Page(PATH, "Compare", "\n".join(body), {"compare": frame}, {INDEX: index}, hide=("navigation", "toc"))


def _index(everyone: Cast, told: Verdicts) -> dict[str, Any]:
    published = list(_published(everyone))
    return {
        "format": FORMAT,
        "opening": _opening(everyone, published),
        "published": published,
        "tones": _tones(),
        "words": {"kinds": _kinds(), "stages": {stage.name: stage.doc for stage in STAGES}},
        "claims": _claims(told),
        "reader": reader(),
    }


def reader() -> dict[str, Any]:
    """Everything that the Worker is told: how much it may read, which columns, and by which rules it compares."""
    rules = compare_rules.rules()
    axes = [axis.name for axis in AXES]
    return {
        "caps": {name: cap.most for name, cap in CAPS.items()} | SHOWN,
        "reads": migration.READ,
        "feedrate": __version__,
        "dtypes": {column.name: column.dtype for column in TRIALS},
        "required": REQUIRED,
        "first": [name for name in rules["columns"]["first"] if name not in axes],
        "more": rules["columns"]["more"],
        "axes": axes,
        "defaults": {axis.name: axis.default for axis in AXES},
        "facts": [{"label": label, "path": path.split("."), "unit": unit} for label, path, unit in FACTS],
        "kinds": _kinds(),
        "named": NAMED,
        "rules": rules,
    }


def _kinds() -> dict[str, str]:
    return {kind: RAN[kind] for kind in KINDS}


def _published(everyone: Cast) -> Iterator[dict[str, Any]]:
    """Runs whose files are on the site and that were not withdrawn, newest first."""
    for shown in everyone.every:
        beside = shown.beside
        if beside.withdrawn or not (shown.run.folder / "trials.parquet").is_file():
            continue
        run = shown.manifest
        yield {
            "key": f"run:{run.run_id}",
            "run": run.run_id,
            "name": shown.name,
            "device": run.device,
            "day": described.day(run.started_at),
            "label": beside.label,
            "tier": beside.tier,
            "suites": sorted(run.suites),
            "file": f"runs/{shown.slug}/trials.parquet",
            "page": shown.page.replace(".md", ".html"),
        }


def _opening(everyone: Cast, published: list[dict[str, Any]]) -> str:
    """The run that stands in A's place at first: the newest that speaks for its machine."""
    there = {run["run"] for run in published}
    runs: list[Shown] = [*leading(everyone.featured), *everyone.every]
    return next((f"run:{shown.manifest.run_id}" for shown in runs if shown.manifest.run_id in there), "")


def _tones() -> dict[str, dict[str, str]]:
    """How a mark of each verdict looks; all cells together have a mark of their own."""
    tones = {
        name: {"colour": VERDICT_TONES[_TONES[name]], "shape": _SHAPES[name], "glyph": _GLYPHS[name], "says": says}
        for name, says in _SAYS.items()
    }
    return tones | {"overall": {"colour": colour("ink"), "shape": "cross", "glyph": "✚", "says": "all cells"}}


def _claims(told: Verdicts) -> dict[str, Any]:
    """What each claim says, and its verdicts by the run that was judged: the newest of a machine that tested it."""
    verdicts: dict[str, dict[str, str]] = {}
    for name, parts in told.told.items():
        for part in parts:
            if part.tested:
                verdicts.setdefault(part.shown.manifest.run_id, {})[name] = part.verdict
    tested = {name for found in verdicts.values() for name in found}
    says: Mapping[str, str] = {name: claim.says for name, (_, claim) in told.asked.items() if name in tested}
    return {"says": says, "verdicts": verdicts}


def _frame(index: str) -> str:
    waiting = "Starting … Opened as a file, without a server, this page cannot read others: make serve shows it."
    return markup.scripted("compare", index, SCRIPTS, waiting, ["explore"])


def _plain() -> str:
    """What there is without scripts, and beside them."""
    return f'<div class="fr-compare-plain">\n{markup.paragraph(_UNREAD)}</div>\n{markup.commands(_COMMANDS)}'
