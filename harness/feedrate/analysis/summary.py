"""What the end of a sweep shows: the best settings of each question, and what they gain.

A question is a set of given conditions (workload, what a step does, size of samples …); everything else can be chosen.
Cells of different conditions are never compared. The best of many cells is picked by its estimate, so its own estimate
is a little too good; that is why the best is a set, and why what it gains is cross-fitted (``analysis.crossfit``):
chosen on one half of the blocks, measured on the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.blocks import KEYS, Blocks, blocks_of
from feedrate.analysis.ceilings import cells_with_ceilings
from feedrate.analysis.contrasts import grouping_keys, off_default, verdicts
from feedrate.analysis.crossfit import cross_fitted
from feedrate.analysis.estimates import cells
from feedrate.schema.axes import AXES, CONDITIONS, SETTINGS, TRAINING

TRAIN, EMULATED, LOAD = "train", "emulated", "load"
"""What a task runs."""
_STEP_SETTINGS = tuple(axis.name for axis in TRAINING if axis.name in SETTINGS)
_LOADER_SETTINGS = tuple(name for name in SETTINGS if name not in ("storage_format", "batch_size", *_STEP_SETTINGS))
_CEILINGS = ("load_ceiling", "copy_ceiling", "compute_ceiling", "limit", "efficiency_n")
_IN_SET = ("place", "is_best", "ratio_to_best", "ratio_lo", "ratio_hi", "pairs", "members", "compared", "candidates")
MEMORY_STEP = 16 * 2**20
"""Memory that differs by less than this is the same when cells are ordered by what they cost, in bytes."""


def _candidates(trials: pd.DataFrame, estimates: pd.DataFrame) -> pd.DataFrame:
    """Estimates of cells that the matrix asked for, replicas left out: what serves other cells answers no question."""
    asked_for = trials[~trials["role"].isin(["ceiling", "control"])]
    asked = pd.MultiIndex.from_frame(estimates[KEYS]).isin(pd.MultiIndex.from_frame(asked_for[KEYS]))
    return estimates[asked & (estimates["replica"].fillna(0) == 0).to_numpy(dtype=bool)]


def _questions(estimates: pd.DataFrame, *more: str) -> Iterator[pd.Index]:
    """Rows of the cells with an estimate, by run, device, conditions and further axes; idle axes at their default."""
    measured = estimates[estimates["samples_per_s"].notna()]
    by = grouping_keys(measured, ("run_id", "device", *CONDITIONS, *more))
    for _, group in measured.index.to_series().groupby(by, sort=False, dropna=False):
        yield pd.Index(group)


def _off(estimates: pd.DataFrame, knobs: Sequence[str]) -> npt.NDArray[np.int64]:
    """How many of some knobs are not at their default, a number a cell."""
    return off_default(estimates, (axis for axis in AXES if axis.name in knobs))


def _best_set(group: pd.DataFrame, changed: npt.NDArray[np.int64], blocks: Blocks) -> pd.DataFrame:
    """The set of one question, cheapest first; ``changed`` counts the settings of each cell off their default."""
    ids = list(group["cell_id"])
    best = int(group["samples_per_s"].to_numpy().argmax())
    ratios = blocks.ratios(list(group["run_id"]), [ids[best]] * len(ids), ids)
    named = ratios.rename(columns={"ratio": "ratio_to_best", "lo": "ratio_lo", "hi": "ratio_hi", "n": "pairs"})
    compared_with_best = named[["ratio_to_best", "ratio_lo", "ratio_hi", "pairs"]]
    compared = group.assign(is_best=np.arange(len(ids)) == best, **compared_with_best, candidates=len(ids))
    compared["compared"] = int(compared["pairs"].ge(2).sum())
    cost = pd.DataFrame(
        {
            "workers": group["num_workers"].astype("float64").fillna(0),
            "memory": np.rint(group["pss_peak_bytes"] / MEMORY_STEP),
            "changed": changed,
            "slowness": -group["samples_per_s"],
        }
    )
    members = compared["is_best"] | (compared["ratio_hi"] >= 1)
    order = cost[members].sort_values(list(cost.columns), kind="stable").index
    return compared.loc[order].assign(place=range(len(order)), members=len(order))


def best_cells(trials: pd.DataFrame, estimates: pd.DataFrame | None = None) -> pd.DataFrame:
    """Find the best cell of each question and the cells that cannot be told from it.

    The best has the highest estimate. A cell belongs to its set if the 95 % interval of its throughput ÷ the best's,
    paired by block, does not lie wholly under 1 (``ratio_hi`` ≥ 1). With fewer than two pairs nothing can be told:
    such a cell is left out. Order within a set: fewest workers, then least memory (PSS, in steps of 16 MiB), then
    fewest knobs off their default, then the higher estimate. Cells that only serve others (ceilings that the plan
    added, controls, replicas) are no candidates. ``estimates`` are the rows of ``cells_with_ceilings(trials)`` that are
    asked about, by default all of them.

    Returns:
        A row a cell of a set, questions in order of appearance: all columns of ``cells``; ``au``, ``efficiency`` with
        its interval, and ``bottleneck`` as in ``cells_with_ceilings``; then ``place`` (0 is the cheapest), ``is_best``,
        ``ratio_to_best``, ``ratio_lo``, ``ratio_hi``, ``pairs``, ``members`` (cells of the set), ``compared`` (cells
        of the question with two pairs or more) and ``candidates`` (those that have an estimate).
    """
    estimates, blocks = cells_with_ceilings(trials) if estimates is None else estimates, blocks_of(trials)
    columns = [name for name in estimates if name not in _CEILINGS] + [*_IN_SET]
    candidates = _candidates(trials, estimates).reset_index(drop=True)
    changed = _off(candidates, SETTINGS)
    sets = [
        _best_set(candidates.loc[rows].reset_index(drop=True), changed[rows], blocks) for rows in _questions(candidates)
    ]
    return pd.concat(sets, ignore_index=True)[columns] if sets else estimates.iloc[:0].reindex(columns=columns)


def most_gained(trials: pd.DataFrame, estimates: pd.DataFrame | None = None) -> pd.DataFrame:
    """Say by how much loader knobs alone speed each question up over a DataLoader with PyTorch's defaults.

    Every loader is compared with the default one of the same storage format and batch size, by block; of all formats,
    batch sizes and settings that with the largest gain is chosen. Of settings of its format and batch size that reach
    ``crossfit.ABOUT`` of its speed and gain, one with fewer workers is chosen in its place: that with the fewest, then
    with the fewest knobs off their default. The defaults are those of the axis table: ``num_workers=0``,
    ``pin_memory=False``, ``non_blocking=False`` and so on. Knobs of the training step (``amp``, ``fusion`` …) stand at
    their default on both sides: what they gain is no merit of the loader. ``estimates`` are the rows of
    ``cells(trials)`` that are asked about, by default all of them.

    Returns:
        A row a question that has a default cell with an estimate: ``run_id``, ``device``, ``CONDITIONS``, and of the
        setting that is chosen on all blocks ``storage_format``, ``batch_size``, ``default_cell``, ``best_cell`` and its
        loader knobs; its gain, cross-fitted: ``ratio`` (best ÷ default), ``lo``, ``hi``, ``n`` (blocks), NaN with fewer
        than ``LEAST_BLOCKS`` of them; ``verdict``; ``candidates`` (loaders that were compared, defaults included);
        ``others`` (those that are no defaults).
    """
    estimates = _candidates(trials, cells(trials) if estimates is None else estimates)
    plain_steps = _off(estimates, _STEP_SETTINGS) == 0
    loaders = estimates[estimates["num_workers"].notna() & plain_steps].reset_index(drop=True)
    off = _off(loaders, _LOADER_SETTINGS)
    plain = off == 0
    against = np.full(len(loaders), -1)
    for rows in _questions(loaders, "storage_format", "batch_size"):
        against[rows] = next(iter(rows[plain[rows]]), -1)
    ids, logs = loaders["cell_id"].to_numpy(dtype=object), blocks_of(trials).logs(loaders["run_id"], loaders["cell_id"])
    gains, best, ratios = logs - logs[against], [], []
    workers = loaders["num_workers"].to_numpy(dtype=np.float64)
    for rows in _questions(loaders[against >= 0]):
        order = np.lexsort((off[rows], workers[rows])).tolist()
        costs = list(zip(against[rows], workers[rows], off[rows], strict=True))
        cheaper = [
            [at for at in order if costs[at][0] == default and costs[at][1] < most and costs[at][2]]
            for default, most, _ in costs
        ]
        gain = cross_fitted(gains[rows], cheaper=cheaper)
        best.append(rows[gain.chosen])
        ratios.append(gain.ratio.row() | {"candidates": len(rows), "others": int((against[rows] != rows).sum())})
    same = ["run_id", "device", *CONDITIONS, "storage_format", "batch_size"]
    result: pd.DataFrame = loaders.loc[best, [*same, *_LOADER_SETTINGS]].reset_index(drop=True)
    result.insert(len(same), "default_cell", ids[against[best]])
    result.insert(len(same) + 1, "best_cell", ids[best])
    numbers = pd.DataFrame(ratios, columns=["ratio", "lo", "hi", "n", "candidates", "others"])
    return pd.concat([result, numbers.assign(verdict=verdicts(numbers["ratio"], numbers["lo"], numbers["hi"]))], axis=1)
