"""The nodes of one sweep held against each other: which of them is off, in which stage, and how far the rest differ.

A node's value is the mean over cells of its log throughput; its noise is how that mean varies between the node's own
blocks. Nodes run the same cells in the same order: what all of them show in a block (warming up, a busy file server) is
taken out, as the median node has it; where they share nothing, that costs little. Each node is held against the median
of the others, so that a slow one neither hides itself nor moves the centre; the variance of a median of equally noisy
nodes is at most π/2 times that of their mean. A node that is found leaves the centre, and the rest is judged anew.

One family has all nodes in all parts: every cell, and those of loading, copying and computing alone. An interval holds
for the whole family (Bonferroni on Welch's t), and a node is *outlying* where it lies beyond ±1 %, the margin of every
verdict. In a cluster whose nodes are alike within that margin, anything is named in at most 5 % of sweeps. The workers'
stamps (read, decode, transform, collate) are asked of outlying nodes alone, as a family of their own.

The rate does not hold where blocks depend on one another: noise that wanders over minutes looks like a node that is
off. A node that is slow for other reasons in these very hours cannot be told from one that always is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.blocks import Blocks, successful
from feedrate.analysis.estimate import CONFIDENCE, RATIO, Floats, Moments, as_columns, moments, t_half_width
from feedrate.analysis.machines import CELL, ROUNDING, SAME_IN_BOTH
from feedrate.questions.compare.analysis import STAGES, Stage, cells_of, with_rate_of
from feedrate.schema.axes import EMULATED_STEPS
from feedrate.schema.metrics import CONFIRMED_OVER, REFUTED_UNDER

ALL = "all"
"""The part that has every cell."""
ALONE = tuple(stage for stage in STAGES if not stage.column)
"""Stages with cells of their own."""
STAMPED = tuple(stage for stage in STAGES if stage.column)
"""Stages that the workers' stamps tell apart."""
FALSE_ALARMS = 1 - CONFIDENCE
"""Share of sweeps in which some node is named although all are alike."""
LEAST_NODES = 3
"""Of two that differ nobody can say which one is off."""
_LEAST_BLOCKS = 2
_MEDIAN = np.pi / 2
"""Variance of a median of many normal values, in that of their mean."""
Parts = Mapping[str, Floats]
"""Part to log throughput: float64, nodes × cells × blocks; NaN where no trial ended well."""


class Spread(NamedTuple):
    """Standard deviations of log throughput, averaged over cells."""

    between: float
    """Between nodes, their own noise taken off; at least 0."""
    lo: float
    """Ends of its 95 % interval."""
    hi: float
    within: float
    """Between the blocks of a node, without what all nodes show in a block."""


@dataclass(frozen=True, slots=True)
class NodeFindings:
    """What the records of a sweep say of its nodes."""

    nodes: tuple[int, ...]
    """Numbers of those with a trial that ended well, ascending."""
    cells: int
    """That could be compared."""
    judged: pd.DataFrame
    """Rows of :func:`judge` with ``node``, its number, of ``ALL`` and ``ALONE``, then of ``STAMPED`` where nodes are
    outlying; none where nothing can be compared."""
    spread: Spread | None
    """Of all nodes and cells; None where nothing can be compared."""
    rest: Spread | None
    """The same without the nodes that are outlying in all cells; None where there are none or fewer than two remain."""
    finds: float
    """How much slower in all cells a node of average noise must be for 95 of 100 such sweeps to find it, as a share of
    its throughput; NaN where nothing can be compared."""

    @property
    def outlying(self) -> dict[int, pd.DataFrame]:
        """Number of each outlying node to its outlying rows."""
        off = self.judged[self.judged["outlying"].astype(bool)]
        return {node: off[off["node"].eq(node)] for node in sorted(set(off["node"]))}


