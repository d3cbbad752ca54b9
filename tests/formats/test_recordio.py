"""MXNet's RecordIO: the codec of frames, MXNet's header, and the index."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from contract import again, equal, flipped, make, pack
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.formats import recordio
from feedrate.formats._images import encode_png
from feedrate.formats.recordio import MAGIC, frame, unframe
from feedrate.schema.errors import DataError

SHAPES = ((12, 10, 3), (4, 4, 1))
PAYLOADS = st.lists(
    st.one_of(st.just(MAGIC), st.just(MAGIC[:3]), st.just(MAGIC[1:]), st.binary(max_size=9)), max_size=12
).map(b"".join)
"""Bytes full of magic numbers, at multiples of 4 and beside them."""


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
    """Records lie in the file as ``RecordIOWriter::WriteRecord`` of dmlc-core writes them."""
    assert frame(data) == expected


@settings(max_examples=150)
@given(st.lists(PAYLOADS, min_size=1, max_size=4))
def test_records_come_back(payloads: list[bytes]) -> None:
    """Any bytes come back; at multiples of 4 the magic number begins a chunk and is nowhere else."""
    framed = [frame(data) for data in payloads]
    assert all(len(record) % 4 == 0 for record in framed)
    data, place = b"".join(framed), 0
    for payload in payloads:
        got, place = unframe(data, place)
        assert got == payload
    assert place == len(data)
    chunks = sum(1 + len([i for i in range(0, len(p) - 3, 4) if p[i : i + 4] == MAGIC]) for p in payloads)
    assert [data[i : i + 4] for i in range(0, len(data), 4)].count(MAGIC) == chunks


@settings(max_examples=150)
@given(st.one_of(st.binary(max_size=60), PAYLOADS.map(frame)), st.data())
def test_damaged_frames(data: bytes, draw: st.DataObject) -> None:
    """Whatever bytes are read as a record, the outcome is bytes or a ValueError; a truncated record is one."""
    if data:
        place = draw.draw(st.integers(0, len(data) - 1))
        damaged = flipped(data, place, draw.draw(st.integers(1, 255)))
        for anything in (data, damaged):
            try:
                got, end = unframe(anything, 0)
            except ValueError:
                continue
            assert len(got) <= end
    whole = frame(data)
    with pytest.raises(ValueError, match="truncated"):
        unframe(whole[: draw.draw(st.integers(0, len(whole) - -len(data) % 4 - 1))], 0)


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


@pytest.mark.parametrize("kept", [0, 7, 8, -8, -1])
def test_damaged_index(tmp_path: Path, kept: int) -> None:
    """An index that lost its end is an error that names it; samples that changed places are refused by their ids."""
    reader = pack(recordio, tmp_path, make(5, SHAPES))
    path = tmp_path / "data.idx"
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    with pytest.raises(DataError, match=r"data\.idx"):
        reader[0]
    begins = np.frombuffer(whole, "<u8").copy()
    begins[[0, 1, 2]] = begins[[2, 3, 4]]
    begins.tofile(path)
    with pytest.raises(DataError, match="another record"):
        again(recordio, tmp_path)[0]
