"""What is particular to the formats that store pixels, beyond the contract of all."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import h5py
import lmdb
import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import zarr
from contract import again, equal, format_, make, pack

from feedrate.formats import PixelReader, Sample, flat
from feedrate.schema.errors import DataError

SHAPES = ((16, 14, 3), (5, 7, 1), (1, 2, 1))
SIZE = 16 * 14 * 3 + 5 * 7 + 2
STORED_AS_PIXELS = ("arrow", "hdf5", "hdf5_chunked", "hdf5_chunks", "hdf5_plain", "lmdb", "memmap", "npy", "zarr")


@pytest.fixture(params=STORED_AS_PIXELS)
def packed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[PixelReader, list[Sample]]:
    """A reader of each format, and the 40 samples that it holds."""
    samples = make(40, SHAPES)
    return pack(request.param, tmp_path, samples), samples


@pytest.mark.parametrize("as_view", [False, True])
def test_reads_into_callers_memory(packed: tuple[PixelReader, list[Sample]], as_view: bool) -> None:
    """Every byte of a sample lands in a buffer that the caller reuses, array or view; they are alike everywhere."""
    reader, samples = packed
    assert reader.size == SIZE
    pixels = np.empty(SIZE, np.uint8)
    for index in (39, 0, 17, 17):
        pixels[:] = 7
        reader.read_into(index, pixels.data if as_view else pixels)
        assert pixels.tobytes() == b"".join(field.tobytes() for field in samples[index])


def test_libraries_read_the_files(tmp_path: Path) -> None:
    """What version 1 has always written: each container's own library, with its defaults, finds pixels in order."""
    samples = make(40, SHAPES)
    pixels = [bytes(flat(sample)) for sample in samples]
    for name in ("arrow", "hdf5", "hdf5_chunked", "hdf5_chunks", "lmdb", "lmdb_lz4", "memmap", "zarr"):
        pack(name, tmp_path / name, samples)
        assert (2 if name == "lmdb_lz4" else 1) == format_(name).VERSION
    assert (tmp_path / "memmap" / "pixels.bin").read_bytes() == b"".join(pixels)
    for name, unpacked in (("lmdb", bytes), ("lmdb_lz4", lz4.frame.decompress)):
        with lmdb.open(str(tmp_path / name), readonly=True, lock=False) as env, env.begin() as txn:
            found = [(key, unpacked(value)) for key, value in txn.cursor()]
        assert found == [(place.to_bytes(8, "big"), value) for place, value in enumerate(pixels)]
    for name, chunk, compression in (("hdf5", 1, None), ("hdf5_chunked", 16, "gzip"), ("hdf5_chunks", 8, None)):
        with h5py.File(tmp_path / name / "pixels.h5") as file:
            held = file["pixels"]
            assert (held.chunks, held.compression) == ((chunk, SIZE), compression)
            assert [row.tobytes() for row in held[:]] == pixels
    with pa.memory_map(str(tmp_path / "arrow" / "pixels.arrow")) as mapped:
        assert pa.ipc.open_file(mapped).read_all()["pixels"].to_pylist() == pixels
    array = zarr.open_array(tmp_path / "zarr" / "pixels.zarr", mode="r")
    assert array.chunks == (1, SIZE)
    assert [row.tobytes() for row in array[:]] == pixels


def test_lz4_has_no_checksum_and_survives_damage(tmp_path: Path) -> None:
    """As values of lmdb: a cut one is refused, a flipped byte is another pixel or refused, and nothing worse."""
    (sample,) = make(1, SHAPES)
    reader = pack("lmdb_lz4", tmp_path, [sample])
    index, value = reader.read(0)
    assert not lz4.frame.get_frame_info(value)["content_checksum"]
    for cut in range(0, len(value), 13):
        with pytest.raises(DataError, match=r"data\.mdb: sample 0: .*run again"):
            reader.decode((index, value[:cut]))
    for place in range(0, len(value), 13):
        changed = bytearray(value)
        changed[place] ^= 0x10
        try:
            fields = reader.decode((index, bytes(changed)))
        except DataError:
            continue
        assert [field.shape for field in fields] == [field.shape for field in sample]


def test_npy_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy itself reads a sample's file; no folder holds more files than the limit."""
    assert format_("npy").FILES_PER_FOLDER == 1000
    monkeypatch.setattr(format_("npy"), "FILES_PER_FOLDER", 10)
    samples = make(25, SHAPES)
    reader = pack("npy", tmp_path, samples)
    folders = [folder for folder in sorted(tmp_path.iterdir()) if folder.is_dir()]
    assert [len(list(folder.iterdir())) for folder in folders] == [10, 10, 5]
    assert np.array_equal(np.load(folders[1] / "00000013.npy"), np.frombuffer(flat(samples[13]), np.uint8))
    assert equal(reader[13], samples[13])


@pytest.mark.parametrize("name", ["hdf5", "hdf5_chunked"])
@pytest.mark.parametrize("kept", [1.0, 0.9, 0.5, 0.01])
def test_hdf5_swmr(tmp_path: Path, name: str, kept: float) -> None:
    """Opened as single writer, multiple readers, the same samples come, or a DataError where the file was cut."""
    samples = make(40, SHAPES)
    reader = pack(name, tmp_path, samples, swmr=True)
    path = tmp_path / "pixels.h5"
    if kept < 1:
        os.truncate(path, int(path.stat().st_size * kept))
        with pytest.raises(DataError, match=r"pixels\.h5: .*run again"):
            list(reader)
        return
    assert all(map(equal, reader, samples))
    assert h5py.Dataset(reader.opened()[0]).file.swmr_mode


def test_hdf5_without_locks(tmp_path: Path) -> None:
    """A file that somebody else has locked for writing is read all the same, as network disks refuse to lock."""
    samples = make(3, SHAPES)
    reader = pack("hdf5", tmp_path, samples)
    with (tmp_path / "pixels.h5").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert equal(reader[1], samples[1])


def test_zarr_invents_no_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that is gone or empty is an error where Zarr gives zeros; a black sample is stored, not left out."""
    monkeypatch.setattr(format_("zarr"), "SHARD_SAMPLES", 4)
    samples = [tuple(np.zeros(shape, np.uint8) for shape in SHAPES) for _ in range(10)]
    reader = pack("zarr", tmp_path, samples)
    assert all(map(equal, reader, samples))
    shard = tmp_path / "pixels.zarr" / "c" / "1" / "0"
    assert shard.stat().st_size > 4 * SIZE
    shard.unlink()
    assert not zarr.open_array(tmp_path / "pixels.zarr", mode="r")[5].any()
    with pytest.raises(DataError, match="run again"):
        again(format_("zarr"), tmp_path)[5]
