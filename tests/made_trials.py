"""Trials that were never measured: cells by their axes, throughputs as given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from feedrate.schema.axes import AXES, Value, applicable, cell_id
from feedrate.schema.columns import STEPS, TRIALS

SECOND = 1_000_000_000


def make_cell(axes: Mapping[str, Value], device: str = "cpu") -> dict[str, Value]:
    """The axes that apply; those that are not named are at their default."""
    return applicable({axis.name: axis.default for axis in AXES} | dict(axes), device)[0]


def make_trials(
    rates: Sequence[tuple[Mapping[str, Value], Sequence[float | None]]],
    *,
    device: str = "cpu",
    run_id: str = "run",
    **columns: Any,
) -> pd.DataFrame:
    """Rows of the trials table.

    Args:
        rates: for each cell its axes (others at their default) and its samples/s block by block; None is a failure,
            NaN one that was never begun.
        device: cpu or cuda.
        run_id: the run.
        **columns: further columns, the same in every trial that ended well.
    """
    rows = []
    for axes, values in rates:
        cell = make_cell(axes, device)
        common = {
            **cell,
            "cell_id": cell_id(cell),
            "run_id": run_id,
            "machine_id": "machine",
            "suite": "loader",
            "device": device,
            "protocol_version": 1,
            "workload_version": 1,
        }
        for block, rate in enumerate(values):
            if rate is None:
                rows.append({**common, "block": block, "outcome": "error"})
            elif rate == rate:
                ended = {
                    "outcome": "ok",
                    "samples": 1000,
                    "samples_per_s": rate,
                    "wall_ns": round(1000 * SECOND / rate),
                }
                rows.append({**common, "block": block, **ended, **columns})
    return pd.DataFrame(rows, columns=[column.name for column in TRIALS])


def make_steps(trial: str, count: int, **columns: Any) -> pd.DataFrame:
    """Rows of the steps table of one trial: a number stands for all steps, a list has one for each."""
    given = {"run_id": "run", "trial_id": trial, "step": range(count)} | columns
    frame = pd.DataFrame(given).reindex(columns=[column.name for column in STEPS])
    return frame.astype({column.name: {"int64": "Int64", "string": "string"}[column.dtype] for column in STEPS})
