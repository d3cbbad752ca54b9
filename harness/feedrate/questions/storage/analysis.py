"""What a storage format's container does, and what storing decoded pixels does; and which format to use.

Formats differ in two ways at once: what a sample is on disk (pixels, compressed pixels, an image file) and what holds
it. The *container's* effect compares formats that store the same; the effect of *pixels* compares formats with the same
container. Everything else is the same on both sides of a pair: images, order, page cache, batch size and workers; of a
format's own knobs the default. Ratios are paired by block. This does *not* show why: a container also brings its
library, and chunks that hold many samples (``hdf5_chunked``) are part of what is stored.

A reader's question is given by the images, their order and the state of the page cache; format, workers, batch size and
a format's own knobs can be chosen. The answer is a set: the settings that cannot be told from the best, cheapest first.
The fastest of many is chosen on one half of the blocks and measured on the other (``analysis.crossfit``). Formats that
lose information are never candidates, only named beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import Blocks, blocks_of
from feedrate.analysis.contrasts import grouping_keys, verdicts
from feedrate.analysis.crossfit import Gain, cross_fitted
from feedrate.analysis.estimate import RATIO, Floats
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.storage import OWN, QUESTION, credible, format_costs, plainest
from feedrate.schema.axes import AXES

CONTAINER, PIXELS = "container", "pixels"
REFERENCE = "files"
"""Other containers are compared with a folder of files, where the same is stored in one."""
GIVEN = tuple(axis.name for axis in AXES if axis.name not in ("storage_format", *OWN))
EFFECT_COLUMNS = ("run_id", *GIVEN, "effect", "a_format", "b_format", "same", "lossy", *RATIO, "verdict")
SPEED, SPACE, LOSSY = "speed", "space", "lossy"
"""The fastest without loss; of those that are small, without loss; and of those with loss."""
SMALL = 0.75
"""Bytes on disk ÷ bytes of raw pixels from which down a format saves space."""
CHOICE_COLUMNS = (
    *("question", "purpose", "place", "is_best"),
    *("ratio_to_best", "ratio_lo", "ratio_hi", "pairs", "candidates", "formats"),
)
Row = dict[str, Any]


def _groups(trials: pd.DataFrame) -> Iterator[list[Row]]:
    """Cells with an estimate that differ in their format alone, by its name."""
    cells = plainest(format_costs(trials))
    cells = cells[cells["samples_per_s"].notna()]
    for _, group in cells.groupby(grouping_keys(cells, ("run_id", *GIVEN)), dropna=False, sort=False):
        yield rows_of(group.sort_values("storage_format"))


def _by(group: list[Row], trait: str) -> list[list[Row]]:
    """Cells that share a trait of their format, by its name."""
    return [[row for row in group if row[trait] == value] for value in sorted({str(row[trait]) for row in group})]


def _pairs(group: list[Row]) -> Iterator[Row]:
    """A: the reference, or what is encoded; B: another container, or the pixels."""
    for rows in _by(group, "stores"):
        reference = next((row for row in rows if row["container"] == REFERENCE), rows[0])
        for row in rows:
            if row["container"] != reference["container"]:
                yield _pair(CONTAINER, reference, row, row["stores"])
    for rows in _by(group, "container"):
        for pixels in (row for row in rows if row["stores"] == PIXELS):
            for row in (row for row in rows if row["stores"] != PIXELS):
                yield _pair(PIXELS, row, pixels, row["container"])


def _pair(effect: str, a: Row, b: Row, same: str) -> Row:
    """Two cells to compare; ``same`` is what both sides share: what is stored, or the container."""
    given = {name: a[name] for name in ("run_id", *GIVEN)}
    formats = {"a_format": a["storage_format"], "b_format": b["storage_format"]}
    cells = {"cell_a": a["cell_id"], "cell_b": b["cell_id"]}
    return {**given, "effect": effect, "same": same, "lossy": bool(a["lossy"] or b["lossy"]), **formats, **cells}


def effects(trials: pd.DataFrame) -> pd.DataFrame:
    """Compare formats that differ in one of the two ways: a row a pair, ``EFFECT_COLUMNS``."""
    compared = pd.DataFrame([pair for group in _groups(trials) for pair in _pairs(group)])
    if compared.empty:
        return pd.DataFrame(columns=list(EFFECT_COLUMNS))
    sides = (list(compared[name]) for name in ("run_id", "cell_a", "cell_b"))
    compared = pd.concat([compared, blocks_of(credible(trials)).ratios(*sides)], axis=1)
    compared["verdict"] = verdicts(compared["ratio"], compared["lo"], compared["hi"])
    return compared[list(EFFECT_COLUMNS)]


def choices(trials: pd.DataFrame) -> pd.DataFrame:
    """Choose formats for every question of a run, by its number: cells of ``format_costs`` with ``CHOICE_COLUMNS``.

    For each purpose the best has the highest estimate; a cell belongs to its set if the 95 % interval of its throughput
    ÷ the best's, paired by block, does not lie wholly under 1. With fewer than two pairs nothing can be told: such a
    cell is left out. Order within a set: fewest workers, then the higher estimate.
    ``ratio_to_best``, each cell's throughput ÷ that of the best without loss, is cross-fitted (NaN with few blocks).
    """
    table = format_costs(trials)
    blocks = blocks_of(credible(trials))
    measured = table[table["samples_per_s"].notna() & ~table["replica"].fillna(0).gt(0)]
    columns = ["run_id", "cell_id", "storage_format", "lossy", "samples_per_s", "num_workers", "raw_share"]
    cells = measured[columns].assign(at=measured.index)
    choice = []
    groups = cells.groupby(grouping_keys(measured, ("run_id", "device", *QUESTION)), dropna=False, sort=False)
    for question, (_, group) in enumerate(groups):
        exact, lossy = group[~group["lossy"]], group[group["lossy"]]
        for purpose, candidates in ((SPEED, exact), (SPACE, exact[exact["raw_share"].le(SMALL)]), (LOSSY, lossy)):
            if len(candidates):
                chosen = _best_set(candidates.reset_index(drop=True), exact if len(exact) else candidates, blocks)
                choice.append(chosen.assign(question=question, purpose=purpose))
    if not choice:
        return table.iloc[:0].reindex(columns=[*table.columns, *CHOICE_COLUMNS])
    every = pd.concat(choice, ignore_index=True)
    return pd.concat([table.loc[every["at"]].reset_index(drop=True), every[list(CHOICE_COLUMNS)]], axis=1)


def _best_set(candidates: pd.DataFrame, against: pd.DataFrame, blocks: Blocks) -> pd.DataFrame:
    """The cells that cannot be told from the best of a part, fewest workers first, against that of another part."""
    runs, ids = list(candidates["run_id"]), list(candidates["cell_id"])
    best = int(candidates["samples_per_s"].to_numpy().argmax())
    is_best = np.arange(len(ids)) == best
    to_own = blocks.ratios(runs, [ids[best]] * len(ids), ids)
    candidates = candidates.assign(
        is_best=is_best,
        candidates=len(ids),
        formats=candidates["storage_format"].nunique(),
        slowness=-candidates["samples_per_s"].astype("float64"),
    )
    members: pd.DataFrame = candidates[is_best | to_own["hi"].ge(1).to_numpy()]
    ordered: pd.DataFrame = members.sort_values(["num_workers", "slowness"], kind="stable")
    candidate_logs, others = (
        blocks.logs(list(cells["run_id"]), list(cells["cell_id"])) for cells in (candidates, against)
    )
    ratios = [_to_best(candidate_logs if row == best else candidate_logs[[row]], others) for row in ordered.index]
    to_best = pd.DataFrame([gain.ratio.row() for gain in ratios], ordered.index)
    return ordered.assign(
        place=range(len(ordered)),
        ratio_to_best=to_best["ratio"],
        ratio_lo=to_best["lo"],
        ratio_hi=to_best["hi"],
        pairs=to_best["n"],
    )


def _to_best(logs: Floats, others: Floats) -> Gain:
    """The best of some cells ÷ the best of others, both chosen on the blocks that do not measure them."""
    pairs = np.indices((len(logs), len(others))).reshape(2, -1)
    a, b = logs[pairs[0]], others[pairs[1]]
    return cross_fitted(a + b - 2 * _most_known(others), of=a - b)


def _most_known(logs: Floats) -> Floats:
    """The cell that has most blocks: what others are compared with by block, so that none is chosen for its blocks."""
    fixed: Floats = logs[np.isfinite(logs).sum(axis=1).argmax()]
    return fixed
