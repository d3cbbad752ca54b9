"""What becomes of each node's pace when many load at once, and what does training on several bring?

Nodes of a cluster load at the same moment from the disk that they share (page cache cold). Each node loads by itself,
and reads different samples of one set. First few nodes load, then all. Where the disk saturates, the throughput of each
node falls. Several nodes also train one model (DistributedDataParallel, a process a node). They train with the exchange
of gradients and without it, which shows its cost.

It does not show which part of a shared storage is full: disks, servers or network. A measurement of one node is the
same as in any other sweep.
"""

from __future__ import annotations

from typing import Any

from feedrate.plan.suite import Suite
from feedrate.suites._cells import PAIRS, REAL
from feedrate.suites.cores import FILES

NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""How many at once; those above what a sweep has are left out."""
_COLD: dict[str, Any] = {"mode": "load", "page_cache": "cold", **PAIRS, "nodes": list(NODES)}
_PIXELS = {"workload": "div2k", "storage_format": "hdf5", "patch_size": 480, "n_samples": 1536, "batch_size": 8}
"""1.4 MB a sample and nothing to decode: as fast as the disk gives it."""
_TRAINING = {**REAL, "n_samples": 2048, "parallel": "ddp", "num_workers": 1, "ddp_buckets": ["many", "none"]}

SUITE = Suite(
    "How many nodes can load at once, and train one model?",
    ("nodes_at_once",),
    (
        _COLD | _PIXELS,
        _COLD | FILES | {"batch_size": 16},
        *({**_TRAINING, "world_size": nodes, "nodes": nodes} for nodes in NODES),
    ),
    "20m",
)
