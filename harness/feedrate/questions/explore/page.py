"""The page Explore: every number of every cell, to be picked, filtered, drawn, read and taken away.

The page is drawn by ``site/scripts/explore/page.js`` from the files that this writes. Without scripts there is
a table of the run that it opens with.

Estimates → the files that the page Explore reads: one index, and shards of cells, in columns, with names said once.

A shard holds whole machines where they are small and part of one where it is large, so that neither ten thousand
machines nor twenty thousand cells make many requests or a large one. The page fetches the index and the shards of the
machines that it shows. The same records give the same bytes; a file's address carries a hash of its content, so that an
index never meets shards of another build.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.estimates import AXIS_NAMES, rows_of
from feedrate.analysis.measures import MEASURES, Measure
from feedrate.charts.embed import figure_csv
from feedrate.charts.figure import EMULATED, Figure, plain
from feedrate.charts.theme import PHASE_COLOURS, SHAPES, colour
from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page, Placed, addressed, slug
from feedrate.pages.runs import RunView
from feedrate.pages.selection import Selection
from feedrate.questions.home.page import leading
from feedrate.questions.loader.charts.phases import LABELS
from feedrate.schema import words
from feedrate.schema.axes import AXES
from feedrate.schema.columns import PHASES

FORMAT = 1
"""Of the files: a script of another build refuses what it does not know."""
LIMIT = 1_000_000
"""Bytes of a shard at most."""
ROWS = 1_500
"""Cells after which a shard ends where its machine does; twice as many end it anywhere."""
INDEX = "explore/index.json"
RAN = {
    "train": "real training",
    EMULATED: "emulated step, no model",
    "load": "loading alone",
    "compute": "computing alone",
    "copy": "copying alone",
}
"""What ran, which is never drawn together: name in links to words."""
GIVEN = ("machine", "run", "tier", "device", "suite", "protocol_version", "workload_version", "ran")
"""What tells cells apart beside their axes."""
SETTINGS = ("metric", "beside", "x", "colour", "facet", "y_scale", "sort")
"""Names that links use for what is no axis; no axis may be called so (a test compares)."""
_DIMENSIONS = (*GIVEN, *AXIS_NAMES)
_SERIES = 7
_SEGMENTS = [name for phase in PHASES for name in ((phase, EMULATED) if phase == "forward" else (phase,))]
"""Of a stacked bar, in their order."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of cells."""

    path: str
    text: str
    machines: tuple[str, ...]

    @property
    def address(self) -> str:
        """Its path with a hash of its content."""
        return addressed(self.path, self.text)


def shards(cells: pd.DataFrame, runs: Mapping[str, Mapping[str, Any]]) -> list[Shard]:
    """Write all cells in files of at most ``LIMIT`` bytes."""
    tiers = {name: about.get("tier") for name, about in runs.items()}
    frame = cells.rename(columns={"machine_id": "machine", "run_id": "run"})
    frame = frame.assign(ran=_ran(cells), tier=cells["run_id"].map(tiers))
    found: list[Shard] = []
    parts: dict[str, int] = {}
    for start, stop in _cuts(frame["machine"]):
        for part, text in _texts(frame.iloc[start:stop], runs):
            machines = tuple(str(name) for name in part["machine"].unique())
            number = parts[machines[0]] = parts.get(machines[0], 0) + 1
            found.append(Shard(f"explore/cells-{slug(machines[0])}-{number}.json", text, machines))
    return found


def _ran(cells: pd.DataFrame) -> pd.Series:
    sleeps = cells["mode"].eq("train") & cells["step"].eq("emulated").fillna(False)
    return cells["mode"].astype(object).where(~sleeps.astype(bool), EMULATED)


