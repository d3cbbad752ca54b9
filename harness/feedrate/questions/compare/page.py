"""The page Compare: two runs beside each other, published ones or files that a reader drops, which stay there.

The page is drawn by ``site/scripts/compare/page.js``; a Worker reads the files and compares them. Everything that
Python decides goes into one index: caps, columns, margins, published runs and the verdicts of their machines, so that
the page cannot differ from the package.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import permutations
from typing import Any

from feedrate import __version__
from feedrate.analysis import ceilings
from feedrate.analysis.estimate import CONFIDENCE
from feedrate.analysis.machines import CELL, ROUNDING, SAME_IN_BOTH
from feedrate.analysis.storage import PROVING
from feedrate.analysis.summary import MEMORY_STEP
from feedrate.charts.theme import colour
from feedrate.machine.identity import Software
from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page, Placed
from feedrate.pages.selection import Selection
from feedrate.pages.template import render
from feedrate.pages.verdicts import Verdicts
from feedrate.plan import suite
from feedrate.questions.claims.charts import MARKS
from feedrate.questions.claims.charts import TONES as CLAIM_TONES
from feedrate.questions.compare.analysis import KINDS, STAGES, encoded_formats
from feedrate.questions.explore.page import RAN
from feedrate.schema import plugins
from feedrate.schema.axes import AXES, CONDITIONS
from feedrate.schema.columns import DEVICE_SPANS, PHASES, PROTOCOL_VERSION, SCHEMA_VERSION, TRIALS
from feedrate.schema.metrics import CONFIRMED_OVER, REFUTED_UNDER, SAME
from feedrate.schema.window import COLD, READ_LEAST, WARM
from feedrate.share import findings as caps

_FIRST = ("run_id", "block", "outcome", "samples_per_s", *PROVING)
_MORE = ("suite", "role", "steps", "wall_ns", "host_drain_ns", "pss_peak_bytes")


def unranked_suites() -> list[str]:
    """Name the suites whose cells are no settings to choose from: there for claims, or for feedrate itself."""
    return [name for name in plugins.names("feedrate.suites") if not suite.for_machines(name)]


def browser_rules() -> dict[str, Any]:
    """Everything that ``site/scripts/compare/comparison.js`` is told, fit for JSON."""
    shares = {phase: f"host_{phase}_ns" for phase in PHASES}
    shares |= {f"device_{span}": f"device_{span}_ns" for span in DEVICE_SPANS}
    first = dict.fromkeys((*_FIRST, *CELL, *SAME_IN_BOTH, *(axis.name for axis in AXES)))
    stamps = [stage.column for stage in STAGES if stage.column]
    return {
        "axes": [{"name": axis.name, "default": axis.default} for axis in AXES],
        "conditions": list(CONDITIONS),
        "apart": unranked_suites(),
        "kinds": list(KINDS),
        "ceilings": list(ceilings.STAGES),
        "stages": [asdict(stage) for stage in STAGES],
        "shares": shares,
        "encoded": list(encoded_formats()),
        "same_in_both": list(SAME_IN_BOTH),
        "same": list(SAME),
        "confirmed_over": CONFIRMED_OVER,
        "refuted_under": REFUTED_UNDER,
        "confidence": CONFIDENCE,
        "rounding": ROUNDING,
        "balanced_within": ceilings.BALANCED_WITHIN,
        "most": ceilings.MOST,
        "launching": ceilings.LAUNCHING,
        "waits": ceilings.WAITS,
        "memory_step": MEMORY_STEP,
        "cold": COLD,
        "warm": WARM,
        "read_least": READ_LEAST,
        "columns": {"first": list(first), "more": list(dict.fromkeys((*_MORE, *shares.values(), *stamps)))},
    }


PATH = "compare.md"
INDEX = "compare/index.json"
FORMAT = 1
"""Of the index: a script of another build refuses what it does not know."""
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
_TONES = {
    "faster": ("confirmed", "B is faster"),
    "slower": ("refuted", "B is slower"),
    "no difference": ("no difference", f"the same within {100 * (SAME[1] - 1):g} %"),
    "inconclusive": ("inconclusive", "inconclusive"),
}
"""Verdict on B to the verdict on a claim whose colour and shape it has, and to its words."""


def page(everyone: Selection, verdicts: Verdicts) -> Page:
    """Write the page and its index; without any run files can be dropped all the same."""
    published = list(_published(everyone))
    shared = _shared(everyone, [run["run"] for run in published])
    given = {
        "format": FORMAT,
        "opening": _opening(published, shared),
        "published": published,
        "shared": shared,
        "tones": _tones(),
        "words": {"kinds": {kind: RAN[kind] for kind in KINDS}, "stages": {stage.name: stage.doc for stage in STAGES}},
        "claims": _claims(verdicts),
        "reader": reader(),
    }
    index = json.dumps(given, sort_keys=True, separators=(",", ":")) + "\n"
    waiting = "Starting … Opened as a file, without a server, this page cannot read others: make serve shows it."
    frame = Placed("compare", markup.scripted("compare", markup.addressed(INDEX, index), waiting, ["explore"]))
    body = render("compare/page.md")
    return Page(PATH, "Compare", body, {"compare": frame}, {INDEX: index}, hide=("navigation", "toc"))


def _shared(everyone: Selection, published: Sequence[str]) -> dict[str, dict[str, int]]:
    """Count the settings that two published runs have both measured; pairs without any are left out."""
    cells = everyone.cells[everyone.cells["run_id"].isin(published)]
    of_script = cells["script"].astype("str") + " " + cells["mode"].astype("str")  # whatever its settings
    named = cells.assign(what=cells["cell_id"].mask(cells["script"].notna(), of_script))
    named = named.drop_duplicates(["run_id", "device", "what"])
    counts: dict[str, Counter[str]] = {run: Counter() for run in published}
    for runs in named.groupby(["device", "what"])["run_id"].agg(list):
        for run, other in permutations(runs, 2):
            counts[run][other] += 1
    return {run: dict(others) for run, others in counts.items() if others}


def _opening(published: Sequence[Mapping[str, Any]], shared: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """Pick the pair that the page opens with: of two machines where there are such, then of most shared settings."""
    machines = {run["run"]: (run["name"], run["device"]) for run in published}
    order = {run: at for at, run in enumerate(machines)}
    pairs = [(a, b) for a, others in shared.items() for b in others if order[a] > order[b]]
    rank = {pair: (machines[pair[0]] != machines[pair[1]], shared[pair[0]][pair[1]]) for pair in pairs}
    a, b = max(pairs, key=rank.__getitem__, default=(next(iter(machines), ""), ""))
    keys = {run["run"]: run["key"] for run in published}
    return {"a": keys.get(a, ""), "b": keys.get(b, "")}


def browser_caps() -> dict[str, int]:
    """How much a script may read of a file, and show of it."""
    return {name: cap.most for name, cap in CAPS.items()} | SHOWN


def reader() -> dict[str, Any]:
    """Everything that the Worker is told: how much it may read, which columns, and by which rules it compares."""
    rules = browser_rules()
    axes = [axis.name for axis in AXES]
    return {
        "caps": browser_caps(),
        "versions": {"schema_version": SCHEMA_VERSION, "protocol_version": PROTOCOL_VERSION},
        "feedrate": __version__,
        "dtypes": {column.name: column.dtype for column in TRIALS},
        "required": REQUIRED,
        "first": [name for name in rules["columns"]["first"] if name not in axes],
        "more": rules["columns"]["more"],
        "axes": axes,
        "defaults": {axis.name: axis.default for axis in AXES},
        "facts": [{"label": label, "path": path.split("."), "unit": unit} for label, path, unit in FACTS],
        "kinds": {kind: RAN[kind] for kind in KINDS},
        "named": NAMED,
        "rules": rules,
    }


def _published(everyone: Selection) -> Iterator[dict[str, Any]]:
    """Runs whose files are on the site and that were not withdrawn, newest first."""
    for view in everyone.every:
        beside = view.beside
        if beside.withdrawn or not (view.run.folder / "trials.parquet").is_file():
            continue
        run = view.manifest
        yield {
            "key": f"run:{run.run_id}",
            "run": run.run_id,
            "name": view.name,
            "device": run.device,
            "day": descriptions.day(run.started_at),
            "label": beside.label or run.script,
            "tier": beside.tier,
            "suites": sorted(run.suites),
            "file": f"runs/{view.slug}/trials.parquet",
            "page": view.page.replace(".md", ".html"),
        }


def _tones() -> dict[str, dict[str, str]]:
    """How a mark of each verdict looks; all cells together have a mark of their own."""
    tones = {
        name: {"colour": CLAIM_TONES[claim], "shape": MARKS[claim], "says": says}
        for name, (claim, says) in _TONES.items()
    }
    return tones | {"overall": {"colour": colour("ink"), "shape": "cross", "says": "all cells"}}


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
