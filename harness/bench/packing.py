"""Pack pictures in a process of its own and say how fast that was and how much memory it took.

``python -m harness.bench.packing FORMAT COUNT FOLDER`` prints one JSON object. The pictures are crops of the stand-in,
480 × 480 pixels, a few of them repeated, so that making them costs nothing: what is timed is encoding and writing.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

from harness import registry
from harness.formats import Image, Sample
from harness.formats._encoding import encode_png

SIZE = 480
"""Height and width of a picture, in pixels: how DIV2K is usually cut."""
PICTURES = 8


def pictures() -> list[Image]:
    """Cut pictures out of the stand-in; uint8, 480 × 480 × 3."""
    whole = registry.load("harness.workloads", "div2k_standin").image(0)
    corners = [(top, left) for top in (0, SIZE) for left in range(0, 4 * SIZE, SIZE)]
    return [whole[top : top + SIZE, left : left + SIZE].copy() for top, left in corners][:PICTURES]


def _encoded_s(found: list[Image]) -> float:
    """Seconds that the encoder takes for one picture, on one core and into memory."""
    begun = time.perf_counter()
    for pixels in found:
        encode_png(pixels)
    return (time.perf_counter() - begun) / len(found)


def _samples(found: list[Image], count: int) -> Iterator[Sample]:
    return ((pixels,) for pixels in islice(cycle(found), count))


def main() -> None:
    """Pack, and print ``packed_s`` and ``encoded_s`` (a picture, seconds), and ``peak_bytes`` (all processes)."""
    name, count, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    storage = registry.load("harness.formats", name)
    found = pictures()
    before = _encoded_s(found)
    begun = time.perf_counter()
    storage.pack(_samples(found, count), folder)
    packed = (time.perf_counter() - begun) / count
    after = _encoded_s(found)
    peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps({"packed_s": packed, "encoded_s": (before + after) / 2, "peak_bytes": peak * 1024}))  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
