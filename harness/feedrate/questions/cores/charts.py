"""Images a second that a core loads, by decoder: read, decode, crop, resize; alone and with other cores busy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from feedrate.analysis.estimates import cells, rows_of
from feedrate.charts.figure import ENDS, Figure, Held, Kept, Row, Sheet, chart, estimate, held, interval, listed
from feedrate.charts.plot import Plot, Side, amount, core_marks, keys, names, of_workers, unlike
from feedrate.pages import descriptions
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME
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
_FREE = ("decoder", "scaled_decode", "num_workers")
_IMAGES = ["workload", "patch_size"]
_PLACES = 24
"""Numbers of vCPUs of a line."""
_IDLE_COLUMNS = {"decoder": "decoder", "vCPUs": "at", "idle (%)": "value", "low": "lo", "high": "hi"}
_MISSING = "No image files were loaded in this run by as many workers as there are cores, or fewer."
_COLUMNS = {"decoder": "decoder", "workers": "workers", "images per s and vCPU": "value", **ENDS}


def per_core(trials: pd.DataFrame, cores: float) -> list[Row]:
    """What a core loads, by decoder and workers (as many cores are busy), the fastest decoder first.

    ``cores`` might be used; of half a core a worker has half. A row has ``value``, images a second and core, with
    its interval.
    """
    rows: list[Row] = []
    for cell in rows_of(_loaded(trials)[0]):
        workers = int(cell["num_workers"])
        if workers <= max(1, cores):
            busy, ends = min(workers, cores), estimate(cell)
            ends |= {end: None if ends[end] is None else ends[end] / busy for end in ("value", "lo", "hi")}
            rows.append({"decoder": named(cell), "workers": workers, **ends})
    best = {row["decoder"]: row["value"] for row in sorted(rows, key=lambda row: row["workers"])}
    return sorted(rows, key=lambda row: (-best[row["decoder"]], row["decoder"], row["workers"]))


def _loaded(trials: pd.DataFrame) -> tuple[pd.DataFrame, Held]:
    """Cells in which workers load image files as they are, all else alike; and what is held still."""
    every, still = _of_files(trials)
    in_its_place = every["device"].eq("cpu") & every["normalize_on"].eq("device").fillna(False)
    by_device = every["decoder"].isin([name for name in every["decoder"].unique() if on_device(str(name))])
    loads = every["mode"].eq("load") & every["storage_format"].eq("folder") & every["num_workers"].gt(0)
    frame, others = held(every[loads & ~in_its_place & ~by_device], _FREE)
    return frame, {**others, **still}


def _of_files(trials: pd.DataFrame) -> tuple[pd.DataFrame, Held]:
    """Cells on image files, of the set and size that most of them have; these two where there are others."""
    every = cells(trials)
    of_files = [name for name in every["workload"].unique() if samples_of(str(name)) == "files"]
    alike = [frame for _, frame in every[every["n"].gt(0) & every["workload"].isin(of_files)].groupby(_IMAGES)]
    most = max(alike, key=lambda frame: (frame["mode"].eq("load").sum(), len(frame)), default=every[:0])
    chosen = {axis: Kept(most[axis].iloc[0], others=True, everywhere=True) for axis in _IMAGES if len(alike) > 1}
    return most, chosen


def on_gpu(trials: pd.DataFrame, mode: str) -> list[Row]:
    """What a GPU trains on image files in ``mode`` compute (batches that are there) or train, the fastest first."""
    every = [cell for cell in rows_of(_of_files(trials)[0]) if cell["device"] == "cuda" and cell["mode"] == mode]
    return sorted(every, key=lambda cell: -cell["samples_per_s"])


def rates_of(trials: pd.DataFrame) -> dict[str, float]:
    """Images a second that GPUs train with their fastest settings: as the run measured it, else as declared."""
    measured = on_gpu(trials, "compute")
    rates = {}
    for model in dict.fromkeys(cell["model"] for cell in measured):
        best, *others = (cell for cell in measured if cell["model"] == model)
        unlike = {axis: best[axis] for axis in BY_NAME if any(str(cell[axis]) != str(best[axis]) for cell in others)}
        name = f"this GPU with {model}" + (f", {descriptions.setting(unlike)}" if unlike else "")
        rates[name] = float(best["samples_per_s"])
    return rates or DECLARED


def idle(per_core: float, rate: float, cores: float) -> float:
    """Share of the time that a GPU has nothing to do, fed by cores that load so many images a second each."""
    return max(0.0, 1 - per_core * cores / rate)


def assumption(core: Row, cores: float) -> str:
    """Say what is assumed of cores that were not busy when this rate of one was measured."""
    text = f"We assume that each vCPU loads as much as one does with {core['workers']} of them busy."
    return text if core["workers"] >= cores else f"{text} With all {cores:g} vCPUs busy each may load less."


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
        frame, still = _loaded(trials)
        subtitle = f"vCPUs: {cores:g}; decode, random crop, resize to {frame['patch_size'].iloc[0]} px"
        panel = Plot(rows, x, y, "who", looks).panel("What a vCPU loads", subtitle, _message(busiest(rows)))
        sheet.add(panel, listed(rows, {}, _COLUMNS), still)
    busy = "its workers" if cores >= 1 else "the vCPUs"
    sheet.note(
        f"Images a second of the loader ÷ {busy}; a vCPU is a hardware thread. Scaled: the decoder reads a "
        "JPEG file at 1/2, 1/4 or 1/8 of its size where the crop keeps enough pixels. Intervals: Student’s t over "
        "repetitions, on logs."
    )
    return sheet.figure(keys(looks), _MISSING)


def _message(loaded: Sequence[Row]) -> str:
    """The fastest and the slowest decoder, with as many workers each."""
    best, worst = loaded[0], loaded[-1]
    text = f"a vCPU loads {words.number(best['value'])} images a second with {best['decoder']} ({interval(best)})"
    if worst is not best:
        text += f", {words.times(best['value'] / worst['value'])} the speed with {worst['decoder']}"
    return words.sentence(f"{text}, {words.plural(best['workers'], 'worker')} busy")


@chart("GPU idle against cores", "How many vCPUs keep a GPU busy?")
def gpu_idle(sheet: Sheet, trials: pd.DataFrame, cores: float) -> Figure:
    """Draw a GPU’s idle share against its vCPUs, a panel a GPU, with the fastest and the slowest decoder."""
    loaded = busiest(per_core(trials, cores))
    ends = [loaded[at] for at in sorted({0, len(loaded) - 1}) if loaded]  # the others lie between
    looks = {name: (tint, "rule") for name, (tint, _) in unlike(row["decoder"] for row in ends).items()}
    _, still = _loaded(trials)
    for name, rate in rates_of(trials).items() if ends else ():
        most = math.ceil(1.1 * rate / ends[-1]["value"])
        places = sorted({*np.linspace(1, most, _PLACES).round().astype(int).tolist(), min(cores, most)})
        rows = [_idle(core, rate, vcpus) for core in ends for vcpus in places]
        x = Side("at", "vCPUs", {"nice": False, "zero": True}, {"grid": False, "tickCount": 6})
        y = Side("value", "GPU idle (%)", {"domain": [0, 100]}, {"tickCount": 5})
        plot = Plot(rows, x, y, "decoder", looks, curve=True, behind=core_marks([("", cores)], x, places[-1]))
        title, _, setting = name.partition(", ")  # a line holds no more
        subtitle = [f"{words.number(rate)} images a second", *([setting] if setting else [])]
        panel = plot.panel(title, subtitle, _idle_message(ends[0], rate, cores))
        sheet.add(panel, listed(rows, {"GPU": name}, _IDLE_COLUMNS), still)
    if ends:
        sheet.note(assumption(ends[0], cores))
    return sheet.figure(keys(looks), _MISSING)


def _idle(core: Row, rate: float, vcpus: float) -> Row:
    """The idle share with so many vCPUs; where each loads least, the GPU idles most."""
    ends = {"value": "value", "lo": "hi", "hi": "lo"}
    shares = {key: None if core[end] is None else 100 * idle(core[end], rate, vcpus) for key, end in ends.items()}
    return {"decoder": core["decoder"], "at": vcpus, **shares}


def _idle_message(best: Row, rate: float, cores: float) -> str:
    """What the fastest decoder needs, and how idle the GPU is with this machine's."""
    needs = f"With {best['decoder']}, {words.number(rate / best['value'], 2)} vCPUs keep it busy"
    idles = idle(best["value"], rate, cores)
    return f"{needs}; with {cores:g} it idles {words.percent(idles)}." if idles else f"{needs}; {cores:g} feed it."
