"""Loaders of November 2026 that the suite has not, and why."""

from __future__ import annotations

from collections.abc import Mapping

UNMEASURED: Mapping[str, str] = {
    "MosaicML Streaming 0.13": "asks for NumPy below 2.2 and transformers below 5; without them it cannot be imported",
    "datago 2026.10": "delivers whole images one by one: crops and batches would be made in the training process",
    "dataloader-rs 0.2": "has files for Python 3.13 and newer only",
    "FFCV": "must be compiled against OpenCV’s C++ libraries",
    "SPDL’s own decoder": "needs FFmpeg’s libraries on the system",
}
