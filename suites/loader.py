"""How must the DataLoader be set so that the accelerator does not wait?

The suite crosses the DataLoader's settings with storage formats and batch sizes. It does not show what a faster disk
would give (samples lie in the page cache after the first pass) nor what another model would need.
"""

from __future__ import annotations

from harness.suite import Suite

SUITE = Suite(
    question="Which DataLoader settings keep the accelerator fed, and what bounds the rest?",
    charts=("phases", "throughput", "heatmap", "utilization", "formats"),
)
