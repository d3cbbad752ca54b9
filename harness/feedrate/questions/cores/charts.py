"""Images a second that a core loads, by decoder: read, decode, crop, resize; alone and with other cores busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import cells, rows_of
from feedrate.charts.figure import ENDS, Figure, Key, Panel, Row, Sheet, chart, data, interval, listed
from feedrate.charts.marks import BLOCKS, dots, height, hover, look, names, rate
from feedrate.charts.theme import SHAPES, colour
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
            lo, hi = (float(cell[end]) / workers if words.known(cell[end]) else None for end in ("lo", "hi"))
            rate = float(cell["samples_per_s"]) / workers
            every_core.append(Core(named(cell), workers, rate, lo, hi, int(cell["n"])))
    best = {core.decoder: core.value for core in sorted(every_core, key=lambda core: core.workers)}
    return sorted(every_core, key=lambda core: (-best[core.decoder], core.decoder, core.workers))


def _of_files(cell: Row) -> bool:
    return samples_of(str(cell["workload"])) == "files"


def busiest(cores: Sequence[Core]) -> list[Core]:
    """Of each decoder the rate with the most workers."""
    return list({core.decoder: core for core in cores}.values())


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


_COLUMNS = {"decoder": "decoder", "workers": "workers", "images per s and vCPU": "value", **ENDS}
_MISSING = "No image files were loaded in this run by as many workers as there are cores, or fewer."


@chart("Images a second, a vCPU", "How many images does a vCPU load, and with which decoder?")
def images_per_core(sheet: Sheet, trials: pd.DataFrame, cores: int) -> Figure:
    """Draw the rate of a core by decoder, a mark for each number of workers."""
    rows = [{**asdict(core), "who": words.plural(core.workers, "worker")} for core in per_core(trials, cores)]
    order = sorted({(row["workers"], row["who"]) for row in rows})
    looks = {who: (colour(f"name-{at % 6}"), SHAPES[at % len(SHAPES)]) for at, (_, who) in enumerate(order)}
    if rows:
        decoders = list(dict.fromkeys(row["decoder"] for row in rows))
        tone, shape = look("who", looks, set(looks))
        base = alt.Chart(data(rows, "decoder", "who", "workers", "value", "lo", "hi", "n"))
        base = base.encode(y=names("decoder", decoders), color=tone)
        tooltip = hover({"decoder:N": "", "who:N": "", **rate("images per second and vCPU"), **BLOCKS})
        x = {"title": "images per second and vCPU", "scale": alt.Scale(zero=True)}
        subtitle = f"{words.plural(cores, 'vCPU')}; decode, random crop, resize to 224 px"
        panel = Panel.draw(
            "What a vCPU loads", subtitle, _message(rows), dots(base, x, shape, tooltip), height(len(decoders))
        )
        sheet.add(panel, listed(rows, {}, _COLUMNS))
    sheet.note(
        "Images a second of the loader ÷ its workers; a vCPU is a hardware thread. Scaled: the JPEG file is decoded at "
        "a half, a quarter or an eighth of its size where the crop keeps enough pixels. "
        "Intervals are Student’s t over blocks, on logs."
    )
    return sheet.figure([Key(who, *pair) for who, pair in looks.items()], _MISSING)


def _message(rows: Sequence[Row]) -> str:
    """The fastest and the slowest decoder with the most workers."""
    most = max(row["workers"] for row in rows)
    busy = [row for row in rows if row["workers"] == most]
    best, worst = busy[0], busy[-1]
    text = f"a vCPU loads {words.number(best['value'])} images a second with {best['decoder']} ({interval(best)})"
    if worst is not best:
        times = words.times(best["value"] / worst["value"])
        text += f", {times} what it does with {worst['decoder']}"
    return words.sentence(f"{text}, {words.plural(most, 'worker')} busy")
