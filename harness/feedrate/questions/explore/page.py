"""The page Explore: every number of every cell, to be picked, filtered, drawn, read and taken away.

``site/scripts/explore/page.js`` draws it from files that are written here: one index, and shards of cells in columns,
in which every name stands once.

A shard holds whole machines where they are small and part of one where it is large, so that neither ten thousand
machines nor twenty thousand cells make many requests or a large one. The page fetches the index and the shards of the
machines that it shows. The same records give the same bytes; a file's address carries a hash of its content, so that an
index never meets shards of another build.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.estimates import AXIS_NAMES
from feedrate.analysis.measures import MEASURES, Measure
from feedrate.analysis.summary import EMULATED
from feedrate.charts.figure import plain
from feedrate.charts.theme import PHASE_COLOURS, SHAPES, colour
from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page, Placed, addressed, slug
from feedrate.pages.runs import RunView
from feedrate.pages.selection import Selection
from feedrate.pages.template import render
from feedrate.questions.home.page import leading
from feedrate.questions.loader.phase_charts import LABELS
from feedrate.questions.runs.facts import suites
from feedrate.schema.axes import AXES, EMULATED_STEPS
from feedrate.schema.columns import PHASES

PATH = "explore.md"
INDEX = "explore/index.json"
FORMAT = 1
"""Of the files: a script of another build refuses what it does not know."""
LIMIT = 1_000_000
"""Bytes of a shard at most."""
ROWS = 1_500
"""Cells after which a shard ends where a machine does."""
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
_SERIES = 7
_SEGMENTS = [name for phase in PHASES for name in ((phase, EMULATED) if phase == "forward" else (phase,))]
"""Of a stacked bar, in their order."""


def page(everyone: Selection) -> Page:
    """Write the page and its data."""
    order = {name: place for place, name in enumerate(everyone.machines)}
    cells = everyone.cells
    cells = cells[cells["n"].gt(0)]
    # Those of a machine together, the machine that was measured last first.
    cells = cells.iloc[cells["machine_id"].map(order).to_numpy().argsort(kind="stable")].reset_index(drop=True)
    if not len(cells):
        return Page(PATH, "Explore", render("explore/page.md", opening=None), hide=("navigation", "toc"))
    # The newest run that speaks for its machine; where none does, the newest that has a cell.
    have = set(cells["run_id"])
    opening = next(run for run in [*leading(everyone.featured), *everyone.every] if run.manifest.run_id in have)
    run_id = opening.manifest.run_id
    written = shards(cells, {view.manifest.run_id: _about(view) for view in everyone.every})
    names = {name: descriptions.name_of(runs[0].manifest.machine) for name, runs in everyone.machines.items()}
    index = shard_index(cells, written, names, {"machine": opening.machine_id, "run": run_id})
    waiting = (
        "Reading the numbers … Opened as a file, without a server, this page cannot read them: make serve shows it."
    )
    frame = Placed("explore", markup.scripted("explore", addressed(INDEX, index), waiting))
    files: dict[str, str | Path] = {**{shard.path: shard.text for shard in written}, INDEX: index}
    body = render("explore/page.md", opening=opening)
    return Page(PATH, "Explore", body, {"explore": frame}, files, hide=("navigation", "toc"))


def _about(view: RunView) -> dict[str, Any]:
    run = view.manifest
    return {
        "machine": view.machine_id,
        "tier": view.beside.tier,
        "started": run.started_at,
        "day": descriptions.day(run.started_at),
        "suites": sorted(suites(view)),
        "blocks": run.blocks,
        "page": view.page.replace(".md", ".html"),
    }


def _measures(cells: pd.DataFrame) -> list[Measure]:
    """The measures that any of these cells has."""
    return [measure for measure in MEASURES if cells[f"{measure.name}_n"].gt(0).any()]


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of cells."""

    path: str
    text: str
    machines: tuple[str, ...]


