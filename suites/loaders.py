"""Which loader?

All loaders but DALI deliver the same samples, decoded by the same code: what differs is what the loader itself costs.

JPEG files are mostly decoding, packed pixels mostly handing over, tokens hardly anything but the loader. Most loaders
deliver the same batches in the same order. WebDataset and LitData stream files of their own and shuffle as they can.
DALI streams WebDataset's, and decodes, crops and resizes by itself. Hugging Face datasets are read one by one from
their own file, through PyTorch's DataLoader.

It does not show SPDL's own decoder, nor storage over a network.
"""

from __future__ import annotations

from typing import Any

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
_STREAMED: tuple[dict[str, Any], ...] = tuple(
    _JPEG
    | {"loader": name, "storage_format": list(formats), "num_workers": [1, 2]}
    | {"access": "sequential", "shuffle_buffer": 1000}
    for name in _LOADERS
    if (formats := loader_traits(name).streams)
)

SUITE = Suite(
    "Which loader?",
    ("loader_rates", "loader_memory"),
    (
        _JPEG | _EVERY,
        *_STREAMED,
        _JPEG | {"storage_format": "hf_datasets", "num_workers": [1, 2]},
        LMDB | _BUSY,
        _TOKENS | _BUSY,
        EMULATED | {"storage_format": "png"} | _BUSY,
        REAL | _BUSY,
    ),
    "20m",
    "25m",
    window_s=1,
)
