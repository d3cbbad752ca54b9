"""Images a second that a core loads, by decoder: read, decode, crop, resize; alone and with other cores busy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.estimates import cells, rows_of
from feedrate.charts.figure import ENDS, Figure, Row, Sheet, chart, listed
from feedrate.charts.plot import Plot, Side, amount, core_marks, keys, names, of_workers, unlike
from feedrate.schema import words
from feedrate.schema.plugins import on_device, samples_of

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


DECLARED = {
    "an A100 with ResNet-50 in TF32": 938.0,
    "an A100 with ResNet-50 in mixed precision": 2470.0,
    "an H100 as in MLPerf Storage": 400 / 0.224,
}
"""Images a second that a GPU trains: by NVIDIA's DeepLearningExamples (ResNet-50 v1.5, PyTorch), and as MLPerf Storage
has an H100 sleep for 400 images."""
PLACES = 24
"""Numbers of vCPUs of a line."""


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
    """What a core loads, by decoder and workers, the fastest decoder first; ``cores`` might be used."""
    every_core = []
    for cell in rows_of(cells(trials)):
        workers = max(1, int(cell["num_workers"] or 0)) if cell["mode"] == "load" else 0
        decoded = _of_files(cell) and cell["storage_format"] == "folder" and not on_device(str(cell["decoder"]))
        in_its_place = cell["device"] == "cpu" and cell["normalize_on"] == "device"
        if decoded and not in_its_place and cell["n"] and 0 < workers <= cores:
            lo, hi = (float(cell[end]) / workers if words.is_number(cell[end]) else None for end in ("lo", "hi"))
            rate = float(cell["samples_per_s"]) / workers
            every_core.append(Core(named(cell), workers, rate, lo, hi, int(cell["n"])))
    best = {core.decoder: core.value for core in sorted(every_core, key=lambda core: core.workers)}
    return sorted(every_core, key=lambda core: (-best[core.decoder], core.decoder, core.workers))


def _of_files(cell: Row) -> bool:
    return samples_of(str(cell["workload"])) == "files"


def busiest(cores: Sequence[Core]) -> list[Core]:
    """Of each decoder the rate with the most workers that all decoders ran with, the fastest decoder first."""
    by_decoder: dict[str, dict[int, Core]] = {}
    for core in cores:
        by_decoder.setdefault(core.decoder, {})[core.workers] = core
    common = set.intersection(*map(set, by_decoder.values())) if by_decoder else set()
    chosen = [ran[max(common or ran)] for ran in by_decoder.values()]
    return sorted(chosen, key=lambda core: -core.value)


def named(cell: Row) -> str:
    """Name a cell's decoder."""
    name = NAMES.get(str(cell["decoder"]), str(cell["decoder"]))
    return f"{name}, scaled" if cell["scaled_decode"] is True else name


def on_gpu(trials: pd.DataFrame, mode: str) -> list[Row]:
    """What a GPU trains on image files in ``mode`` compute (batches that are there) or train, the fastest first."""
    kept = [
        cell
        for cell in rows_of(cells(trials))
        if cell["mode"] == mode and cell["device"] == "cuda" and cell["n"] and _of_files(cell)
    ]
    return sorted(kept, key=lambda cell: -cell["samples_per_s"])


def rates_of(trials: pd.DataFrame) -> dict[str, float]:
    """Images a second that GPUs train: as the run measured it, else as others declare it."""
    measured = on_gpu(trials, "compute")
    return {f"this GPU with {cell['model']}": float(cell["samples_per_s"]) for cell in measured} or DECLARED


_COLUMNS = {"decoder": "decoder", "workers": "workers", "images per s and vCPU": "value", **ENDS}
_IDLE_COLUMNS = {"decoder": "decoder", "vCPUs": "at", "idle (%)": "value", "low": "lo", "high": "hi"}
_MISSING = "No image files were loaded in this run by as many workers as there are cores, or fewer."


