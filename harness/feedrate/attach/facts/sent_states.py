"""A stateful loader whose workers send the data set's state with the batches."""

from __future__ import annotations

from feedrate.attach.facts import Evidence, Fact

SELDOM = 10
"""Batches from one state to the next, from which on it is no matter."""


def check(evidence: Evidence) -> Fact | None:
    """By default ``StatefulDataLoader`` of torchdata takes a state with each batch, and batches are slow to come."""
    every = evidence.loader.settings.get("snapshot_every_n_steps")
    if not evidence.num_workers or every is None or every >= SELDOM or evidence.cause not in ("receiving", "sending"):
        return None
    often = "every batch" if every == 1 else f"every {every} batches"
    return Fact(
        f"with {often} workers send the state of the data set (snapshot_every_n_steps={every})",
        "snapshot_every_n_steps=100, where a training that goes on may see some batches again",
        "receiving",
    )
