"""Tensors whose hand-over waits for their worker, which answers only when its Python lets another thread run.

A tensor in shared memory is a file descriptor, which a thread of the worker hands over when it is asked. Python lets
that thread run every 5 ms (``sys.getswitchinterval``).
"""

from __future__ import annotations

from feedrate.attach.facts import Evidence, Fact
from feedrate.schema.words import percent

SLOW_NS = 1_000_000
"""Of a tensor; one whose worker idles takes a fifth of it."""
LEAST, SETTLED = 0.05, 0.5
"""Share of the time that receiving takes, and share of that in which the loop waits for a descriptor."""


def check(evidence: Evidence) -> Fact | None:
    """Receiving takes long a tensor, and most of it is the wait for the worker to hand it over."""
    account, tensors = evidence.account, int(evidence.batch.get("objects", 0))
    received_ns = account.rows.get("receiving", 0)
    if not tensors or evidence.handing < SETTLED or received_ns < LEAST * account.wall_ns:
        return None
    each_ns = received_ns / account.steps / tensors
    if each_ns < SLOW_NS:
        return None
    return Fact(
        f"a tensor takes {each_ns / 1e6:.1f} ms to hand over, {percent(received_ns / account.wall_ns)} of the time: "
        "its worker runs Python meanwhile",
        "fewer tensors a batch, or torch.multiprocessing.set_sharing_strategy('file_system')",
        "receiving",
    )
