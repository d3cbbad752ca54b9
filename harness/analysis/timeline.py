"""Which steps tell how a loader feeds a step, and the frame that holds them.

A timeline shows single stamps of one trial, so the trial has to be chosen by a rule and not by its looks. Of
pairs of training cells that differ in their workers only, fewest (none, where that was measured) and fastest, those are
told in which more workers give most. Of each cell it is the trial of median throughput. Where no
step was trained, the loader alone is looked at.

It does *not* show a typical format or batch: where workers matter most was looked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.analysis import estimates
from harness.analysis.blocks import KEYS, good
from harness.analysis.estimates import AXIS_NAMES
from harness.analysis.rows import rows_of
from harness.records import STEPS

WORKER_AXES = ("num_workers", "prefetch_factor", "worker_kind", "start_method", "persistent_workers")
"""Axes that say which workers there are; the cells of a pair differ in nothing else."""
TRIAL_COLUMNS = (
    "run_id",
    "trial_id",
    "cell_id",
    "device",
    "block",
    *AXIS_NAMES,
    "trial_samples_per_s",
    "samples_per_s",
    "lo",
    "hi",
    "n",
)
"""Of a chosen trial: what it is, its own throughput, and its cell's with the 95 % interval over ``n`` blocks."""
STEP_COLUMNS = ("place", *(column.name for column in STEPS if column.name not in ("run_id", "trial_id", "step")))
"""Of its steps. ``place``, in the window from 0, is the column ``step`` of the records: an axis is called so, too."""


def telling(trials: pd.DataFrame) -> pd.DataFrame:
    """Choose the trials whose steps are worth looking at.

    Args:
        trials: rows of ``records.TRIALS`` of one run.

    Returns:
        ``TRIAL_COLUMNS``, a row a trial: a pair of real training, then one of an emulated step, fewest workers first; a
        pair of loading alone where nothing was trained. A cell without a partner stands alone.
    """
    ended = good(trials)
    cells = estimates.cells(trials) if len(ended) else trials.iloc[:0]
    chosen = [_median(ended, cell) for part in _kinds(cells) for cell in _pair(part)]
    return pd.DataFrame(chosen, columns=list(TRIAL_COLUMNS))


def joined(chosen: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Put the recorded steps of chosen trials beside what is known of the trials.

    Args:
        chosen: as :func:`telling` gives it.
        steps: rows of ``records.STEPS``; others than those of the chosen trials are left out.

    Returns:
        ``TRIAL_COLUMNS`` and ``STEP_COLUMNS``, a row a step, in the order of the trials and of their steps.
    """
    kept = steps[steps["trial_id"].isin(chosen["trial_id"])].rename(columns={"step": "place"})
    order = {trial: at for at, trial in enumerate(chosen["trial_id"])}
    found = kept.merge(chosen.astype({"run_id": "string", "trial_id": "string"}), on=["run_id", "trial_id"])
    found = found.assign(order=found["trial_id"].map(order)).sort_values(["order", "place"], kind="stable")
    return found.reindex(columns=[*TRIAL_COLUMNS, *STEP_COLUMNS]).reset_index(drop=True)


def _kinds(cells: pd.DataFrame) -> list[pd.DataFrame]:
    """Split cells by what a step is: computed, emulated; loading alone where there is neither."""
    if not len(cells):
        return []
    measured = cells[cells["n"].gt(0) & cells["replica"].fillna(0).eq(0)]
    training = measured[measured["mode"].eq("train").fillna(False)]
    if not len(training):
        return [measured[measured["mode"].eq("load").fillna(False)]]
    return [training[training["step"].eq(step).fillna(False)] for step in ("real", "emulated")]


def _pair(cells: pd.DataFrame) -> list[dict[str, Any]]:
    """Take the two cells that differ in their workers only, where more give most; a single one where there is none."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    same = [name for name in AXIS_NAMES if name not in WORKER_AXES]
    for cell in rows_of(cells):
        groups.setdefault(tuple("" if pd.isna(cell[name]) else str(cell[name]) for name in same), []).append(cell)
    pairs = [_ends(group) for group in groups.values()]
    return min(pairs, key=_rank) if pairs else []


def _ends(group: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fewest workers, and the fastest of those with more."""
    first = min(group, key=lambda cell: (cell["num_workers"], -cell["samples_per_s"], cell["cell_id"]))
    more = [cell for cell in group if cell["num_workers"] > first["num_workers"]]
    return [first, min(more, key=lambda cell: (-cell["samples_per_s"], cell["cell_id"]))] if more else [first]


def _rank(pair: list[dict[str, Any]]) -> tuple[float, str]:
    """Order pairs by what workers give, most first; the id breaks a tie."""
    return -pair[-1]["samples_per_s"] / pair[0]["samples_per_s"] if len(pair) > 1 else 0.0, pair[0]["cell_id"]


def _median(ended: pd.DataFrame, cell: Mapping[str, Any]) -> dict[str, Any]:
    """The trial in the middle of a cell's, by throughput; of two, the slower."""
    trials = ended[ended[KEYS[0]].eq(cell[KEYS[0]]) & ended[KEYS[1]].eq(cell[KEYS[1]])]
    trials = trials.sort_values(["samples_per_s", "trial_id"], kind="stable")
    trial = trials.iloc[(len(trials) - 1) // 2]
    told = {name: trial[name] for name in ("trial_id", "block")} | {"trial_samples_per_s": trial["samples_per_s"]}
    return {name: cell[name] for name in TRIAL_COLUMNS if name in cell} | told
