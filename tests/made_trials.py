"""Trials that were never measured: cells by their axes, throughputs as given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
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
    """Rows of the trials table: each cell's axes and samples/s by block; None failed, NaN never began.

    ``columns`` are the same in every trial that ended well.
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
                if cell.get("page_cache") == "cold":  # as it must be, all was read from storage
                    ended |= {"read_bytes": 1_000_000, "stored_bytes": 1000 * int(cell["n_samples"] or 1)}
                    ended["cached_before_pct"] = 0.0
                rows.append({**common, "block": block, **ended, **columns})
    return pd.DataFrame(rows, columns=[column.name for column in TRIALS])


def make_steps(trial: str, count: int, **columns: Any) -> pd.DataFrame:
    """Rows of the steps table of one trial: a number stands for all steps, a list has one for each."""
    given = {"run_id": "run", "trial_id": trial, "step": range(count)} | columns
    frame = pd.DataFrame(given).reindex(columns=[column.name for column in STEPS])
    return frame.astype({column.name: {"int64": "Int64", "string": "string"}[column.dtype] for column in STEPS})


STEADY = (100.0, 101.0, 99.0, 100.0)


def times(factor: float, wobble: float = 0.0) -> list[float]:
    """STEADY, faster by a factor, with alternating noise of its own."""
    return [rate * factor * (1 + wobble * (-1) ** block) for block, rate in enumerate(STEADY)]


WEATHER = (1.0, 0.93, 1.08, 1.02)
"""What every cell of a block is faster by: pairing must take it out."""
BYTES = {"png": 600, "jpeg": 100, "lmdb_lz4": 900, "lmdb_png": 600, "hdf5_chunked": 700}
"""On disk for a sample of 1,000 bytes of pixels, which all others take whole."""


def format_cells(
    rates: Mapping[str, float], jitter: float = 0.0, **axes: Any
) -> list[tuple[dict[str, Any], list[float]]]:
    """Cells of loading alone by format, with their rates in every block."""
    given_axes = {"mode": "load", "workload": "div2k", **axes}
    noise = [1 + jitter * step for step in (0, 1, -1, 2)]
    return [
        (
            {**given_axes, "storage_format": name},
            [rate * weather * noise[(block + place) % 4] for block, weather in enumerate(WEATHER)],
        )
        for place, (name, rate) in enumerate(rates.items())
    ]


def make_format_trials(cells: Sequence[tuple[dict[str, Any], list[float]]], **columns: Any) -> pd.DataFrame:
    """Trials of cells, with what the page cache held and what a sample takes on disk."""
    frame = make_trials(cells, steps=10, main_cpu_pct=100.0, startup_ns=10_000_000, **columns)
    frame["cached_before_pct"] = np.where(frame["page_cache"].eq("cold"), 0.0, 100.0)
    sizes = [BYTES.get(str(name), 1000) for name in frame["storage_format"]]
    frame["stored_bytes"] = np.array(sizes) * frame["n_samples"].astype("int64")
    frame["batch_bytes"] = 4000 * frame["batch_size"].astype("int64")
    frame["pack_ns"] = 2_000_000_000
    return frame