def find(trials: pd.DataFrame) -> NodeFindings:
    """Hold the nodes of a sweep against each other; ``trials`` of all nodes have their number in ``node``."""
    trials = trials[trials["node"].isin(successful(trials)["node"])]
    nodes = tuple(sorted(trials["node"].unique().tolist()))
    same = comparable(trials)
    if len(nodes) < LEAST_NODES or not len(same):
        nothing = judge({ALL: np.zeros((LEAST_NODES, 1, _LEAST_BLOCKS))}).assign(node=0)[:0]
        return NodeFindings(nodes, 0, nothing, None, None, np.nan)
    every = logs(same)
    judged = judge({ALL: every, **by_part(same, ALONE)})
    outlying = judged.loc[judged["outlying"], "at"].unique().tolist()
    if outlying and (stamps := by_part(same, STAMPED)):
        judged = pd.concat([judged, judge(stamps, outlying)], ignore_index=True)
    judged["node"] = np.take(nodes, judged["at"])
    alike = ~judged.loc[judged["part"].eq(ALL), "outlying"].to_numpy(dtype=bool)
    rest = spread(every[alike]) if 1 < alike.sum() < len(nodes) else None
    return NodeFindings(nodes, every.shape[1], judged, spread(every), rest, found_by(judged))


def comparable(trials: pd.DataFrame) -> pd.DataFrame:
    """Keep the trials of cells that are the same on all nodes: settings, device, data, workload and protocol.

    A cell counts that ended well in two blocks of every node. Emulated steps last as long on any node and are left out.
    Then ``run_id`` stands for the node, and ``cell_id`` for all that must agree.
    """
    same = trials.groupby([*CELL, *SAME_IN_BOTH], dropna=False, sort=False).ngroup().astype(str)
    real = ~trials["step"].isin(EMULATED_STEPS).to_numpy(dtype=bool)
    named = trials.assign(run_id=trials["node"].astype(str), cell_id=same)
    return _on_all_nodes(named[real], trials["node"].nunique())


def _on_all_nodes(trials: pd.DataFrame, nodes: int) -> pd.DataFrame:
    """Trials that ended well, of cells that did so often enough on every node."""
    ended = successful(trials)
    blocks = ended.groupby(["cell_id", "node"])["block"].nunique()
    counts = blocks[blocks >= _LEAST_BLOCKS].groupby("cell_id").size()
    return ended[ended["cell_id"].isin(counts.index[counts == nodes])]


def by_part(trials: pd.DataFrame, stages: Sequence[Stage]) -> dict[str, Floats]:
    """Sort comparable trials into stages, of which those without a cell are left out; nodes by their number."""
    cells, nodes = trials.drop_duplicates("cell_id"), trials["node"].nunique()
    tables = {}
    for stage in stages:
        stage_trials = trials[trials["cell_id"].isin(cells_of(stage, cells)["cell_id"])]
        rated = _on_all_nodes(with_rate_of(stage, stage_trials), nodes)
        if len(rated):
            tables[stage.name] = logs(rated)
    return tables


def logs(trials: pd.DataFrame) -> Floats:
    """Log throughput of comparable trials by node, cell and block."""
    nodes, cells = (list(dict.fromkeys(column)) for column in (trials.sort_values("node")["run_id"], trials["cell_id"]))
    values = Blocks(trials).logs(np.repeat(nodes, len(cells)).tolist(), cells * len(nodes))
    return values.reshape(len(nodes), len(cells), -1)


def judge(parts: Parts, asked: Collection[int] = ()) -> pd.DataFrame:
    """Hold every node against the others, part by part; the parts are one family.

    A row is a part and node: ``part``, ``at`` (position of the node), ``ratio`` (node ÷ the others' median) with the
    ends ``lo``, ``hi`` of an interval that holds for the whole family, ``n`` (blocks), ``cells``, ``outlying``, and
    ``error``, ``df`` of the log ratio. Outlying may be nodes at the positions ``asked``; any where none is named.
    """
    judged = []
    for name, node_logs in parts.items():
        nodes = len(node_logs)
        may = np.isin(np.arange(nodes), list(asked)) if asked else np.ones(nodes, dtype=bool)
        level = 1 - FALSE_ALARMS / (len(parts) * may.sum())
        node_means = _of_blocks(node_logs)
        log, error, df, outlying = _against_rest(node_means, may, level)
        ends = as_columns(RATIO, Moments(log, None, node_means.n), half=t_half_width(error, df, level))
        row = {"part": name, "at": range(nodes), **ends, "cells": node_logs.shape[1], "outlying": outlying}
        judged.append(pd.DataFrame({**row, "error": error, "df": df}))
    return pd.concat(judged, ignore_index=True)


