"""What authors of loaders publish, beside what a run measured of the same two loaders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

UNMEASURED: Mapping[str, str] = {
    "MosaicML Streaming 0.13": "asks for NumPy below 2.2 and transformers below 5; without them it cannot be imported",
    "TurboLoader 2.39": "delivers images without classes, from one pool for all cores (its README: 2.7× PyTorch’s)",
    "datago 2026.10": "delivers whole images; cropping and batches are left to the training process",
    "dataloader-rs 0.2": "has files for Python 3.13 and newer only",
    "FFCV": "must be compiled against OpenCV’s C++ libraries",
    "SPDL’s own decoder": "needs FFmpeg’s libraries on the system",
}
"""Loaders of November 2026 that this suite has not, and why."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A comparison of two loaders that somebody published."""

    loader: str
    against: str
    """Names of plug-ins."""
    figures: str
    """What was published, with the ratio that it comes to."""
    source: str
    differs: str
    """What is otherwise here."""
    packing: bool = False
    """Whether it compares the time to pack, and not the speed."""


PUBLISHED = (
    Publication(
        "spdl",
        "torch",
        "1.74× the speed through ImageNet, 38 % less CPU, 50 GB less memory",
        "Scalable and Performant Data Loading, arXiv:2504.20067",
        "SPDL’s own decoder there, Pillow for both here; a data center’s machine",
    ),
    Publication(
        "spdl",
        "torch",
        "“not uncommon to see x3 throughput”",
        "SPDL’s documentation, Why migrate to SPDL?",
        "code there lets Python’s lock go; some of a sample’s work holds it here",
    ),
    Publication(
        "litdata",
        "torch",
        "“Optimized datasets load 20x faster”",
        "LitData’s README",
        "files of a cloud’s store there, a local disk here",
    ),
    Publication(
        "litdata",
        "webdataset",
        "1.68×: 6,589 and 3,924 images/s, second epoch",
        "LitData’s documentation, Benchmarks",
        "ImageNet from S3 there, a local disk here",
    ),
    Publication(
        "litdata",
        "webdataset",
        "packs in 0.31× the time: 10:05 and 32:36 minutes",
        "LitData’s documentation, Benchmarks",
        "1.3 million images and many processes there, one process here",
        packing=True,
    ),
)
