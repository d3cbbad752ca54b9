"""Trials → one estimate a cell: throughput with its interval, where the time went, what was observed beside it.

Throughput is the geometric mean over blocks of samples ÷ wall clock; its interval says what another block would give
on the same machine in the same hours, nothing about other machines. ``samples_per_s`` of a trial is taken from the
records, whose validator has recomputed it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, memoized, over_blocks, successful
from feedrate.analysis.estimate import RATE
from feedrate.schema.columns import AXIS_COLUMNS, DEVICE_SPANS, PHASES

IDENTITY = ("run_id", "cell_id", "machine_id", "suite", "device", "protocol_version", "workload_version")
AXIS_NAMES = tuple(column.name for column in AXIS_COLUMNS)
MEDIANS = (
    *("gpu_util_pct", "gpu_power_w", "gpu_sm_clock_mhz", "gpu_mem_peak_bytes"),
    *("cpu_util_pct", "main_cpu_pct", "workers_cpu_pct"),
    *("uss_peak_bytes", "pss_peak_bytes", "shm_bytes", "read_bytes", "startup_ns", "first_batch_ns"),
)
"""Columns of trials of which the median over blocks is kept, under the same name."""
_SHARES = {
    **{f"{phase}_share": f"host_{phase}_ns" for phase in PHASES},
    **{f"device_{span}_share": f"device_{span}_ns" for span in DEVICE_SPANS},
}
_NUMBERS = (
    "n",
    "failed",
    "samples_per_s",
    "lo",
    "hi",
    "cv_pct",
    *_SHARES,
    "steady_share",
    "drained_steps",
    "joules_per_sample",
)


def identities(trials: pd.DataFrame) -> pd.DataFrame:
    """The columns of ``IDENTITY`` and every axis (null where it does not apply), a row a cell in order of appearance.

    Checks, which time nothing, are left out; a column that ``trials`` lacks counts as null.
    """
    first = ~trials.duplicated(KEYS)
    if "mode" in trials:
        first &= trials["mode"].ne("check").fillna(True)
    return trials.reindex(columns=[*IDENTITY, *AXIS_NAMES])[first].reset_index(drop=True)


def asked(trials: pd.DataFrame, cells: pd.DataFrame) -> pd.Series:
    """Whether the matrix asked for each of some cells, which others (a ceiling, the control) only serve; index kept."""
    serves = trials["role"].isin(["ceiling", "control"]).fillna(False).astype(bool)
    asked_cells = pd.MultiIndex.from_frame(trials.loc[~serves, KEYS].drop_duplicates())
    return pd.Series(pd.MultiIndex.from_frame(cells[KEYS]).isin(asked_cells), cells.index)


def _by_block(trials: pd.DataFrame) -> pd.DataFrame:
    """Float columns of each cell in each block, trials of one block averaged; index (run_id, cell_id, block)."""
    wanted = sorted(
        {
            *_SHARES.values(),
            *MEDIANS,
            "wall_ns",
            "steps",
            "host_drain_ns",
            "steady",
            "gpu_energy_j",
            "gpu_energy_ns",
            "samples",
        }
    )
    ended = successful(trials.reindex(columns=[*KEYS, "block", "outcome", "samples_per_s", *wanted]))
    given = ended[wanted].astype("float64")
    columns = {share: given[column] / given["wall_ns"] for share, column in _SHARES.items()}
    columns |= {column: given[column] for column in MEDIANS}
    columns["steady_share"] = given["steady"]
    columns["drained_steps"] = given["host_drain_ns"] * given["steps"] / given["wall_ns"]
    # The counter was read a little before and after the window.
    window_share = given["wall_ns"] / given["gpu_energy_ns"]
    columns["joules_per_sample"] = given["gpu_energy_j"] * window_share / given["samples"]
    frame = pd.DataFrame(columns, index=ended.index).assign(log_rate=np.log(ended["samples_per_s"].astype("float64")))
    return frame.groupby([ended["run_id"], ended["cell_id"], ended["block"]]).mean()


@memoized
def cells(trials: pd.DataFrame) -> pd.DataFrame:
    """Estimate every cell of every run.

    Returns:
        A row a cell, in order of appearance: the columns of ``IDENTITY``, every axis, and ``n`` (blocks that ended
        well), ``failed`` (trials that did not), ``samples_per_s`` (geometric mean over blocks) with its interval
        ``lo``, ``hi``, ``cv_pct`` (standard deviation ÷ mean between blocks), ``<phase>_share`` and
        ``device_<span>_share`` (mean share of the window's wall clock), ``steady_share`` (share of steady trials),
        ``drained_steps`` (mean of what the device had left to do behind the window, in steps' time),
        ``joules_per_sample`` and ``MEDIANS`` (medians over blocks). A cell whose every trial failed has NaN throughout
        and n = 0.
    """
    blocks = _by_block(trials)
    groups = blocks.groupby(level=KEYS)
    rates = np.exp(blocks["log_rate"]).groupby(level=KEYS)
    shares, medians = [*_SHARES, "steady_share", "drained_steps"], ["joules_per_sample", *MEDIANS]
    numbers = pd.concat([groups[shares].mean(), groups[medians].median()], axis=1).assign(
        cv_pct=100 * rates.std() / rates.mean(),
        **over_blocks(blocks["log_rate"], RATE, np.exp),
    )
    result = identities(trials).merge(numbers.reset_index(), on=KEYS, how="left")
    failures = (trials["outcome"] != "ok").groupby([trials["run_id"], trials["cell_id"]]).sum()
    result["failed"] = failures.reindex(pd.MultiIndex.from_frame(result[KEYS])).to_numpy(dtype="int64")
    result["n"] = result["n"].fillna(0).astype("int64")
    return result[[*IDENTITY, *AXIS_NAMES, *_NUMBERS, *MEDIANS]]


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """List the rows of a frame, each as column name to plain value; null is None, but NaN in a column of floats.

    Five times as fast as pandas' own ``to_dict``, which asks for every column of every frame anew.
    """
    names = [str(name) for name in frame.columns]
    return [dict(zip(names, map(_plain, row), strict=True)) for row in frame.to_numpy(dtype=object).tolist()]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return None if value is pd.NA else value
