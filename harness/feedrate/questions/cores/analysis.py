"""Images a second that a core loads, and that a GPU trains on; the one over the other are the cores that it needs.

A core's rate is the loader's ÷ its workers, where no more of them ran than there are cores: with all cores busy a core
does less than alone, so that the rate of the most workers counts. The loader's other process, which takes batches over,
runs beside them; what it takes is thereby charged to the workers. Pixels that a GPU would normalise, and that a CPU had
to in its place (``normalize_on: device`` on a CPU), are no core's rate: that takes a core of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from feedrate.analysis.estimates import cells, rows_of
from feedrate.schema import words
from feedrate.schema.plugins import on_device, samples_of

Row = Mapping[Any, Any]
NAMES = {
    "pil": "Pillow",
    "torchvision": "torchvision",
    "cv2": "OpenCV",
    "simplejpeg": "simplejpeg",
    "imagecodecs": "imagecodecs",
    "kornia": "kornia-rs",
    "nvjpeg": "nvJPEG",
}
"""Decoders as their authors write them."""


@dataclass(frozen=True, slots=True)
class Core:
    """What a core loads with one decoder."""

    decoder: str
    """In words."""
    workers: int
    """Worker processes that ran; as many cores were busy."""
    value: float
    """Images a second and core."""
    lo: float | None
    hi: float | None
    n: int
    """Blocks."""

    def needed(self, rate: float) -> float:
        """How many such cores load as many images a second as a GPU trains."""
        return rate / self.value

    def idle(self, rate: float, cores: int) -> float:
        """Share of the time that such a GPU has nothing to do, fed by so many cores."""
        return max(0.0, 1 - self.value * cores / rate)


def per_core(trials: pd.DataFrame, cores: int) -> list[Core]:
    """What a core loads, by decoder and workers, the fastest decoder first.

    Args:
        trials: of one run.
        cores: that it might use.
    """
    found = []
    for cell in rows_of(cells(trials)):
        workers = max(1, int(cell["num_workers"] or 0)) if cell["mode"] == "load" else 0
        decoded = _of_files(cell) and cell["storage_format"] == "folder" and not on_device(str(cell["decoder"]))
        in_its_place = cell["device"] == "cpu" and cell["normalize_on"] == "device"
        if decoded and not in_its_place and cell["n"] and 0 < workers <= cores:
            lo, hi = (float(cell[end]) / workers if words.known(cell[end]) else None for end in ("lo", "hi"))
            rate = float(cell["samples_per_s"]) / workers
            found.append(Core(named(cell), workers, rate, lo, hi, int(cell["n"])))
    best = {core.decoder: core.value for core in sorted(found, key=lambda core: core.workers)}
    return sorted(found, key=lambda core: (-best[core.decoder], core.decoder, core.workers))


def _of_files(cell: Row) -> bool:
    return samples_of(str(cell["workload"])) == "files"


def busiest(found: Sequence[Core]) -> list[Core]:
    """Of each decoder the rate with the most workers."""
    return list({core.decoder: core for core in found}.values())


def named(cell: Row) -> str:
    """Name a cell's decoder."""
    name = NAMES.get(str(cell["decoder"]), str(cell["decoder"]))
    return f"{name}, scaled" if cell["scaled_decode"] is True else name


def on_gpu(trials: pd.DataFrame, mode: str) -> list[Row]:
    """What a GPU trains on image files, a row a cell, the fastest first.

    Args:
        trials: of one run.
        mode: ``compute`` (batches that are there already) or ``train`` (fed by the loader).
    """
    kept = [
        cell
        for cell in rows_of(cells(trials))
        if cell["mode"] == mode and cell["device"] == "cuda" and cell["n"] and _of_files(cell)
    ]
    return sorted(kept, key=lambda cell: -cell["samples_per_s"])
