"""Does feedrate read back what was planted?

Every cost here is known before it is measured. We plant the wait of a read: constant, jittered or heavy-tailed. We
plant the computing of a decode and of a collation. We plant bytes that ride along, and the length of a step. All other
costs are small: samples have 16 pixels and lie in the page cache. Settings that plant nothing measure these costs, and
we subtract them. Settings that differ only in `replica` must not be called different. feedrate must report effects of
0, 1 and 5 % as they are. If the slowest stage of a setting was planted, feedrate must name that stage as the limit.

It does not show the cost of a real loader. A planted wait is a sleep, and a planted decode is a loop.
"""

from __future__ import annotations

from typing import Any

from feedrate.plan.suite import Suite

_DATA: dict[str, Any] = {"workload": "synthetic", "storage_format": "lmdb", "patch_size": 16, "n_samples": 64}
"""A set is small so that a window reads it several times: over a whole set the mean of its waits is exact."""
_LOAD = {**_DATA, "mode": "load"}
_STEP = {**_DATA, "mode": "train", "step": "emulated"}
_BOTH = {**_DATA, "mode": ["load", "train"], "step": "emulated"}
"""A training setting and its loader alone, which is its limit."""
_TWICE = {"replica": [0, 1]}
_SLOW = {"read_us": 4000, "read_shape": "jittered"}
_FAST = {"batch_size": 4, "read_us": 2000, "read_shape": "heavy_tailed"}

SUITE = Suite(
    question="Does feedrate read back what was planted, and only that?",
    charts=("calibration",),
    budget="10m",
    cuda_budget="21m",
    slices=(
        # Nothing is planted: what the rest costs by itself.
        {**_LOAD, **_TWICE, "batch_size": [4, 8, 16]},
        # Effects of 0, 1 and 5 %: in what decoding computes ...
        {**_LOAD, **_TWICE, "batch_size": 8, "decode_us": 2000},
        {**_LOAD, "batch_size": 8, "decode_us": [2020, 2100]},
        # ... and in what a step waits.
        {**_STEP, **_TWICE, "batch_size": 8, "step_ms": 20.0},
        {**_STEP, "batch_size": 8, "step_ms": [20.2, 21.0]},
        # The loader is the slower, 1.6 to 6.4 times: 8 to 32 ms a batch before 5 ms.
        {**_BOTH, **_TWICE, **_SLOW, "batch_size": 8, "num_workers": [0, 1, 2, 4], "step_ms": 5.0},
        # The same loader with other batches.
        {**_LOAD, **_SLOW, "batch_size": [4, 16], "num_workers": [0, 1]},
        # The step is the slower, 2.5 to 10 times: 2 to 8 ms a batch before 20 ms.
        {**_BOTH, **_TWICE, **_FAST, "num_workers": [1, 2, 4], "prefetch_factor": 4, "step_ms": 20.0},
        # Everything at once, most of it computing: workers that share cores.
        {
            **_LOAD,
            "batch_size": 8,
            "num_workers": [0, 1, 2, 4],
            "read_us": 2000,
            "decode_us": 2000,
            "collate_us": 20_000,
        },
        # Bytes: 1 MB a batch. A sample stays below 32,768 elements, from which on PyTorch copies with several threads.
        {**_BOTH, "batch_size": 32, "payload_bytes": 30_000, "step_ms": 20.0},
        {**_LOAD, **_TWICE, "batch_size": 32, "payload_bytes": 30_000, "num_workers": 2},
    ),
)
