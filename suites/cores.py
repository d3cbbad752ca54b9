"""How many cores does a GPU need?

Workers decode image files, crop them at random and resize them, as for ImageNet, with each installed decoder. We time a
GPU without loading, on batches that are there already. A GPU needs as many cores as its rate ÷ the rate of a core.
Without a GPU, the page uses a published rate, which you can change.

It does not show other augmentations, most of which cost more. It does not show how other work of the training shares
the cores.
"""

from __future__ import annotations

from typing import Any

from feedrate.plan.suite import Suite

FILES: dict[str, Any] = {
    "workload": "imagefolder",
    "storage_format": "folder",
    "patch_size": 224,
    "n_samples": 2048,
    "collate": "fast",
    "normalize_on": "none",
}
"""JPEG files as they are; pixels stay bytes, which the GPU normalises: that is no work for a core."""
_LOAD = FILES | {"mode": "load", "batch_size": 32}
_DECODERS = ["pil", "torchvision", "cv2", "simplejpeg", "imagecodecs", "kornia"]
_SCALED = ["pil", "cv2", "simplejpeg"]
"""Decoders that can reduce an image while they decode it."""

SUITE = Suite(
    "How many cores does a GPU need?",
    ("images_per_core", "gpu_idle"),
    (
        _LOAD | {"num_workers": [1, 2], "decoder": _DECODERS},
        _LOAD | {"num_workers": [1, 2], "decoder": _SCALED, "scaled_decode": True},
        _LOAD | {"num_workers": [4, 8], "decoder": "pil"},
    ),
    "8m",
    "11m",
    window_s=2,  # twelve batches of files of all sizes differ by a tenth from the next twelve
)