def _cuts(machine: pd.Series) -> Iterator[tuple[int, int]]:
    """Cut rows at the borders of machines, or within one that is large."""
    names = machine.to_numpy(dtype=object)
    borders = [at for at in range(1, len(names)) if names[at] != names[at - 1]]
    start = before = 0
    for border in [*borders, len(names)]:
        if border - start > 2 * ROWS and before > start:
            yield start, before
            start = before
        while border - start > 2 * ROWS:
            yield start, start + 2 * ROWS
            start += 2 * ROWS
        if border - start >= ROWS:
            yield start, border
            start = border
        before = border
    if start < len(names):
        yield start, len(names)


def _texts(part: pd.DataFrame, runs: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[pd.DataFrame, str]]:
    """Write a part; in halves where it is too large."""
    text = _text(part, runs)
    if len(text.encode()) <= LIMIT or len(part) == 1:
        yield part, text
        return
    for half in (part.iloc[: len(part) // 2], part.iloc[len(part) // 2 :]):
        yield from _texts(half, runs)


def _text(part: pd.DataFrame, runs: Mapping[str, Mapping[str, Any]]) -> str:
    dimensions = {name: _json(_coded(part[name])) for name in _DIMENSIONS if part[name].notna().any()}
    measures = {
        measure.name: _shards_measured(part, measure.name, measure.logs)
        for measure in MEASURES
        if part[f"{measure.name}_n"].gt(0).any()
    }
    head = {
        "format": FORMAT,
        "count": len(part),
        "runs": {str(name): runs[name] for name in part["run"].unique()},
        "cell": part["cell_id"].astype(str).tolist(),
    }
    columns = _object({"dims": _object(dimensions), "measures": _object(measures)})
    return f"{_json(head)[:-1]},{columns[1:]}\n"


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _object(texts: Mapping[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in texts.items()) + "}"


def _coded(values: pd.Series) -> dict[str, Any]:
    """Write a column as its different values and, for each row, the place of its value; -1 is not applicable."""
    codes, names = pd.factorize(values)
    one = len(set(codes.tolist())) == 1
    return {"values": [plain(name) for name in names], "codes": int(codes[0]) if one else codes.tolist()}


def _shards_measured(part: pd.DataFrame, name: str, logs: bool) -> str:
    """Write a measure: means, the reach of their intervals, and n where it differs from that of throughput.

    The reach is a factor where the mean is geometric and a difference where it is arithmetic: two numbers say three.
    """
    mean, high = part[name].to_numpy(), part[f"{name}_hi"].to_numpy()
    low = part[f"{name}_lo"].to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        reach = high / mean if logs else np.maximum(mean - low, high - mean)
    texts = {"mean": _numbers(mean), "reach": _numbers(reach)}
    if not part[f"{name}_n"].equals(part["n"].rename(f"{name}_n")):
        texts["n"] = _json(part[f"{name}_n"].tolist())
    elif name == "samples_per_s":
        texts["n"] = _json(part["n"].tolist())
    return _object(texts)


def _numbers(values: Iterable[float]) -> str:
    """Write numbers to five significant digits; what is not known is null."""
    return (
        "[" + ",".join("null" if math.isnan(value) else f"{value:.5g}" for value in np.asarray(values).tolist()) + "]"
    )


def shard_index(
    cells: pd.DataFrame, written: Sequence[Shard], names: Mapping[str, str], opening: Mapping[str, str]
) -> str:
    """Write what the page must know before it has any cell."""
    held = {
        "format": FORMAT,
        "machines": _machines(cells, written, names),
        "shards": [shard.address for shard in written],
        "dims": [*({"name": name, "kind": "given"} for name in GIVEN), *_axes(cells)],
        "measures": [_told(measure) for measure in MEASURES if cells[f"{measure.name}_n"].gt(0).any()],
        "ran": [{"name": name, "label": label} for name, label in RAN.items()],
        "phases": [_phase(name) for name in _SEGMENTS],
        "edge": colour("emulated-edge"),
        "ordered": [colour(f"series-{place}") for place in range(_SERIES)],
        "named": [colour(f"name-{place}") for place in range(_SERIES)],
        "shapes": SHAPES,
        "opening": dict(opening),
    }
    return _json(held) + "\n"


def _machines(cells: pd.DataFrame, written: Sequence[Shard], names: Mapping[str, str]) -> dict[str, Any]:
    """Machines in columns, each with the places of its shards."""
    groups = cells.groupby("machine_id", sort=False)
    counts = groups.size()
    ids = [str(name) for name in counts.index]
    places: dict[str, list[int]] = {name: [] for name in ids}
    for place, shard in enumerate(written):
        for name in shard.machines:
            places[name].append(place)
    return {
        "id": ids,
        "name": _coded(pd.Series([names[name] for name in ids], dtype=object)),
        "workloads": _coded(_together(groups["workload"])),
        "cells": [int(count) for count in counts],
        "shards": [places[name] for name in ids],
    }


def _together(groups: Any) -> pd.Series:
    """The different values of each group as one text."""
    return pd.Series([", ".join(sorted(map(str, held))) for held in groups.unique()], dtype=object)


def _told(measure: Measure) -> dict[str, Any]:
    most = {"most": measure.most} if math.isfinite(measure.most) else {}
    return {"name": measure.name, "label": measure.label, "unit": measure.unit, "logs": measure.logs, **most}


def _phase(name: str) -> dict[str, str]:
    """A segment of a stacked bar; an emulated step is the forward phase of the records."""
    recorded = "forward" if name == EMULATED else name
    return {"name": name, "label": LABELS[name], "colour": PHASE_COLOURS[name], "measure": f"{recorded}_us"}


def _axes(cells: pd.DataFrame) -> list[dict[str, Any]]:
    """Axes that apply anywhere, with what holds them still."""
    return [
        {"name": axis.name, "kind": "axis", "default": axis.default} for axis in AXES if cells[axis.name].notna().any()
    ]


PATH = "explore.md"
_NAME = "explore"
_CSV = "data/explore-opening.csv"
_ORDER = ("mode", "step", "workload", "patch_size", "storage_format", "num_workers", "batch_size")
"""Axes by which the cells of that table are in order."""
_MOST = 50
"""Cells of the table for readers without scripts."""
_LEAD = (
    "Every cell of every run: choose what is drawn, against what, and which cells stay. The address of the page holds "
    "the whole choice, runs included, so that a link shows the same marks when there are more results."
)
_HOW = (
    "A mark is a cell: the mean over blocks with its 95\u00a0% Student-t interval; n counts blocks. Rates, durations, "
    "energy and memory are geometric means; phases, power and percentages are arithmetic ones, so that phases add up. "
    "Intervals say what another block would give in the same hours, nothing about other runs or machines. They are "
    "single ones, not corrected for how many are looked at, and the best of many marks is a little too good. Numbers "
    "here are rounded to five significant digits; the raw files of each run are on its page."
)
_NOTHING = '<div class="fr-nothing"><p>There is nothing to explore yet. Type make sweep, then make site.</p></div>\n'


def page(everyone: Selection) -> Page:
    """Write the page and its data.

    Args:
        everyone: all runs; none is fine.
    """
    lead = markup.paragraph(_LEAD, "fr-lead")
    cells = _measured(everyone)
    if not len(cells):
        return Page(PATH, "Explore", f"# Explore\n\n{lead}\n{_NOTHING}", hide=("navigation", "toc"))
    first = _opening(everyone, cells)
    run_id = first.manifest.run_id
    written = shards(cells, {shown.manifest.run_id: _about(shown) for shown in everyone.every})
    names = {name: descriptions.machine_name(runs[0].run) for name, runs in everyone.machines.items()}
    index = shard_index(cells, written, names, {"machine": first.machine_id, "run": run_id})
    own = cells[cells["run_id"].eq(run_id)]
    files: dict[str, str | Path] = {**{shard.path: shard.text for shard in written}, INDEX: index, _CSV: _csv(own)}
    body = ["# Explore\n", lead, markup.slot(_NAME), "\n", _plain(first, own), markup.paragraph(_HOW, "fr-note")]
    frame = Placed(_NAME, _frame(markup.addressed(INDEX, index)))
    return Page(PATH, "Explore", "\n".join(body), {_NAME: frame}, files, hide=("navigation", "toc"))


def _measured(everyone: Selection) -> pd.DataFrame:
    """The cells with at least one block, those of a machine together, the machine that was measured last first."""
    order = {name: place for place, name in enumerate(everyone.machines)}
    cells = everyone.cells
    cells = cells[cells["n"].gt(0)]
    return cells.iloc[cells["machine_id"].map(order).to_numpy().argsort(kind="stable")].reset_index(drop=True)


def _opening(everyone: Selection, cells: pd.DataFrame) -> RunView:
    """The newest run that speaks for its machine; where none does, the newest that has a cell."""
    have = set(cells["run_id"])
    return next(shown for shown in [*leading(everyone.featured), *everyone.every] if shown.manifest.run_id in have)


def _about(shown: RunView) -> dict[str, Any]:
    run = shown.manifest
    return {
        "machine": shown.machine_id,
        "tier": shown.beside.tier,
        "started": run.started_at,
        "day": descriptions.day(run.started_at),
        "suites": sorted(run.suites),
        "blocks": run.blocks,
        "page": shown.page.replace(".md", ".html"),
    }


def _frame(index: str) -> str:
    waiting = (
        "Reading the numbers … Opened as a file, without a server, this page cannot read them: make serve shows it."
    )
    return markup.scripted("explore", index, waiting)


def _plain(shown: RunView, cells: pd.DataFrame) -> str:
    """The cells of the opening run as a table; the script takes it away once it can show more."""
    rows = [
        (
            escape(RAN[EMULATED if row["step"] == EMULATED else str(row["mode"])]),
            escape(descriptions.setting({name: row[name] for name in AXIS_NAMES if name not in ("mode", "step")})),
            words.number(float(row["samples_per_s"])),
            descriptions.spread(float(row["samples_per_s_lo"]), float(row["samples_per_s_hi"])),
            str(row["n"]),
        )
        for row in rows_of(cells.sort_values(list(_ORDER), kind="stable").head(_MOST))
    ]
    some = f"the first {_MOST} of {len(cells):,} cells" if len(cells) > _MOST else words.plural(len(cells), "cell")
    name = escape(shown.name)
    run = markup.link(PATH, shown.page, f"run {shown.manifest.run_id}")
    link = markup.download(PATH, _CSV, f"All measures of all {len(cells):,} cells as CSV")
    columns = ("What ran", "Setting", "Samples/s", "95 % interval", "n")
    return (
        '<div class="fr-explore-plain" id="fr-explore-plain">\n'
        f'<p class="fr-origin">{name}, {run}: {some}. Axes at their default are not named.</p>\n'
        f"{markup.table('Cells of one run', columns, rows, ('Samples/s', 'n'), stack=True)}"
        f'<p class="fr-note">{link}. To choose other runs, measures and pictures, this page needs JavaScript.</p>\n'
        "</div>\n"
    )


def _csv(cells: pd.DataFrame) -> str:
    axes = [name for name in AXIS_NAMES if cells[name].notna().any()]
    measures = [measure.name for measure in MEASURES if cells[f"{measure.name}_n"].gt(0).any()]
    ends = [f"{name}{end}" for name in measures for end in ("", "_lo", "_hi", "_n")]
    names = ["machine_id", "run_id", "cell_id", "suite", "device", *axes, *ends, "failed"]
    rows: list[Mapping[str, Any]] = [{name: plain(row[name]) for name in names} for row in rows_of(cells[names])]
    return figure_csv(Figure("Explore", "", rows=tuple(rows)))
