"""Why a cell cannot run on this machine: what is not there, and values that do not go together.

The first obstacle is the reason that a plan prints. Plug-ins are asked without importing them.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

from feedrate.machine import packages
from feedrate.plan.duration import pixels
from feedrate.plan.schedule import PETS_FOLDER, Host
from feedrate.schema import plugins, window
from feedrate.schema.axes import Cell
from feedrate.schema.plugins import STREAM_SHARDS, loader_traits, traits
from feedrate.store.manifest import Protocol

LARGEST_CHECKED = 8
"""Height and width of an image whose gradients are checked number by number."""
LEAST_VARIED = 16
"""Height and width of an image that is cut to several sizes."""
TOKEN_BYTES = 2050
"""Of a window of tokens, two bytes each."""
LEAST_HALVED = 33
"""Height and width of an image of which a batch norm behind five halvings finds more than one value."""
_PLUGINS = {
    "workload": "feedrate.workloads",
    "model": "feedrate.workloads.models",
    "storage_format": "feedrate.formats",
    "loader": "feedrate.loaders",
    "decoder": "feedrate.formats.decoders",
    "check": "feedrate.trial.checks",
}
"""Axes whose values are plug-ins, with their packages."""
_DELIVERED = {
    "bytes": ("fast", "collate fast, normalize_on none or device"),
    "floats": ("totensor", "collate totensor"),
}
"""What a loader that decodes by itself delivers: the collation that makes the same, and both axes in words."""
_CUDA_ONLY = (("mode", "copy"), ("step", "spin"), ("amp", "fp16"), ("debug", "nvtx"), ("fusion", "cuda_graphs"))

_OF_PAIRS = ("strided", "numpy", "loop")


def impossible(cell: Cell, host: Host, protocol: Protocol) -> str | None:
    """Why a cell cannot run here, or None."""
    return next(_obstacles(cell, host, protocol), None)


def _obstacles(cell: Cell, host: Host, protocol: Protocol) -> Iterator[str]:
    yield from _absent(cell, host)
    yield from _mismatches(cell)
    if host.device != "cuda":
        yield from _cpu_limits(cell)
    if "model" in cell:
        yield from _step_limits(cell, host)
    if cell.get("parallel", "none") != "none":
        yield from _replica_limits(cell, host)
    if int(cell.get("nodes", 1)) > host.nodes:
        yield f"more nodes than sweep together here, {host.nodes} (feedrate sweep --on slurm --nodes 8 --together)"
    yield from _sizes(cell, host)
    if cell.get("page_cache") == "cold":
        yield from _cold_limits(cell, host, protocol)
        yield from _neighbour_limits(cell, host)
    as_it_is = {"read_ahead_kib": (host.read_ahead_bytes or 0) >> 10}
    for axis, reason in host.unable.items():
        if cell.get(axis) and cell[axis] != as_it_is.get(axis):
            yield f"{axis}: {reason}"
    if cell.get("page_cache") == "full":
        yield from _full_limits(cell, host)


def _declared(cell: Cell, axis: str, literal: str) -> Any:
    """What the plug-in that a cell has on an axis declares; None without one."""
    return plugins.declared(_PLUGINS[axis], str(cell[axis]), literal) if axis in cell else None


def _absent(cell: Cell, host: Host) -> Iterator[str]:
    """Libraries and data sets that are not there."""
    for axis, package in _PLUGINS.items():
        lacking = plugins.missing(package, str(cell[axis])).items() if axis in cell else ()
        # A sweep refuses to begin without these; a plan is there where nothing is measured, too.
        if absent := {module: pip for module, pip in lacking if module not in packages.SWEEPING}:
            yield f"{axis} {cell[axis]} needs {', '.join(absent)} (pip install {' '.join(absent.values())})"
    if cell["workload"] in ("folder", "imagefolder") and host.data is None:
        yield f"workload {cell['workload']} needs a folder of images (--data DIR)"
    if cell["workload"] == "pets" and not (host.data_root / PETS_FOLDER / "annotations" / "trainval.txt").is_file():
        yield "workload pets needs the Oxford-IIIT Pets (feedrate data pets)"


def _mismatches(cell: Cell) -> Iterator[str]:
    """Values that do not go together: model and task, format and access, format and decoder."""
    storage_format, workload, model = (str(cell.get(name, "")) for name in ("storage_format", "workload", "model"))
    task, samples = _declared(cell, "workload", "TASK"), plugins.samples_of(workload)
    if model and task != (able := _declared(cell, "model", "TASK")):
        yield f"model {model} is for {able}, workload {workload} for {task}"
    if cell.get("normalize_on") == "none" and cell["mode"] != "load":
        yield "normalize_on none is for loading alone (mode load)"
    if cell.get("collate") in _OF_PAIRS and task != "super-resolution":
        yield f"collate {cell['collate']} converts pairs of images, workload {workload} has none"
    if storage_format and cell["access"] not in traits(storage_format).access:
        yield f"storage_format {storage_format} is streamed from shards: it has no {cell['access']} access"
    loader = loader_traits(str(cell.get("loader", "")))
    if loader.streams and storage_format not in loader.streams:
        yield f"loader {cell['loader']} reads storage_format {' or '.join(loader.streams)}"
    collate = cell.get("collate") if cell.get("normalize_on") != "worker" else None
    if loader.decodes and (samples != "files" or collate != (wanted := _DELIVERED[loader.delivers])[0]):
        yield f"loader {cell['loader']} decodes image files as they are: {wanted[1]}"
    if storage_format and samples not in (holds := traits(storage_format).holds):
        yield f"storage_format {storage_format} holds {' and '.join(holds)}, workload {workload} has {samples}"
    if decoder := str(cell.get("decoder", "")):
        yield from _decoder_mismatches(cell, decoder, samples)


def _decoder_mismatches(cell: Cell, decoder: str, samples: str) -> Iterator[str]:
    """What a decoder cannot decode, or not so."""
    storage_format = str(cell.get("storage_format", ""))
    stores = "jpeg" if samples == "files" else traits(storage_format).stores
    if stores not in _declared(cell, "decoder", "CODECS"):
        yield f"decoder {decoder} cannot decode {stores} (storage_format {storage_format})"
    if plugins.on_device(decoder) and samples != "files":
        yield f"decoder {decoder} decodes image files as they are (workload imagefolder)"
    if plugins.on_device(decoder) and (cell.get("collate"), cell.get("normalize_on")) != ("fast", "device"):
        yield f"decoder {decoder} is handed bytes: collate fast, normalize_on device"
    if cell.get("scaled_decode") and not _declared(cell, "decoder", "SCALES"):
        yield f"decoder {decoder} has no scaled decoding"


def _cpu_limits(cell: Cell) -> Iterator[str]:
    plugged = ((axis, cell[axis]) for axis in ("decoder", "check") if _declared(cell, axis, "DEVICE"))
    for axis, value in (*_CUDA_ONLY, *plugged):
        if cell.get(axis) == value:
            yield f"{axis} {value} needs a CUDA device"


def _step_limits(cell: Cell, host: Host) -> Iterator[str]:
    model, fusion, debug, size = str(cell["model"]), cell["fusion"], cell["debug"], int(cell.get("patch_size", 0))
    if fusion == "functional" and "fusion" not in (_declared(cell, "model", "KNOBS") or ()):
        yield f"model {model} has no function that PyTorch has fused: fusion functional changes nothing"
    if fusion == "script" and sys.version_info >= (3, 14):
        yield "fusion script: TorchScript does not run on Python 3.14"
    if fusion in ("compile", "cuda_graphs"):
        yield from _compiler_limits(str(fusion), host)
    if fusion == "cuda_graphs" and cell["zero_grad"] == "memset":
        yield "fusion cuda_graphs with zero_grad memset: gradients that are kept lie in memory that a graph overwrites"
    if debug in ("gradcheck", "gradgradcheck"):
        yield from _gradient_limits(cell)
    if _declared(cell, "model", "HALVED") and size < LEAST_HALVED and int(cell["batch_size"]) == 1:
        yield f"model {model}: its batch norms need two samples below {LEAST_HALVED} pixels"
    if cell.get("vary_shapes") and size < LEAST_VARIED:
        yield "vary_shapes: images below 16 pixels have one size only"
    side = _declared(cell, "model", "CELL")
    if side and size % side:
        yield f"model {model} takes images of multiples of {side} pixels, patch_size is {size}"
    if side and cell.get("vary_shapes"):
        yield f"model {model} takes images of one size"


def _compiler_limits(fusion: str, host: Host) -> Iterator[str]:
    if not (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")):
        yield f"fusion {fusion} needs a C++ compiler (g++)"
    if host.device == "cuda" and importlib.util.find_spec("triton") is None:
        yield f"fusion {fusion} on CUDA needs triton (pip install triton)"


def _gradient_limits(cell: Cell) -> Iterator[str]:
    if "patch_size" not in cell:
        yield f"debug {cell['debug']} takes the loss for every number of an image"
    elif int(cell["batch_size"]) > 1 or int(cell["patch_size"]) > LARGEST_CHECKED:
        yield f"debug {cell['debug']} takes the loss twice for every number of the input (batch_size 1, patch_size ≤ 8)"
    if cell.get("norm") == "batch":
        yield f"debug {cell['debug']}: a batch norm needs two samples at this size"


def _replica_limits(cell: Cell, host: Host) -> Iterator[str]:
    kind, world, nodes = str(cell["parallel"]), int(cell.get("world_size", 1)), int(cell.get("nodes", 1))
    if _shards(cell):
        yield f"parallel {kind} deals samples out one by one; storage_format {cell['storage_format']} is streamed"
    if cell.get("page_cache") == "cold" or cell.get("cache", "none") != "none":
        yield f"parallel {kind} with page_cache cold or a cache: a replica would evict or fill what the others read"
    if kind == "dp":
        yield from _data_parallel_limits(cell, world, nodes, host)
    elif world % nodes:
        yield f"world_size {world} cannot be shared out evenly among {nodes} nodes"
    if host.device == "cuda" and world // nodes > host.gpus:
        where = " on each node" if nodes > 1 else ""
        yield f"world_size {world} needs {world // nodes} CUDA devices{where}; {host.gpus} here"


def _data_parallel_limits(cell: Cell, world: int, nodes: int, host: Host) -> Iterator[str]:
    """Why DataParallel, which is one process, cannot replicate a model."""
    if world < 2:
        yield "parallel dp with world_size 1 calls the model itself: there is nothing to compare"
    if (fusion := cell.get("fusion")) in ("compile", "script", "cuda_graphs"):
        yield f"parallel dp with fusion {fusion}: DataParallel copies the model in every step, not what was made of it"
    if host.device != "cuda":
        yield "parallel dp needs CUDA devices"
    if cell.get("amp") == "bf16":
        yield "parallel dp with amp bf16: DataParallel's threads compute in float16 whatever autocast was told"
    if nodes > 1:
        yield "parallel dp is one process: it trains on one node"


def _sizes(cell: Cell, host: Host) -> Iterator[str]:
    """What does not fit: batches into the set, workers onto shards, prefetched batches into shared memory."""
    samples, workers, batch = (int(cell.get(name, 0)) for name in ("n_samples", "num_workers", "batch_size"))
    world = int(cell.get("world_size", 1))
    if samples and batch * world > samples:
        yield "batch_size (times world_size) above n_samples" if world > 1 else "batch_size above n_samples"
    if batch > int(cell.get("index_entries", batch)):
        yield "batch_size above index_entries"
    if samples and workers > (shards := _shards(cell) or workers):
        yield f"more workers than shards: storage_format {cell['storage_format']} has {shards} for {samples} samples"
    # Bytes where they leave the worker as such, else float32, or two int64 for each token; and what is planted.
    width = 1 if cell.get("normalize_on") in ("device", "none") else 4 if "patch_size" in cell else 8
    sample_bytes = width * _stored_bytes(cell) + int(cell.get("payload_bytes", 0))
    sharing = workers if loader_traits(str(cell.get("loader", ""))).workers == "processes" else 0
    prefetched = sharing * int(cell.get("prefetch_factor", 0)) * batch * sample_bytes * world
    if host.shm_bytes and prefetched > host.shm_bytes:
        yield "prefetched batches would not fit into /dev/shm (lower num_workers, prefetch_factor or batch_size)"


def _shards(cell: Cell) -> int | None:
    """Files of a streamed set; None where samples are read one by one."""
    streamed = traits(str(cell["storage_format"])).streamed
    return min(STREAM_SHARDS, int(cell["n_samples"])) if streamed else None


def _cold_limits(cell: Cell, host: Host, protocol: Protocol) -> Iterator[str]:
    """Why a trial cannot read each sample at most once."""
    if host.one_machine and int(cell.get("nodes", 1)) > 1:
        yield "page_cache cold: these nodes are one machine, whose page cache they share"
    if host.in_memory:
        yield "page_cache cold: the data folder lies in memory (choose a disk with --data-root)"
    if cell.get("prefetcher", "none") != "none":
        yield "page_cache cold with a prefetcher: it is one batch ahead of those that may be read once"
    samples, size, workers = int(cell["n_samples"]), int(cell["batch_size"]), int(cell["num_workers"])
    ahead, access, shards = int(cell.get("prefetch_factor", 0)), str(cell["access"]), _shards(cell)
    batches = window.batches_once(samples, size, workers, access, shards)
    if window.steps_once(batches, workers, ahead) < window.whole(protocol.min_steps, workers):
        least = window.samples_once(size, workers, ahead, protocol.min_steps, access)
        wanted = "more samples" if shards else f"n_samples of {least:,} or more"
        yield f"page_cache cold: too few samples to read each once only ({wanted}, or smaller batches)"


def _neighbour_limits(cell: Cell, host: Host) -> Iterator[str]:
    """Why samples that a trial did not read yet would lie in memory: what lies around a sample is read with it.

    That is the rest of its chunk, and in a mapped file what the kernel reads around a fault. Compressed samples are
    smaller than their pixels, so that one of their sets may still fail (``window.UNREAD_MOST``).
    """
    sample_bytes = _stored_bytes(cell)
    around = sample_bytes * ((_declared(cell, "storage_format", "CHUNK_SAMPLES") or 1) - 1)
    if traits(str(cell["storage_format"])).mapped and cell.get("readahead", True):
        around = max(around, int(cell["read_ahead_kib"]) << 10 or host.read_ahead_bytes or 0)
    most = int(sample_bytes * window.UNREAD_MOST * window.COLD_PART)
    if cell["access"] == "random" and not cell.get("memory_limit_mib") and around > most:
        yield (
            f"page_cache cold: {around >> 10:,} KiB are read around each sample of {sample_bytes >> 10:,} KiB, so that "
            f"over {window.UNREAD_MOST:.0%} of those not read yet would lie in memory (at most {most >> 10:,} KiB may "
            "be: take larger samples, or where a file is mapped a smaller read_ahead_kib)"
        )


def _full_limits(cell: Cell, host: Host) -> Iterator[str]:
    if host.in_memory:
        yield "page_cache full: the data folder lies in memory (choose a disk with --data-root)"
    limit = int(cell.get("memory_limit_mib", 0)) << 20
    if not limit:
        yield "page_cache full needs a memory_limit_mib: the memory that is full"
    elif (least := -(-limit // _stored_bytes(cell))) > int(cell["n_samples"]):
        yield f"page_cache full: the set is smaller than memory_limit_mib (n_samples of {least:,} or more)"


def _stored_bytes(cell: Cell) -> int:
    """Bytes of a sample: of its pixels, or of its tokens."""
    return 3 * pixels(cell) if "patch_size" in cell else TOKEN_BYTES
