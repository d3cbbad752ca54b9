"""Which steps show how a loader feeds a step, and two clocks of one step.

A timeline shows single stamps of one trial, so the trial has to be chosen by a rule and not by its looks. Of pairs of
training cells that differ in their workers only, fewest (none, where that was measured) and fastest, those are shown in
which more workers give most. Of each cell it is the trial of median throughput. Where no step was trained, the loader
alone is looked at. It does *not* show a typical format or batch: where workers matter most was looked for.

``timing: events`` leaves the device's queue alone and reads spans after the window; a span contains launch gaps.
``timing: serialized`` synchronises after every phase: the host's phase is then the device's work, its launch and the
synchronisation, and nothing overlaps. So a phase's two times should agree (a ratio near 1; under 1 by what launching
costs). A phase whose span is *longer* than its serialized time (a copy that waits for a busy stream, say) is not what
it seems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from feedrate.analysis.blocks import Blocks, successful
from feedrate.analysis.estimates import AXIS_NAMES, cells, identities, rows_of
from feedrate.schema.axes import AXES, EMULATED_STEPS, cell_id, lives
from feedrate.schema.columns import STEPS

WORKER_AXES = ("num_workers", "prefetch_factor", "loader", "start_method", "persistent_workers")
"""Axes that say which workers there are; the cells of a pair differ in nothing else."""
TRIAL_COLUMNS = (
    *("run_id", "trial_id", "cell_id", "device", "block"),
    *AXIS_NAMES,
    *("trial_samples_per_s", "samples_per_s", "lo", "hi", "n"),
)
"""Of a chosen trial: what it is, its own throughput, and its cell's with the 95 % interval over ``n`` blocks."""
STEP_COLUMNS = ("place", *(column.name for column in STEPS if column.name not in ("run_id", "trial_id", "step")))
"""Of its steps. ``place``, in the window from 0, is the column ``step`` of the records: an axis is called so, too."""


def select_trials(trials: pd.DataFrame, wanted: Sequence[str] = ()) -> pd.DataFrame:
    """Choose the trials of one run whose steps are worth looking at.

    Args:
        trials: of the run.
        wanted: cells to choose instead, in their order; one that did not run has the trials of the cell that stands for
            it (``axes.lives``), and one that never ended well is left out.

    Returns:
        ``TRIAL_COLUMNS``, a row a trial: a pair of real training, then one of an emulated step, fewest workers first; a
        pair of loading alone where nothing was trained. A cell without a partner stands alone.
    """
    ended = successful(trials)
    chosen = []
    if len(ended):
        table = cells(trials)
        measured = table[table["n"].gt(0) & table["replica"].fillna(0).eq(0)]
        training = measured[measured["mode"].eq("train").fillna(False)]
        emulated = training["step"].isin(EMULATED_STEPS)
        kinds = [training[~emulated], training[emulated]]
        parts = kinds if len(training) else [measured[measured["mode"].eq("load").fillna(False)]]
        selected = [cell for group in parts for cell in _pair(group)] if not wanted else _named(measured, wanted)
        chosen = [_median_trial(ended, cell) for cell in selected]
    return pd.DataFrame(chosen, columns=list(TRIAL_COLUMNS))