def shards(cells: pd.DataFrame, runs: Mapping[str, Mapping[str, Any]]) -> list[Shard]:
    """Write all cells in files of at most ``LIMIT`` bytes."""
    tiers = {name: about.get("tier") for name, about in runs.items()}
    sleeps = cells["mode"].eq("train") & cells["step"].isin(EMULATED_STEPS)
    ran = cells["mode"].astype(object).where(~sleeps.astype(bool), EMULATED)
    frame = cells.rename(columns={"machine_id": "machine", "run_id": "run"})
    frame = frame.assign(ran=ran, tier=cells["run_id"].map(tiers))
    # A machine is in the file in which its last cell falls.
    last = frame.groupby("machine", sort=False).size().cumsum() - 1
    every_shard: list[Shard] = []
    parts: Counter[str] = Counter()
    for _, own in frame.groupby(frame["machine"].map(last // ROWS), sort=False):
        for part, text in _texts(own, runs):
            machines = tuple(str(name) for name in part["machine"].unique())
            parts[machines[0]] += 1
            every_shard.append(Shard(f"explore/cells-{slug(machines[0])}-{parts[machines[0]]}.json", text, machines))
    return every_shard


def _texts(part: pd.DataFrame, runs: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[pd.DataFrame, str]]:
    """Write a part; in halves where it is too large."""
    text = _json(
        {
            "format": FORMAT,
            "count": len(part),
            "runs": {str(name): runs[name] for name in part["run"].unique()},
            "cell": part["cell_id"].astype(str).tolist(),
            "dims": {name: _coded(part[name]) for name in (*GIVEN, *AXIS_NAMES) if part[name].notna().any()},
            "measures": {measure.name: _measured(part, measure) for measure in _measures(part)},
        }
    )
    if len(text.encode()) <= LIMIT or len(part) == 1:
        yield part, text
        return
    for half in (part.iloc[: len(part) // 2], part.iloc[len(part) // 2 :]):
        yield from _texts(half, runs)


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n"


def _coded(values: pd.Series) -> dict[str, Any]:
    """Write a column as its different values and, for each row, the place of its value; -1 is not applicable."""
    codes, names = pd.factorize(values)
    one = len(set(codes.tolist())) == 1
    return {"values": [plain(name) for name in names], "codes": int(codes[0]) if one else codes.tolist()}


def _measured(part: pd.DataFrame, measure: Measure) -> dict[str, Any]:
    """Write a measure: means, their reach (a factor or a difference), and n where it differs from throughput's."""
    mean, low, high = (part[f"{measure.name}{end}"].to_numpy() for end in ("", "_lo", "_hi"))
    with np.errstate(invalid="ignore", divide="ignore"):
        reach = high / mean if measure.logs else np.maximum(mean - low, high - mean)
    columns: dict[str, Any] = {"mean": _numbers(mean), "reach": _numbers(reach)}
    counts = part[f"{measure.name}_n"]
    if measure.name == "samples_per_s" or not counts.equals(part["n"]):
        columns["n"] = counts.tolist()
    return columns


def _numbers(values: npt.NDArray[np.float64]) -> list[float | None]:
    """Round numbers to five significant digits; what is not known is null."""
    return [None if math.isnan(value) else float(f"{value:.5g}") for value in values.tolist()]


def shard_index(
    cells: pd.DataFrame, written: Sequence[Shard], names: Mapping[str, str], opening: Mapping[str, str]
) -> str:
    """Write what the page must know before it has any cell."""
    groups = cells.groupby("machine_id", sort=False)
    counts = groups.size()
    workloads = [", ".join(sorted(map(str, held))) for held in groups["workload"].unique()]
    places: dict[str, list[int]] = {str(name): [] for name in counts.index}
    for place, shard in enumerate(written):
        for name in shard.machines:
            places[name].append(place)
    axes = [
        {"name": axis.name, "kind": "axis", "default": axis.default} for axis in AXES if cells[axis.name].notna().any()
    ]
    # An emulated step is the forward phase of the records.
    phases = {name: "forward_us" if name == EMULATED else f"{name}_us" for name in _SEGMENTS}
    held = {
        "format": FORMAT,
        "machines": {
            "id": list(places),
            "name": _coded(pd.Series([names[name] for name in places], dtype=object)),
            "workloads": _coded(pd.Series(workloads, dtype=object)),
            "cells": counts.tolist(),
            "shards": list(places.values()),
        },
        "shards": [addressed(shard.path, shard.text) for shard in written],
        "dims": [*({"name": name, "kind": "given"} for name in GIVEN), *axes],
        "measures": [
            {"name": measure.name, "label": measure.label, "unit": measure.unit, "logs": measure.logs}
            | ({"most": measure.most} if math.isfinite(measure.most) else {})
            for measure in _measures(cells)
        ],
        "ran": [{"name": name, "label": label} for name, label in RAN.items()],
        "phases": [
            {"name": name, "label": LABELS[name], "colour": PHASE_COLOURS[name], "measure": measure}
            for name, measure in phases.items()
        ],
        "edge": colour("emulated-edge"),
        "ordered": [colour(f"series-{place}") for place in range(_SERIES)],
        "named": [colour(f"name-{place}") for place in range(_SERIES)],
        "shapes": SHAPES,
        "opening": dict(opening),
    }
    return _json(held)
