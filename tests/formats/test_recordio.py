"""MXNet's RecordIO: the codec of frames, MXNet's header, and the index."""

from __future__ import annotations

import struct
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest
from contract import again, equal, flipped, make, pack

from feedrate.formats import recordio
from feedrate.formats._images import encode_png
from feedrate.formats.recordio import MAGIC, frame, unframe
from feedrate.schema.errors import DataError

SHAPES = ((12, 10, 3), (4, 4, 1))


def chunk(flag: int, data: bytes) -> bytes:
    """A chunk as the file format's description has it."""
    return bytes.fromhex("0a23d7ce") + struct.pack("<I", flag << 29 | len(data)) + data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", chunk(0, b"")),
        (b"abcd", chunk(0, b"abcd")),
        (b"abcde", chunk(0, b"abcde") + bytes(3)),
        (b"a" + MAGIC, chunk(0, b"a" + MAGIC) + bytes(3)),
        (MAGIC, chunk(1, b"") + chunk(3, b"")),
        (b"abcd" + MAGIC + b"ef", chunk(1, b"abcd") + chunk(3, b"ef") + bytes(2)),
        (MAGIC + MAGIC + b"x" + MAGIC, chunk(1, b"") + chunk(2, b"") + chunk(3, b"x" + MAGIC) + bytes(3)),
    ],
)
def test_frames_are_dmlc_cores(data: bytes, expected: bytes) -> None:
    """Records lie as dmlc-core's ``RecordIOWriter`` writes them; a cut one is refused, a changed one never crashes."""
    assert frame(data) == expected
    for kept in range(len(expected) - -len(data) % 4):
        with pytest.raises(ValueError, match="truncated"):
            unframe(expected[:kept], 0)
    for place, bits in product(range(len(expected)), (1, 0x20, 0xFF)):
        with suppress(ValueError):
            unframe(flipped(expected, place, bits), 0)


def test_file_is_mxnets(tmp_path: Path) -> None:
    """``data.rec`` holds what im2rec writes: IRHeader with flag 0, label, id and id2, then the image file."""
    samples = make(5, SHAPES)
    pack(recordio, tmp_path, samples)
    data, place, found = (tmp_path / "data.rec").read_bytes(), 0, []
    while place < len(data):
        record, place = unframe(data, place)
        found.append(record)
    assert len(found) == 10
    for number, record in enumerate(found):
        index, field = divmod(number, 2)
        assert record == struct.pack("<IfQQ", 0, index, index, field) + encode_png(samples[index][field])


@pytest.mark.parametrize("name", ["data.rec", "data.idx"])
def test_flipped_byte(tmp_path: Path, name: str) -> None:
    """A flipped byte anywhere gives the right pixels (it was padding or a label) or an error that names the file."""
    samples = make(2, SHAPES)
    pack(recordio, tmp_path, samples)
    path = tmp_path / name
    data = path.read_bytes()
    for place in range(0, len(data), 1 if name == "data.idx" else 7):
        path.write_bytes(flipped(data, place))
        reader = again(recordio, tmp_path)
        for index, sample in enumerate(samples):
            problem = ""
            try:
                got = reader[index]
            except DataError as error:
                problem = str(error)
            assert ("data." in problem and "run again" in problem) if problem else equal(got, sample)
