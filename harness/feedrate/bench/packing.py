"""Pack pictures in a process of its own and say how fast that was and how much memory it took.

``python -m feedrate.bench.packing FORMAT COUNT PICTURES FOLDER`` prints one JSON object. The pictures are repeated, so
that making them costs nothing: what is timed is encoding and writing.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from feedrate.formats import Image
from feedrate.formats._images import encode_jpeg, encode_png
from feedrate.schema import plugins
from feedrate.schema.plugins import traits

SIZE = 480
"""Height and width of a picture, in pixels: how DIV2K is usually cut."""
PICTURES = 8
_ENCODERS: dict[str, Callable[[Image], bytes]] = {"png": encode_png, "jpeg": encode_jpeg}


def save_pictures(path: Path) -> None:
    """Cut pictures out of the stand-in and save them: an array of uint8, pictures × 480 × 480 × 3."""
    whole = plugins.load("feedrate.workloads", "div2k_standin").image(0)
    corners = [(top, left) for top in (0, SIZE) for left in range(0, 4 * SIZE, SIZE)][:PICTURES]
    np.save(path, np.stack([whole[top : top + SIZE, left : left + SIZE] for top, left in corners]))


def _encoded_s(encode: Callable[[Image], bytes], pictures: Sequence[Image]) -> float:
    """Seconds that the encoder takes for one picture, on one core and into memory."""
    begun = time.perf_counter()
    for pixels in pictures:
        encode(pixels)
    return (time.perf_counter() - begun) / len(pictures)


def main() -> None:
    """Pack, and print ``packed_s`` and ``encoded_s`` (a picture, seconds), and ``peak_bytes``."""
    name, count, source, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4])
    storage = plugins.load("feedrate.formats", name)
    encode = _ENCODERS[traits(name).stores]
    pictures: list[Image] = list(np.load(source))
    before = _encoded_s(encode, pictures)
    begun = time.perf_counter()
    storage.pack(((pixels,) for pixels in islice(cycle(pictures), count)), folder)
    packed = (time.perf_counter() - begun) / count
    encoded = (before + _encoded_s(encode, pictures)) / 2
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"packed_s": packed, "encoded_s": encoded, "peak_bytes": peak}))  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
