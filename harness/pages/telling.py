"""Which training cells of a suite tell most about what holds each of its tasks back.

A matrix has hundreds of them. Of each task these are the fastest, the one with PyTorch's defaults at the same format
and batch, the least efficient, and the fastest of every other bottleneck.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.analysis.blocks import KEYS
from harness.analysis.contrasts import keys_of
from harness.analysis.rows import rows_of
from harness.analysis.summary import CONDITIONS, KNOBS
from harness.axes import BY_NAME
from harness.charts import _words as words
from harness.charts._slices import EMULATED, PHOTOGRAPHS
from harness.pages.gathered import Shown

CELLS = 6
"""Cells of a task that are shown."""


def training_cells(shown: Shown, suite: str) -> pd.DataFrame:
    """Training cells of a suite that ended well, with what is known of their stages and their overlap."""
    own = shown.judged
    own = own[own["suite"].eq(suite).fillna(False) & own["mode"].eq("train") & own["samples_per_s"].notna()]
    stages = shown.stages.drop(columns="n")
    stages["dominant_share"] = [
        row[f"{row['dominant']}_share"] if isinstance(row["dominant"], str) else None for row in rows_of(stages)
    ]
    return own.merge(stages, on=KEYS, how="left").merge(shown.overlap, on=KEYS, how="left").reset_index(drop=True)


@dataclass(frozen=True, slots=True)
class Task:
    """Cells of the same conditions."""

    cells: pd.DataFrame
    told: list[tuple[str, dict[Any, Any]]]
    """Why a cell is shown, and the cell."""

    @property
    def fastest(self) -> dict[Any, Any]:
        """The one of which a task's sentence speaks."""
        return self.told[0][1]


def by_task(cells: pd.DataFrame) -> list[pd.DataFrame]:
    """Split by conditions: real training first, photographs before synthetic samples."""
    groups = [group for _, group in cells.groupby(keys_of(cells, CONDITIONS), sort=False, dropna=False)]

    def rank(group: pd.DataFrame) -> tuple[Any, ...]:
        first = group.iloc[0]
        return first["step"] == EMULATED, first["workload"] not in PHOTOGRAPHS, first["workload"], first["patch_size"]

    return sorted(groups, key=rank)


def telling(cells: pd.DataFrame) -> Task:
    """Choose the cells that tell most, the fastest first."""
    ranked: list[dict[Any, Any]] = rows_of(cells.sort_values("samples_per_s", ascending=False, kind="stable"))
    fastest = ranked[0]
    wanted = [("fastest", fastest), *((("PyTorch’s defaults", cell),) if (cell := _default(ranked, fastest)) else ())]
    known = [cell for cell in ranked if words.known(cell["efficiency"])]
    if known:
        wanted.append(("least efficient", min(known, key=lambda cell: float(cell["efficiency"]))))
    for cell in ranked:
        if cell["bottleneck"] not in {other["bottleneck"] for _, other in wanted}:
            wanted.append((f"fastest that is {cell['bottleneck']}", cell))
    merged: dict[str, tuple[list[str], dict[Any, Any]]] = {}
    for reason, cell in wanted:
        merged.setdefault(cell["cell_id"], ([], cell))[0].append(reason)
    return Task(cells, [(", ".join(reasons), cell) for reasons, cell in merged.values()][:CELLS])


def _default(cells: list[dict[Any, Any]], fastest: Mapping[Any, Any]) -> dict[Any, Any] | None:
    """The cell of the fastest one's format and batch whose every other knob is at its default."""
    given = {name: fastest[name] for name in ("storage_format", "batch_size")}
    wanted = {name: given.get(name, BY_NAME[name].default) for name in KNOBS}
    return next(
        (cell for cell in cells if all(pd.isna(cell[name]) or cell[name] == wanted[name] for name in KNOBS)), None
    )
