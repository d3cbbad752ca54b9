"""Images a second that a core loads, by decoder: read, decode, crop, resize; alone and with other cores busy."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from feedrate.analysis.estimates import cells, rows_of
from feedrate.charts.figure import ENDS, Figure, Row, Sheet, chart, interval, listed
from feedrate.charts.plot import Plot, amount, keys, names, of_workers
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
_COLUMNS = {"decoder": "decoder", "workers": "workers", "images per s and vCPU": "value", **ENDS}


def per_core(trials: pd.DataFrame, cores: float) -> list[Row]:
    """What a core loads, by decoder and workers (as many cores are busy), the fastest decoder first.

    ``cores`` might be used. A row has ``value``, images a second and core, with its interval.
    """
    every: list[Row] = []
    for cell in rows_of(cells(trials)):
        workers = max(1, int(cell["num_workers"] or 0)) if cell["mode"] == "load" else 0
        decoded = of_files(cell) and cell["storage_format"] == "folder" and not on_device(str(cell["decoder"]))
        in_its_place = cell["device"] == "cpu" and cell["normalize_on"] == "device"
        if decoded and not in_its_place and cell["n"] and 0 < workers <= cores:
            lo, hi = (float(cell[end]) / workers if words.is_number(cell[end]) else None for end in ("lo", "hi"))
            ends = {"value": float(cell["samples_per_s"]) / workers, "lo": lo, "hi": hi, "n": int(cell["n"])}
            every.append({"decoder": named(cell), "workers": workers, **ends})
    best = {row["decoder"]: row["value"] for row in sorted(every, key=lambda row: row["workers"])}
    return sorted(every, key=lambda row: (-best[row["decoder"]], row["decoder"], row["workers"]))


def of_files(cell: Row) -> bool:
    """Say whether a cell's samples are image files."""
    return samples_of(str(cell["workload"])) == "files"


def busiest(loaded: Sequence[Row]) -> list[Row]:
    """Of each decoder the rate with the most workers that all decoders ran with, the fastest decoder first."""
    by_decoder: dict[str, dict[int, Row]] = {}
    for row in loaded:
        by_decoder.setdefault(row["decoder"], {})[row["workers"]] = row
    common = set.intersection(*map(set, by_decoder.values())) if by_decoder else set()
    chosen = [ran[max(common or ran)] for ran in by_decoder.values()]
    return sorted(chosen, key=lambda row: -row["value"])


def named(cell: Row) -> str:
    """Name a cell's decoder."""
    name = NAMES.get(str(cell["decoder"]), str(cell["decoder"]))
    return f"{name}, scaled" if cell["scaled_decode"] is True else name


@chart("Images per second and vCPU", "How many images does a vCPU load, and with which decoder?")
def images_per_core(sheet: Sheet, trials: pd.DataFrame, cores: float) -> Figure:
    """Draw the rate of a core by decoder, a mark for each number of workers."""
    rows = [{**row, "who": words.plural(row["workers"], "worker")} for row in per_core(trials, cores)]
    looks = of_workers(sorted({row["workers"] for row in rows}))
    if rows:
        x, y = amount("value", "images per second and vCPU"), names("decoder", (row["decoder"] for row in rows))
        subtitle = f"vCPUs: {cores:g}; decode, random crop, resize to 224 px"
        panel = Plot(rows, x, y, "who", looks).panel("What a vCPU loads", subtitle, _message(busiest(rows)))
        sheet.add(panel, listed(rows, {}, _COLUMNS))
    sheet.note(
        "Images a second of the loader ÷ its workers; a vCPU is a hardware thread. Scaled: the decoder reads a "
        "JPEG file at 1/2, 1/4 or 1/8 of its size where the crop keeps enough pixels. Intervals: Student’s t over "
        "repetitions, on logs."
    )
    missing = "No image files were loaded in this run by as many workers as there are cores, or fewer."
    return sheet.figure(keys(looks), missing)


def _message(loaded: Sequence[Row]) -> str:
    """The fastest and the slowest decoder, with as many workers each."""
    best, worst = loaded[0], loaded[-1]
    text = f"a vCPU loads {words.number(best['value'])} images a second with {best['decoder']} ({interval(best)})"
    if worst is not best:
        text += f", {words.times(best['value'] / worst['value'])} the speed with {worst['decoder']}"
    return words.sentence(f"{text}, {words.plural(best['workers'], 'worker')} busy")
