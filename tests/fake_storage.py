"""What a made-up run of the storage suite measures: loading by format, page cache, patch size, workers and order.

Formats differ by a cost of their container, by the bytes that they store and by decoding; cold reads wait for a disk
that gives 400 MB/s and takes 80 us to find a sample. The numbers stand for no machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from feedrate.schema import window
from feedrate.schema.axes import Value
from feedrate.store.manifest import Counted

STREAMED = ("tfrecord", "webdataset")
CONTAINERS_US = {
    "png": 12.0,
    "jpeg": 12.0,
    "npy": 14.0,
    "lmdb": 2.0,
    "lmdb_lz4": 2.2,
    "lmdb_png": 2.1,
    "memmap": 1.8,
    "hdf5": 6.0,
    "hdf5_chunked": 9.0,
    "zarr": 40.0,
    "arrow": 4.0,
    "recordio": 3.0,
    "tfrecord": 5.0,
    "webdataset": 9.0,
}
"""Format to what its container takes for a sample, warm."""
SHARES = {"png": 0.62, "jpeg": 0.11, "lmdb_lz4": 0.91, "lmdb_png": 0.62, "hdf5_chunked": 0.7, "recordio": 0.62}
SHARES |= dict.fromkeys(STREAMED, 0.62)
"""Bytes on disk by bytes of pixels; 1 where not named."""
DECODING_NS = {"lmdb_lz4": 0.4, "hdf5_chunked": 5.0, "jpeg": 3.0}
DECODING_NS |= dict.fromkeys(("png", "lmdb_png", "recordio", *STREAMED), 5.5)
"""Nanoseconds a byte of pixels; 0 where not named."""
BROKEN = {"storage_format": "zarr", "page_cache": "cold", "patch_size": 480}
"""A cell of which every trial fails."""
EXCLUDED = (
    Counted(count=4, reason="storage_format webdataset is streamed from shards: it has no random access"),
    Counted(count=2, reason="decoder pyspng cannot decode jpeg (storage_format jpeg)"),
)


def slices(
    workload: str, workers: Sequence[int], formats: Sequence[str], states: Sequence[str]
) -> list[dict[str, Sequence[Value]]]:
    """List what the suite asks for, as axis to values."""
    common: dict[str, Sequence[Value]] = {
        "workload": (workload,),
        "mode": ("load",),
        "n_samples": (2048,),
        "page_cache": states,
        "memory_limit_mib": (64,) if "full" in states else (0,),
    }
    whole = tuple(name for name in formats if name not in STREAMED)
    few: tuple[Value, ...] = (workers[0], workers[-1])
    ordered = tuple(name for name in formats if name in (*STREAMED, "png", "recordio", "memmap"))
    given: list[dict[str, Sequence[Value]]] = []
    if whole:
        given += [
            {**common, "storage_format": whole, "patch_size": (96,), "num_workers": workers},
            {**common, "storage_format": whole, "patch_size": (480,), "num_workers": few, "batch_size": (16,)},
        ]
    given.append(
        {
            **common,
            "storage_format": ordered or whole[:1],
            "patch_size": (96,),
            "access": ("sequential",),
            "shuffle_buffer": (256,),
            "num_workers": few,
        }
    )
    step = {**common, "mode": ("train",), "step": ("emulated",), "storage_format": whole[:2], "patch_size": (96,)}
    knobs = [
        {**common, "storage_format": (name,), "patch_size": (96,), axis: values}
        for name, axis, values in (("lmdb", "readahead", (False,)), ("png", "decoder", ("cv2",)))
        if name in formats
    ]
    return [*given, *([step] if whole else []), *knobs]


def _pixels(cell: Mapping[str, Value]) -> int:
    """Bytes of the pixels of a pair."""
    return 6 * int(cell["patch_size"]) ** 2


def _stages(cell: Mapping[str, Value]) -> tuple[float, float, float, float]:
    """Seconds a sample that reading, decoding, transforming and collating take."""
    name, pixels = str(cell["storage_format"]), _pixels(cell)
    size = pixels * SHARES.get(name, 1.0)
    read = CONTAINERS_US[name] * 1e-6 + size / 6e9
    if cell.get("page_cache") == "cold":
        ordered = cell.get("access") == "sequential"
        read += size / 1.2e9 if ordered else 80e-6 + size / 4e8
    faster = 0.8 if cell.get("decoder") == "cv2" else 1.0
    return read, faster * DECODING_NS.get(name, 0.0) * 1e-9 * pixels, 8e-6 + pixels * 0.5e-9, 2e-6 + pixels * 0.2e-9


def times(cell: Mapping[str, Value]) -> dict[str, float]:
    """Seconds a batch in each phase."""
    workers, batch = int(cell.get("num_workers", 0)), int(cell["batch_size"])
    load = batch * sum(_stages(cell)) / max(1, min(workers, 3)) + (0.3e-3 if workers else 0.0)
    step = float(cell["step_ms"]) / 1000 if cell.get("step") == "emulated" else 0.0
    return {"fetch": max(load - (step if workers else 0.0), 0.1e-3), "forward": step, "other": 0.05e-3}


def columns(cell: Mapping[str, Value], steps: int, doubtful: bool) -> dict[str, Any]:
    """What a trial records beside its throughput."""
    name, pixels, batch = str(cell["storage_format"]), _pixels(cell), int(cell["batch_size"])
    size = int(pixels * SHARES.get(name, 1.0) * int(cell["n_samples"]))
    cold = cell["page_cache"] != "warm"
    before = 0.0 if cold else 100.0
    names = ("read", "decode", "transform", "collate")
    stages = zip(names, _stages(cell), strict=True)
    return {
        "stored_bytes": size,
        "read_bytes": int(size * steps * batch / int(cell["n_samples"])) if cold else 0,
        "batch_bytes": 4 * pixels * batch,
        "pack_ns": int(1e9 + 40 * pixels * DECODING_NS.get(name, 0.1) * int(cell["n_samples"]) / 5),
        "cached_before_pct": 40.0 if doubtful and cold else before,
        "cached_after_pct": cached_after_pct(cell, steps) if cold else 100.0,
        "startup_ns": int((2 + 0.3 * CONTAINERS_US[name] + (6 if cold else 0) + 12 * int(cell["num_workers"])) * 1e6),
        "format_version": 1,
        **{f"worker_{stage}_ns": int(seconds * batch * steps * 1e9) for stage, seconds in stages},
    }


def cached_after_pct(cell: Mapping[str, Value], steps: int) -> float:
    """What a cold trial leaves in the page cache: its samples, those of 8 steps before the window, and no other."""
    axes = [int(cell.get(axis, 0)) for axis in ("batch_size", "num_workers", "prefetch_factor")]
    return 100.0 * window.consumed_samples(steps + 8, *axes) / int(cell["n_samples"])


def broken(cell: Mapping[str, Value]) -> bool:
    """Whether every trial of a cell fails."""
    return all(cell.get(axis) == value for axis, value in BROKEN.items())
