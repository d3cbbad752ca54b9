"""Which loader?

All loaders but DALI and TurboLoader deliver the same samples, decoded by the same code. So the difference is the cost
of the loader itself.

JPEG files cost mostly decoding. Packed pixels cost mostly the hand-over of batches. Tokens cost little besides the
loader. Most loaders deliver the same batches in the same order. WebDataset and LitData stream their own files and
shuffle as they can. DALI streams WebDataset's files and TurboLoader its own archive; both decode, crop and resize
themselves. PyTorch's DataLoader reads Hugging Face datasets sample by sample, from their own file. TurboLoader delivers
floats only, and the others deliver bytes. So we compare it with PyTorch's loader of floats.

It does not show SPDL's own decoder. It does not show storage over a network.
"""

from __future__ import annotations

from typing import Any

from feedrate.plan.claim import Claim, change, pair
from feedrate.plan.suite import Suite
from feedrate.schema.plugins import loader_traits, names
from feedrate.suites._cells import EMULATED, LMDB, REAL
from feedrate.suites.cores import FILES

_LOADERS = names("feedrate.loaders")
_EVERY: dict[str, Any] = {
    "loader": [name for name in _LOADERS if not loader_traits(name).streams],
    "num_workers": [1, 2],
}
_BUSY = _EVERY | {"num_workers": 2}
_JPEG = FILES | {"mode": "load", "batch_size": 32}
_TOKENS = {"mode": "load", "workload": "tokens", "storage_format": "memmap", "batch_size": 32}
_FLOATS = {name: value for name, value in _JPEG.items() if name not in ("collate", "normalize_on")}
"""JPEG files whose pixels are normalised by the loader: all that TurboLoader delivers."""
_STREAM: dict[str, Any] = {"access": "sequential", "shuffle_buffer": 1000}
_STREAMED: tuple[dict[str, Any], ...] = tuple(
    (_FLOATS if loader_traits(name).delivers == "floats" else _JPEG)
    | {"loader": name, "storage_format": list(formats), "num_workers": [1, 2]}
    | _STREAM
    for name in _LOADERS
    if (formats := loader_traits(name).streams)
)
_ITSELF: dict[str, dict[str, Any]] = {
    name: {"loader": name, "storage_format": name, **_STREAM} for name in ("webdataset", "litdata", "turboloader")
}
"""Loaders that stream files of their own."""
_ON_FILES = _JPEG | {"num_workers": 2}
_CLAIMS = (
    Claim(
        id="spdl-speed",
        says="SPDL is 1.74 times as fast as PyTorch’s DataLoader.",
        sources=("SPDL",),
        design="A is PyTorch’s DataLoader, B is SPDL. Both load JPEG files with two workers. Pillow decodes the files.",
        not_shown="SPDL’s own decoder; a data center’s machine.",
        figures="""SPDL goes through ImageNet 1.74× as fast, with 38 % less CPU and 50 GB less memory. Its manual says
        “x3”.""",
        effect=change("loader", "torch", "spdl", _ON_FILES, figure=1.74),
    ),
    Claim(
        id="litdata-optimized",
        says="Optimized datasets load 20 times as fast as plain files.",
        sources=("LitData",),
        design="A is PyTorch’s DataLoader on a folder of JPEG files. B is LitData on its chunks of the same files.",
        not_shown="Files in a cloud’s store: both lie on a local disk here.",
        figures="“Optimized datasets load 20x faster”.",
        effect=pair({"loader": "torch"}, _ITSELF["litdata"], _ON_FILES, figure=20.0),
    ),
    Claim(
        id="litdata-over-webdataset",
        says="LitData streams images 1.68 times as fast as WebDataset.",
        sources=("LitData",),
        design="A is WebDataset, B is LitData. Each reads its own files of the same images, with two workers.",
        not_shown="ImageNet from S3: both lie on a local disk here.",
        figures="""LitData streams 6,589 images/s in the second epoch, WebDataset 3,924. They pack in 10:05 and 32:36
        minutes.""",
        effect=pair(_ITSELF["webdataset"], _ITSELF["litdata"], _ON_FILES, figure=1.68),
    ),
    Claim(
        id="turboloader-speed",
        says="TurboLoader is 2.7 times as fast as PyTorch’s DataLoader.",
        sources=("TurboLoader",),
        design="""A is PyTorch’s DataLoader on a folder of JPEG files. B is TurboLoader on its archive of the same
        files.""",
        not_shown="Apple’s M4 Max; its own preprocessed format.",
        figures="TurboLoader loads about 55,000 images/s, and PyTorch’s DataLoader about 20,000.",
        effect=pair({"loader": "torch"}, _ITSELF["turboloader"], _FLOATS | {"num_workers": 2}, figure=2.7),
    ),
)

SUITE = Suite(
    "Which loader?",
    ("loader_rates", "loader_memory"),
    (
        _JPEG | _EVERY,
        *_STREAMED,
        _FLOATS | {"num_workers": [1, 2]},
        _JPEG | {"storage_format": "hf_datasets", "num_workers": [1, 2]},
        LMDB | _BUSY,
        _TOKENS | _BUSY,
        EMULATED | {"storage_format": "png"} | _BUSY,
        REAL | _BUSY,
    ),
    "20m",
    "25m",
    window_s=1,
    claims=_CLAIMS,
)
