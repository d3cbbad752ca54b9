"""Nodes that ran trials together: the pace of each by how many loaded at once, its knee, and training on several.

*Loading.* In a storage that serves few nodes at full pace and many at a constant sum, the log throughput of a node is
flat in the log of how many load, and then falls by 1: log y = min(a, c - log k). The *knee* exp(c - a) is how many
nodes the storage feeds at full pace. Both levels are means over the numbers of nodes on their side; the parting of
sides with the least squares counts. The interval is Student's t on the log of the knee, with the jackknife's error over
blocks. Each block rotates which nodes load, so that differences between nodes are noise of blocks here.

A knee is named only where a node is shown to be slower with the most nodes than alone, beyond the margin of 1 %.
Between the two regimes a real storage bends rather than breaks: the knee says where the regimes would meet.

*Training* (DistributedDataParallel over nodes). Efficiency is the throughput of the whole ÷ processes, against that of
the fewest processes; what the exchange of gradients takes is 1 - throughput with ÷ without it, both paired by block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import Blocks, memoized
from feedrate.analysis.contrasts import grouping_keys
from feedrate.analysis.estimate import Estimate, Floats, t_half_width
from feedrate.analysis.estimates import AXIS_NAMES, cells, rows_of
from feedrate.schema.metrics import REFUTED_UNDER

LEAST_BLOCKS = 3
"""Of a knee's interval."""
_LOADING, _TRAINING = ("nodes",), ("nodes", "world_size", "ddp_buckets")
"""Axes that cells of one group differ in."""
_SIZES = ("world_size", "nodes")
Row = Mapping[Any, Any]


@dataclass(frozen=True, slots=True)
class Level:
    """Some nodes at once."""

    nodes: int
    rate: Estimate
    """Samples a second: of one node where each loads by itself, else of the whole training."""
    processes: int = 1
    """That train one model."""
    efficiency: Estimate | None = None
    """Throughput ÷ processes, against that of the fewest; None for those."""
    exchange: Estimate | None = None
    """Share of the time that exchanging gradients takes; None where it was not measured without."""


@dataclass(frozen=True, slots=True)
class Loading:
    """Cells that differ in how many nodes load at once."""

    cell: Row
    """One of them."""
    levels: tuple[Level, ...]
    """By nodes, ascending; two or more."""
    kept: Estimate
    """Throughput of a node with the most at once ÷ that with the fewest."""
    knee: Estimate | None
    """Nodes that are fed at full pace; None where no fall is shown, or blocks are too few."""


@dataclass(frozen=True, slots=True)
class Training:
    """Cells of one training on several nodes."""

    cell: Row
    levels: tuple[Level, ...]
    """By processes and nodes, ascending."""


@memoized
def loading(trials: pd.DataFrame) -> list[Loading]:
    """Find what was loaded by several numbers of nodes at once, in a run or a joined sweep."""
    loads = trials[trials["nodes"].notna() & ~_one_training(trials)]
    blocks = Blocks(loads)
    series = []
    for group in _groups(loads, _LOADING):
        if len({row["nodes"] for row in group}) > 1:
            logs = _logs(blocks, group)
            at = np.array([row["nodes"] for row in group], dtype=np.float64)
            kept = Estimate.of_logs(logs[-1] - logs[0], "share")
            falls = kept.high < REFUTED_UNDER
            levels = tuple(Level(int(row["nodes"]), Estimate.of_row(row)) for row in group)
            series.append(Loading(group[0], levels, kept, knee(logs, at) if falls else None))
    return series


@memoized
def training(trials: pd.DataFrame) -> list[Training]:
    """Find what was trained on several nodes, or in several processes of one; ``trials`` as for :func:`loading`."""
    trained = trials[_one_training(trials)]
    blocks = Blocks(trained)
    series = []
    for group in _groups(trained, _TRAINING):
        exchanged = [row for row in group if row["ddp_buckets"] == "many"]
        if len(exchanged) < 2 or max(row["nodes"] for row in exchanged) < 2:
            continue
        alone = {(row["nodes"], row["world_size"]): row for row in group if row["ddp_buckets"] == "none"}
        first, levels = exchanged[0], []
        for row in exchanged:
            own_logs, first_logs = _logs(blocks, [row, first])
            more = np.log(row["world_size"] / first["world_size"])
            efficiency = None if row is first else Estimate.of_logs(own_logs - first_logs - more, "share")
            without = alone.get((row["nodes"], row["world_size"]))
            exchange = None if without is None else _missing(own_logs - _logs(blocks, [without])[0])
            levels.append(Level(int(row["nodes"]), Estimate.of_row(row), int(row["world_size"]), efficiency, exchange))
        series.append(Training(first, tuple(levels)))
    return series


def _one_training(trials: pd.DataFrame) -> pd.Series:
    """Which trials train one model in several processes."""
    return trials["parallel"].astype(object).eq("ddp")


def _groups(trials: pd.DataFrame, free: tuple[str, ...]) -> Iterator[list[dict[str, Any]]]:
    """Cells with a trial that ended well, grouped by all axes but the free ones, by which each group is sorted."""
    every = cells(trials)
    every = every[every["n"] > 0]
    fixed = [name for name in (*AXIS_NAMES, "device", "run_id") if name not in free]
    for _, group in every.groupby(grouping_keys(every, fixed), sort=False, dropna=False):
        yield rows_of(group.sort_values(list(_SIZES), kind="stable", na_position="first"))


def _logs(blocks: Blocks, group: Sequence[Row]) -> Floats:
    """Log throughput of cells by block."""
    return blocks.logs([row["run_id"] for row in group], [row["cell_id"] for row in group])


def _missing(logs: Floats) -> Estimate:
    """What is missing of a ratio."""
    return Estimate.of_logs(logs).through(lambda ratio: 1 - ratio, "share")


def knee(logs: Floats, nodes: Floats) -> Estimate | None:
    """How many nodes are fed at full pace, within the numbers measured; None with fewer than ``LEAST_BLOCKS``.

    ``logs`` are the log throughput of a node, numbers of nodes (ascending) × blocks; blocks that lack one do not count.
    """
    whole = logs[:, np.isfinite(logs).all(axis=0)]
    count = whole.shape[1]
    if count < LEAST_BLOCKS:
        return None
    without = np.array([_knee(np.delete(whole, block, axis=1).mean(axis=1), nodes) for block in range(count)])
    error = np.sqrt((count - 1) * without.var())
    half = t_half_width(error, count - 1) * np.array([0, -1, 1])
    value, lo, hi = np.clip(np.exp(_knee(whole.mean(axis=1), nodes) + half), nodes[0], nodes[-1])
    return Estimate(float(value), float(lo), float(hi), count)


def _knee(levels: Floats, nodes: Floats) -> float:
    """The log of the knee of mean logs."""
    log_nodes = np.log(nodes)
    best = np.inf, float(log_nodes[-1])
    for split in range(1, len(nodes)):
        flat, total = levels[:split].mean(), (levels[split:] + log_nodes[split:]).mean()
        squares = float(((levels - np.minimum(flat, total - log_nodes)) ** 2).sum())
        best = min(best, (squares, float(total - flat)))
    return best[1]
