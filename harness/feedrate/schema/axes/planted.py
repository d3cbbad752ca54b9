"""Axes of planted costs, whose truth is known, and of what changes nothing."""

from __future__ import annotations

from feedrate.schema.axes._axis import Axis, above, loads_synthetic, one_of, only

PLANTED: tuple[Axis, ...] = (
    Axis(
        "read_us",
        int,
        0,
        "Planted: how long reading one sample waits, on top of the real read.",
        unit="us",
        least=0,
        idle=loads_synthetic,
    ),
    Axis(
        "decode_us",
        int,
        0,
        "Planted: how long decoding one sample computes, on top of the real decode.",
        unit="us",
        least=0,
        idle=loads_synthetic,
    ),
    Axis(
        "read_shape",
        str,
        "constant",
        "Planted: how the read's wait varies around its mean, read_us: not, evenly from 0 to twice the mean, or with a "
        "heavy (log-normal) tail.",
        choices=one_of("constant", "jittered", "heavy_tailed"),
        idle=above("read_us"),
    ),
    Axis(
        "collate_us",
        int,
        0,
        "Planted: how long collating one batch computes, on top of the real collation.",
        unit="us",
        least=0,
        idle=loads_synthetic,
    ),
    Axis(
        "payload_bytes",
        int,
        0,
        "Planted: bytes that every sample carries beside its pixels, from the worker to the device.",
        unit="bytes",
        least=0,
        idle=only("workload", "synthetic"),
    ),
    Axis(
        "replica",
        int,
        0,
        "Changes nothing: the same cell again under another id, to see what two equal cells differ by.",
        least=0,
    ),
)