@chart("Images per second and vCPU", "How many images does a vCPU load, and with which decoder?")
def images_per_core(sheet: Sheet, trials: pd.DataFrame, cores: int) -> Figure:
    """Draw the rate of a core by decoder, a mark for each number of workers."""
    loaded = per_core(trials, cores)
    rows = [{**asdict(core), "who": words.plural(core.workers, "worker")} for core in loaded]
    looks = of_workers(sorted({row["workers"] for row in rows}))
    if rows:
        x = amount("value", "images per second and vCPU")
        y = names("decoder", (row["decoder"] for row in rows))
        subtitle = f"{_vcpus(cores)}; decode, random crop, resize to 224 px"
        plot = Plot(rows, x, y, "who", looks)
        sheet.add(plot.panel("What a vCPU loads", subtitle, _message(busiest(loaded))), listed(rows, {}, _COLUMNS))
    sheet.note(
        "Images a second of the loader ÷ its workers; a vCPU is a hardware thread. Scaled: the decoder reads a "
        "JPEG file at 1/2, 1/4 or 1/8 of its size where the crop keeps enough pixels. Intervals: Student’s t over "
        "repetitions, on logs."
    )
    return sheet.figure(keys(looks), _MISSING)


def _vcpus(cores: float) -> str:
    """Count vCPUs; a quota may allow a part of one."""
    return words.plural(int(cores), "vCPU") if cores == int(cores) else f"{cores:g} vCPUs"


def _message(loaded: Sequence[Core]) -> str:
    """The fastest and the slowest decoder, with as many workers each."""
    best, worst = loaded[0], loaded[-1]
    spread = words.interval(best.lo, best.hi, best.n)
    text = f"a vCPU loads {words.number(best.value)} images a second with {best.decoder} ({spread})"
    if worst is not best:
        text += f", {words.times(best.value / worst.value)} the speed with {worst.decoder}"
    return words.sentence(f"{text}, {words.plural(best.workers, 'worker')} busy")


@chart("GPU idle against cores", "How many vCPUs keep a GPU busy?")
def gpu_idle(sheet: Sheet, trials: pd.DataFrame, cores: int) -> Figure:
    """Draw a GPU’s idle share against its vCPUs, a panel a GPU, with the fastest and the slowest decoder."""
    every = busiest(per_core(trials, cores))
    ends = {0, len(every) - 1}  # the fastest and the slowest: the others lie between
    loaded = [core for at, core in enumerate(every) if at in ends]
    looks = {name: (tint, "rule") for name, (tint, _) in unlike(core.decoder for core in loaded).items()}
    for name, trained in rates_of(trials).items() if loaded else ():
        most = math.ceil(1.1 * loaded[-1].needed(trained))
        places = sorted({*np.linspace(1, most, PLACES).round().astype(int).tolist(), min(cores, most)})
        rows = [_idle(core, trained, vcpus) for core in loaded for vcpus in places]
        scale, axis = {"nice": False, "zero": True}, {"grid": False, "tickCount": 6}
        x, y = Side("at", "vCPUs", scale, axis), Side("value", "GPU idle (%)", {"domain": [0, 100]}, {"tickCount": 5})
        behind = core_marks([cores], x, places[-1])
        plot = Plot(rows, x, y, "decoder", looks, curve=True, behind=behind)
        message = _idle_message(loaded, trained, cores)
        panel = plot.panel(name, f"{words.number(trained)} images a second", message)
        sheet.add(panel, listed(rows, {"GPU": name}, _IDLE_COLUMNS))
    for core in loaded[:1]:
        rest = "" if core.workers >= cores else f" With all {_vcpus(cores)} busy each may load less."
        sheet.note(f"We assume that each vCPU loads as much as one does with {core.workers} of them busy.{rest}")
    return sheet.figure(keys(looks), _MISSING)


def _idle(core: Core, trained: float, vcpus: int) -> dict[str, Any]:
    low, high = (None if end is None else 100 * max(0.0, 1 - end * vcpus / trained) for end in (core.hi, core.lo))
    value = 100 * core.idle(trained, vcpus)
    return {"decoder": core.decoder, "at": vcpus, "value": value, "lo": low, "hi": high}


def _idle_message(loaded: Sequence[Core], trained: float, cores: int) -> str:
    """What the fastest decoder needs, and how idle the GPU is with this machine's."""
    best = loaded[0]
    needs = f"With {best.decoder}, {words.number(best.needed(trained), 2)} vCPUs keep it busy"
    idle = best.idle(trained, cores)
    return f"{needs}; with {cores:g} it idles {words.percent(idle)}." if idle else f"{needs}; {cores:g} feed it."
