"""Samples that take less to prepare than to be asked for one by one."""

from __future__ import annotations

from feedrate.attach.facts import Evidence, Fact

TINY_US = 30
"""Of a sample, collation included; a photograph takes a hundred times as long to decode."""
_PREPARING = ("here", "computing", "collating", "cores")


def check(evidence: Evidence) -> Fact | None:
    """Preparing holds the training back, and a sample of it takes microseconds."""
    batches = evidence.loader.batches
    if evidence.cause not in _PREPARING or evidence.loader.settings.get("at_once"):
        return None
    if not (samples := int(batches["samples"].sum())):
        return None
    sample_us = float((batches["ended_ns"] - batches["begun_ns"]).sum()) / samples / 1000
    if sample_us > TINY_US:
        return None
    return Fact(
        f"a sample takes {sample_us:.0f} µs, most of it calls of Python that every sample needs",
        "yield whole batches, with batch_size=None"
        if evidence.loader.settings.get("iterable")
        else "give whole batches: __getitems__ in the data set, or a BatchSampler as sampler with batch_size=None",
        "waiting" if evidence.num_workers else "here",
    )
