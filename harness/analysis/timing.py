"""Two clocks of one step: CUDA events against a host that waits for the device after every phase.

``timing: events`` leaves the device's queue alone and reads spans after the window; a span contains launch gaps.
``timing: serialized`` synchronises after every phase: the host's phase is then the device's work, its launch and the
synchronisation, and nothing overlaps. So a phase's two times should agree (a ratio near 1; under 1 by what launching
costs), and the step's wall clock may only be shorter with events, by what overlap hides. A phase whose span is *longer*
than its serialized time (a copy that waits for a busy stream, say) is not what it seems.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.analysis.blocks import KEYS, Blocks
from harness.analysis.estimates import identities
from harness.analysis.rows import rows_of
from harness.axes import AXES, cell_id

PHASES = ("h2d", "forward", "backward", "optimizer")
"""Phases that both clocks time."""
COLUMNS = ("run_id", "cell_events", "cell_serialized", "phase", "ratio", "lo", "hi", "n")
HIDDEN_COLUMNS = ("run_id", "cell_events", "cell_serialized", "hidden", "lo", "hi", "n")


def _pairs(trials: pd.DataFrame) -> pd.DataFrame:
    """Cells of one run that differ in ``timing`` alone: (run_id, cell_events, cell_serialized)."""
    cells = identities(trials)
    known = set(cells[KEYS].itertuples(index=False, name=None))
    found = []
    for row in rows_of(cells[cells["timing"].isin(["serialized"])]):
        own = {axis.name: axis.type(row[axis.name]) for axis in AXES if not pd.isna(row[axis.name])}
        twin = cell_id({**own, "timing": "events"})
        if (row["run_id"], twin) in known:
            found.append((row["run_id"], twin, row["cell_id"]))
    return pd.DataFrame(found, columns=["run_id", "cell_events", "cell_serialized"])


def _ratios(trials: pd.DataFrame, pairs: pd.DataFrame, nanoseconds: pd.Series) -> pd.DataFrame:
    """Time with events ÷ time serialized, a step, paired by block (``Blocks`` compares rates: steps a second)."""
    rates = trials.assign(samples_per_s=trials["steps"].astype("float64") * 1e9 / nanoseconds.astype("float64"))
    sides: list[list[Any]] = [list(pairs[name]) for name in ("run_id", "cell_events", "cell_serialized")]
    return Blocks(rates).ratios(*sides)


def cross_check(trials: pd.DataFrame) -> pd.DataFrame:
    """Compare what CUDA events say of each phase with what a synchronising host says.

    Args:
        trials: rows of ``records.TRIALS`` of any number of runs.

    Returns:
        A row per pair of cells that differ in ``timing`` alone and phase that both have: ``COLUMNS``, of which
        ``ratio`` is the device's span (events) ÷ the host's phase (serialized), a step, paired by block, with its 95 %
        interval and the number of pairs. Empty without CUDA.
    """
    pairs = _pairs(trials)
    events = trials["timing"].isin(["events"])
    found = []
    for phase in PHASES:
        times = trials[f"device_{phase}_ns"].where(events, trials[f"host_{phase}_ns"])
        ratios = _ratios(trials, pairs, times)
        found.append(pairs.assign(phase=phase, **{name: ratios[name] for name in ("ratio", "lo", "hi", "n")}))
    result = pd.concat(found).sort_index(kind="stable")
    return result[result["n"] > 0].reset_index(drop=True)[list(COLUMNS)]


def hidden(trials: pd.DataFrame) -> pd.DataFrame:
    """Say how much of a serialized step overlap hides: 1 - its wall clock with events ÷ serialized.

    Args:
        trials: rows of ``records.TRIALS`` of any number of runs.

    Returns:
        A row per pair of cells that differ in ``timing`` alone: ``HIDDEN_COLUMNS``; the share with its 95 % interval,
        paired by block, and the number of pairs. A share below 0 says that the clocks disturb more than overlap hides.
    """
    pairs = _pairs(trials)
    ratios = _ratios(trials, pairs, trials["wall_ns"])
    shares = {"hidden": 1 - ratios["ratio"], "lo": 1 - ratios["hi"], "hi": 1 - ratios["lo"], "n": ratios["n"]}
    return pairs.assign(**shares)[list(HIDDEN_COLUMNS)]
