"""Which cells a panel shows: one workload, patch size and kind of step, every other axis held still and said.

Real training, an emulated step and loading alone are never drawn in one panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from harness.axes import AXES, BY_NAME

PANEL_AXES = ("workload", "patch_size", "mode", "step", "step_ms", "model")
PHOTOGRAPHS = ("div2k", "div2k_standin", "folder")
TRAIN, EMULATED, LOAD = "train", "emulated", "load"


@dataclass(frozen=True, slots=True)
class Slice:
    """The cells of one panel."""

    workload: str
    patch_size: int
    kind: str
    """``train``, ``emulated`` or ``load``."""
    subtitle: str
    frame: pd.DataFrame

    @property
    def title(self) -> str:
        """Workload and patch size, as the panel's first line says them."""
        return f"{self.workload}, {self.patch_size} px"

    def row(self) -> dict[str, Any]:
        """The columns that tell this panel's rows from those of others."""
        return {"workload": self.workload, "patch_size": self.patch_size, "what ran": self.subtitle}


def measured(cells: pd.DataFrame) -> pd.DataFrame:
    """Keep the cells with at least one trial that ended well."""
    return cells[cells["n"].fillna(0).gt(0) & cells["samples_per_s"].notna()] if len(cells) else cells


def _kind(mode: str, step: Any) -> str:
    return mode if mode != "train" else EMULATED if step == "emulated" else TRAIN


def _subtitle(kind: str, cell: Any) -> str:
    device = "GPU" if cell["device"] == "cuda" else "CPU"
    if kind == EMULATED:
        return f"emulated step: a sleep of {float(cell['step_ms']):g} ms, no model"
    if kind == LOAD:
        return "loading alone, no model"
    return f"real training of {cell['model']} on the {device}"


def slices(cells: pd.DataFrame, kinds: Sequence[str]) -> list[Slice]:
    """Split measured cells into panels, photographs first, then by patch size, then in the order of ``kinds``."""
    found = []
    frame = measured(cells)
    if not len(frame):
        return []
    keys = [frame[name].astype(object).where(frame[name].notna(), None) for name in PANEL_AXES]
    for values, part in frame.groupby(keys, dropna=False, sort=False):
        cell: dict[str, Any] = dict(zip(PANEL_AXES, values, strict=True))
        kind = _kind(str(cell["mode"]), cell["step"])
        if kind in kinds:
            subtitle = _subtitle(kind, {**cell, "device": part["device"].iloc[0]})
            found.append(Slice(str(cell["workload"]), int(cell["patch_size"]), kind, subtitle, part))
    return sorted(
        found, key=lambda s: (s.workload not in PHOTOGRAPHS, s.workload, s.patch_size, kinds.index(s.kind), s.subtitle)
    )


def held(frame: pd.DataFrame, free: Sequence[str]) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Hold every axis still that a panel does not show: at PyTorch's default where it was measured, else at the least.

    Returns:
        The cells that remain, and the axes that had more than one value with the one that was kept. A cell in which an
        axis does not apply remains.
    """
    kept: dict[str, Any] = {}
    axes = [axis for axis in AXES if axis.name not in (*free, *PANEL_AXES)]
    table = frame[[axis.name for axis in axes]].to_numpy(dtype=object)
    known = ~pd.isna(table)
    table = np.where(known, table, np.array(None))
    remain = np.ones(len(frame), dtype=bool)
    for axis, column, applies in zip(axes, table.T, known.T, strict=True):
        values = sorted(set(column[remain & applies]))
        if len(values) > 1:
            kept[axis.name] = axis.default if axis.default in values else values[0]
            remain &= ~applies | (column == kept[axis.name]).astype(bool)
    return frame[remain], kept


def numbers(frame: pd.DataFrame, axis: str) -> list[int]:
    """List the values of an axis of whole numbers, ascending."""
    return sorted(int(value) for value in frame[axis].dropna().unique())


def plain(value: Any) -> Any:
    """Turn a cell of a frame into a plain Python value; null and NaN become None."""
    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value


def axis_title(name: str) -> str:
    """Title of an axis that shows a knob: its name as PyTorch spells it."""
    unit = BY_NAME[name].unit
    return f"{name} ({unit})" if unit and name != "batch_size" else name