def _of_blocks(node_logs: Floats) -> Moments:
    """Each node's mean over cells, by blocks that two nodes have, without what all nodes show in a block."""
    levels = np.median(moments(node_logs).mean, axis=0)
    means = moments((node_logs - levels[:, None]).swapaxes(1, 2)).mean
    means = means[:, np.isfinite(means).sum(axis=0) > 1]
    off = means - moments(means).mean[:, None]
    itself = np.eye(len(node_logs), dtype=bool)[..., None]
    others = np.nanmedian(np.where(itself, np.nan, off), axis=1)
    sd = moments(off - others).sd / np.sqrt(1 + _MEDIAN / (len(node_logs) - 1))
    return moments(means - np.nanmedian(off, axis=0))._replace(sd=sd)


def _against_rest(
    node_means: Moments, may: npt.NDArray[np.bool_], level: float
) -> tuple[Floats, Floats, Floats, npt.NDArray[np.bool_]]:
    """Log ratio of each node to the median of the others, its error and degrees of freedom, and which are outlying."""
    apart = np.zeros(len(may), dtype=bool)
    while True:
        log, error, df = _distances(node_means, ~apart)
        half = t_half_width(error, df, level)
        beyond = may & ~apart & ((log + half < np.log(REFUTED_UNDER)) | (log - half > np.log(CONFIRMED_OVER)))
        if not beyond.any() or (~apart).sum() < LEAST_NODES:
            return log, error, df, apart
        apart[np.argmax(np.where(beyond, np.abs(log) / half, 0.0))] = True


def _distances(node_means: Moments, alike: npt.NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Log ratio of each node to the median of the other nodes that are alike, its error and degrees of freedom."""
    variance = np.maximum(node_means.sd, ROUNDING) ** 2 / node_means.n
    squares = variance**2 / (node_means.n - 1)
    others = alike & ~np.eye(len(alike), dtype=bool)
    centre = np.nanmedian(np.where(others, node_means.mean, np.nan), axis=1)
    inflated = _MEDIAN / others.sum(axis=1) ** 2
    total = variance + inflated * (others @ variance)
    return node_means.mean - centre, np.sqrt(total), total**2 / (squares + inflated**2 * (others @ squares))


def found_by(judged: pd.DataFrame) -> float:
    """How much slower in all cells a node must be to be found in 95 % of such sweeps (``NodeFindings.finds``)."""
    from scipy.special import nctdtrinc  # here, as it takes 0.15 s to load, and few sites show a cluster

    all_cells = judged[judged["part"].eq(ALL)]
    quantile = (np.log(all_cells["hi"] / all_cells["ratio"]) / all_cells["error"]).median()
    # How far off in its own errors: Student's t, not central, is then beyond the quantile in 95 %.
    errors = nctdtrinc(all_cells["df"].median(), 1 - CONFIDENCE, quantile)
    return float(1 - REFUTED_UNDER * np.exp(-errors * np.sqrt((all_cells["error"] ** 2).mean())))


def spread(node_logs: Floats) -> Spread:
    """Split the variance of the nodes' block means into what is between nodes and what is within them.

    Analysis of variance of one random effect; the interval is J. S. Williams' (Biometrika 49, 1962), which covers at
    least what it says under normal noise.
    """
    from scipy.special import fdtri, gammaincinv

    node_means = _of_blocks(node_logs)
    total, k = int(node_means.n.sum()), len(node_means.n)
    size = (total - (node_means.n**2).sum() / total) / (k - 1)
    within = float(((node_means.n - 1) * node_means.sd**2).sum() / (total - k))
    squares = float((node_means.n * (node_means.mean - np.average(node_means.mean, weights=node_means.n)) ** 2).sum())
    f = squares / (k - 1) / max(within, ROUNDING**2)
    ends = []
    for tail in ((1 + CONFIDENCE) / 2, (1 - CONFIDENCE) / 2):
        chi_square = 2 * gammaincinv((k - 1) / 2, tail)
        ends.append(squares / (size * chi_square) * max(0.0, 1 - fdtri(k - 1, total - k, tail) / f) if f else 0.0)
    between = max(0.0, squares / (k - 1) - within) / size
    return Spread(*(float(np.sqrt(variance)) for variance in (between, *ends, within)))
