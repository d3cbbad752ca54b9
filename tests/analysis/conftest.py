"""Trials that were never measured: cells by their axes, throughputs as given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import pytest

from feedrate.schema.axes import AXES, Value, applicable, cell_id
from feedrate.schema.columns import TRIALS

DEFAULTS = {axis.name: axis.default for axis in AXES}
SECOND = 1_000_000_000


def make_cell(axes: Mapping[str, Value], device: str = "cpu") -> dict[str, Value]:
    """The axes that apply; those that are not named are at their default."""
    return applicable({**DEFAULTS, **axes}, device)[0]


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
                rows.append(
                    {
                        **common,
                        "block": block,
                        "outcome": "ok",
                        "samples": 1000,
                        "samples_per_s": rate,
                        "wall_ns": round(1000 * SECOND / rate),
                        **columns,
                    }
                )
    return pd.DataFrame(rows, columns=[column.name for column in TRIALS])


@pytest.fixture(scope="session")
def trials_of() -> Callable[..., pd.DataFrame]:
    """The builder of trials."""
    return make_trials


@pytest.fixture(scope="session")
def cell_of() -> Callable[..., dict[str, Value]]:
    """The builder of cells."""
    return make_cell
