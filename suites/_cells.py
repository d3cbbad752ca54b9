"""Settings that claims of several suites share, so that one cell serves all of them.

A window is short. So we choose settings of which a dozen steps fit into half a second of two cores. The claim's subject
must weigh much against the costs that ride along.
"""

from __future__ import annotations

from typing import Any

from feedrate.schema.window import READ_AHEAD_KIB

Setting = dict[str, Any]

LOAD: Setting = {"mode": "load", "workload": "div2k"}
"""The loader alone, 64-pixel patches; batches of 32 unless a claim says otherwise."""
PNG: Setting = {**LOAD, "storage_format": "png"}
LMDB: Setting = {**LOAD, "storage_format": "lmdb"}
EMULATED: Setting = {"mode": "train", "workload": "div2k", "step": "emulated", "step_ms": 10.0}
"""Before an accelerator that takes 10 ms for a batch of any size, emulated by a sleep."""
REAL: Setting = {"mode": "train", "workload": "div2k", "storage_format": "png", "patch_size": 16}
"""SRCNN really trained, on patches small enough for a CPU; the source's smaller size."""
STEP: Setting = {"mode": "compute", "workload": "div2k", "patch_size": 16}
"""The step alone, on one resident batch: no loader disturbs it."""
PLANTED: Setting = {
    "workload": "synthetic",
    "storage_format": "lmdb",
    "patch_size": 16,
    "n_samples": 64,
    "batch_size": 8,
}
"""Samples that cost next to nothing, for planted costs; the suite calibration uses the same set."""
SMALL: Setting = {"mode": "load", "workload": "div2k", "patch_size": 96, "n_samples": 4096, "batch_size": 32}
"""The suite storage's small images: enough of them for a cold trial, which reads each of them once."""
LARGE: Setting = {"mode": "load", "workload": "div2k", "patch_size": 480, "n_samples": 768, "batch_size": 8}
"""The suite storage's large images; of both no more than a cold trial needs, as all of them are packed."""
COLD: Setting = {"page_cache": "cold", "read_ahead_kib": READ_AHEAD_KIB}
"""From the disk, which reads ahead as far as is Linux's own default: some machines have 8 MiB, more than a window reads
of small images, and enough to bring most of a mapped set into memory with a few samples."""
COLD_LARGE: Setting = {**LARGE, **COLD, "n_samples": 1536}
"""Large images from the disk, 2 GB of them: a window reads a third at most."""
FULL_LMDB: Setting = {**LMDB, "n_samples": 32768, "num_workers": 2, "page_cache": "full", "memory_limit_mib": 256}
"""64-pixel patches, 0.94 GB of them, before a memory that holds a quarter and is full."""
PAIRS: Setting = {"num_workers": 2}
"""Two workers: the most that a machine of two cores can use."""
DEVICE: Setting = {
    "mode": "train",
    "workload": "div2k",
    "storage_format": "lmdb",
    "patch_size": 64,
    "batch_size": 128,
    "num_workers": 8,
}
"""Real training on a CUDA device, 12.6 MB a batch, from a format that is cheap to read."""
DEVICE_STEP: Setting = {"mode": "compute", "workload": "div2k", "patch_size": 64, "batch_size": 128}
"""The step alone at that size."""
