"""Which format should my images live in?

Every storage format holds the same samples; they are read in the same order, from the page cache (warm) and, where the
kernel’s own count of cached pages says that none of them is there, from the disk (cold). Most formats differ twice: in
what a sample is on disk (pixels, compressed pixels, an image file) and in the container that holds it; the two effects
are shown apart. Formats that can only be streamed are compared in the order of the disk, with the others in that order.

It does not show what a model would still notice: loading is measured alone, or before a step that is a sleep. Nor does
it show a disk by itself: below the kernel its own cache, or that of a virtual machine’s host, may hold the data.
"""

from __future__ import annotations

from typing import Any

from harness.suite import Suite

_LOAD: dict[str, Any] = {"mode": "load", "workload": "div2k", "num_workers": 2}
_SMALL = {"patch_size": 96, "n_samples": 4096, "batch_size": 32}
_LARGE = {"patch_size": 480, "n_samples": 384, "batch_size": 8}
"""As many samples as a cold trial needs, which reads each of them once, and not many more: all of them are packed."""
_BOTH = {"page_cache": ["warm", "cold"]}
_PIXELS = ["lmdb", "memmap", "npy", "hdf5", "zarr", "arrow"]
_COMPRESSED = ["lmdb_lz4", "hdf5_chunked", "png", "lmdb_png", "recordio", "jpeg"]
_STREAMED = ["webdataset", "tfrecord"]
_ANY = [*_PIXELS, *_COMPRESSED]
_ORDERED = ["png", "lmdb_png", "recordio", "lmdb", "hdf5_chunked", *_STREAMED]

SUITE = Suite(
    question="Which format should my images live in?",
    charts=(
        "storage_throughput",
        "storage_effects",
        "storage_size",
        "storage_scaling",
        "storage_work",
        "storage_cpu",
        "storage_startup",
    ),
    budget="25m",
    slices=(
        # Every format that can be read in any order, from memory and from the disk, small images and large ones.
        {**_LOAD, **_SMALL, **_BOTH, "storage_format": _ANY, "num_workers": [0, 2]},
        {**_LOAD, **_LARGE, **_BOTH, "storage_format": _ANY},
        # In the order of the disk, streams among them.
        {**_LOAD, **_SMALL, **_BOTH, "storage_format": _ORDERED, "access": "sequential"},
        {**_LOAD, **_SMALL, "storage_format": _STREAMED, "access": "sequential", "shuffle_buffer": 256},
        # More workers, and fewer, than a small machine has cores.
        {**_LOAD, **_SMALL, "storage_format": ["png", "lmdb", "hdf5"], "num_workers": [1, 4]},
        # Knobs of single formats.
        {
            **_LOAD,
            **_SMALL,
            "storage_format": ["png", "jpeg"],
            "num_workers": 0,
            "decoder": ["torchvision", "cv2", "pyspng"],
        },
        {**_LOAD, **_SMALL, "storage_format": "lmdb", "page_cache": "cold", "readahead": False},
        {**_LOAD, **_LARGE, "storage_format": "lmdb", "page_cache": "cold", "readahead": False},
        {**_LOAD, **_SMALL, "storage_format": "hdf5", "num_workers": [0, 2], "swmr": True},
        # What of it a step would notice.
        {
            **_LOAD,
            **_SMALL,
            **_BOTH,
            "mode": "train",
            "step": "emulated",
            "step_ms": 10.0,
            "storage_format": ["png", "lmdb"],
        },
        # The same on procedural images, which everybody has.
        {**_LOAD, **_SMALL, **_BOTH, "storage_format": _ANY, "workload": "div2k_standin"},
    ),
)