def join_steps(chosen: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Put the steps of the trials that :func:`select_trials` chose beside what is known of the trials.

    Returns:
        ``TRIAL_COLUMNS`` and ``STEP_COLUMNS``, a row a step, in the order of the trials and of their steps.
    """
    kept = steps[steps["trial_id"].isin(chosen["trial_id"])].rename(columns={"step": "place"})
    order = {trial: at for at, trial in enumerate(chosen["trial_id"])}
    joined = kept.merge(chosen.astype({"run_id": "string", "trial_id": "string"}), on=["run_id", "trial_id"])
    joined = joined.assign(order=joined["trial_id"].map(order)).sort_values(["order", "place"], kind="stable")
    return joined.reindex(columns=[*TRIAL_COLUMNS, *STEP_COLUMNS]).reset_index(drop=True)


def _pair(cells: pd.DataFrame) -> list[dict[str, Any]]:
    """The cells that differ in their workers only, where more give most: fewest workers, and the fastest with more."""
    pairs = []
    same = [name for name in AXIS_NAMES if name not in WORKER_AXES]
    for _, subset in cells.groupby(same, dropna=False, sort=False):
        group = rows_of(subset)
        first = min(group, key=lambda cell: (cell["num_workers"], -cell["samples_per_s"], cell["cell_id"]))
        more = [cell for cell in group if cell["num_workers"] > first["num_workers"]]
        fastest = min(more, key=lambda cell: (-cell["samples_per_s"], cell["cell_id"])) if more else None
        gain = fastest["samples_per_s"] / first["samples_per_s"] if fastest else 0.0
        pairs.append((-gain, first["cell_id"], [first, fastest] if fastest else [first]))
    return min(pairs, key=lambda pair: pair[:2])[2] if pairs else []


def _named(cells: pd.DataFrame, wanted: Sequence[str]) -> list[dict[str, Any]]:
    """The cells of these ids, or those that stand for them."""
    stands: dict[str, dict[str, Any]] = {}
    for row in rows_of(cells):
        axes = {axis.name: axis.type(row[axis.name]) for axis in AXES if not pd.isna(row[axis.name])}
        for life_id in (cell_id(life) for life in lives(axes)):
            stands[life_id] = row if row["cell_id"] == life_id else stands.get(life_id, row)
    return [stands[name] for name in dict.fromkeys(wanted) if name in stands]


def _median_trial(ended: pd.DataFrame, cell: Mapping[str, Any]) -> dict[str, Any]:
    """The trial in the middle of a cell's, by throughput; of two, the slower."""
    trials = ended[ended["run_id"].eq(cell["run_id"]) & ended["cell_id"].eq(cell["cell_id"])]
    trials = trials.sort_values(["samples_per_s", "trial_id"], kind="stable")
    trial = trials.iloc[(len(trials) - 1) // 2]
    identity = {"trial_id": trial["trial_id"], "block": trial["block"], "trial_samples_per_s": trial["samples_per_s"]}
    return {name: cell[name] for name in TRIAL_COLUMNS if name in cell} | identity


PHASES = ("h2d", "forward", "backward", "optimizer")
"""Phases that both clocks time."""


def _clocked(trials: pd.DataFrame) -> pd.DataFrame:
    """Cells of one run that differ in ``timing`` alone: (run_id, cell_events, cell_serialized)."""
    cells = identities(trials)
    same = ["run_id", *(name for name in AXIS_NAMES if name != "timing")]
    cells = cells[[*same, "timing", "cell_id"]]
    events, serialized = (cells[cells["timing"].isin([word])] for word in ("events", "serialized"))
    pairs = serialized.merge(events, on=same, suffixes=("_serialized", "_events"))
    pairs = pairs.rename(columns={"cell_id_events": "cell_events", "cell_id_serialized": "cell_serialized"})
    return pairs[["run_id", "cell_events", "cell_serialized"]]


def cross_check(trials: pd.DataFrame) -> pd.DataFrame:
    """Compare what CUDA events say of each phase with what a synchronising host says.

    Returns:
        A row per pair of cells that differ in ``timing`` alone and phase that both have: ``run_id``, ``cell_events``,
        ``cell_serialized``, ``phase``, ``ratio`` (the device's span with events ÷ the host's phase serialized, a step,
        paired by block) with its interval ``lo``, ``hi`` and ``n``. Empty without CUDA.
    """
    pairs = _clocked(trials)
    sides: list[list[Any]] = [list(pairs[name]) for name in ("run_id", "cell_events", "cell_serialized")]
    events, steps = trials["timing"].isin(["events"]), trials["steps"].astype("float64")
    rows = []
    for phase in PHASES:
        nanoseconds = trials[f"device_{phase}_ns"].where(events, trials[f"host_{phase}_ns"]).astype("float64")
        # Blocks compare rates: here steps a second.
        ratios = Blocks(trials.assign(samples_per_s=steps * 1e9 / nanoseconds)).ratios(*sides)
        rows.append(pairs.assign(phase=phase, **{name: ratios[name] for name in ("ratio", "lo", "hi", "n")}))
    result = pd.concat(rows).sort_index(kind="stable")
    return result[result["n"] > 0].reset_index(drop=True)
