"""What is particular to the formats that store pixels, beyond the contract of all."""

from __future__ import annotations

import fcntl
import os
import pickle
import threading
import time
from itertools import count
from pathlib import Path

import h5py
import lmdb
import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import zarr
from contract import again, equal, format_, in_child, make, pack

from feedrate.formats import PerProcess, PixelReader, Sample, cut, flat, map_on_all_cores
from feedrate.schema.errors import DataError

SHAPES = ((16, 14, 3), (5, 7, 1), (1, 2, 1))
SIZE = 16 * 14 * 3 + 5 * 7 + 2
STORED_AS_PIXELS = ("arrow", "hdf5", "hdf5_chunked", "lmdb", "memmap", "npy", "zarr")


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


@pytest.mark.parametrize("wrong", [0, 1, SIZE - 1, SIZE + 1])
def test_buffer_of_another_length(packed: tuple[PixelReader, list[Sample]], wrong: int) -> None:
    """A buffer that is too short or too long is refused, and no byte beyond it is touched."""
    reader, _ = packed
    memory = np.full(SIZE + 64, 7, np.uint8)
    with pytest.raises(DataError, match="run again"):
        reader.read_into(3, memory[:wrong])
    assert (memory[wrong:] == 7).all()


@pytest.mark.parametrize("index", [40, 1 << 40])
def test_no_such_sample(packed: tuple[PixelReader, list[Sample]], index: int) -> None:
    """Reading beyond the last sample is an error, not the padding of a chunk or what lies behind the pixels."""
    with pytest.raises(DataError, match="run again"):
        packed[0].read(index)


def test_cutting() -> None:
    """Fields are views of the pixels; too few or too many are refused; a flat sample is a copy."""
    sample = make(1, SHAPES)[0]
    pixels = np.frombuffer(bytearray(flat(sample)), np.uint8)
    fields = cut(pixels, SHAPES)
    assert equal(fields, sample)
    assert all(np.shares_memory(field, pixels) for field in fields)
    for wrong in (pixels[:-1], np.append(pixels, 0)):
        with pytest.raises(ValueError, match=r"cannot reshape|bytes, expected"):
            cut(wrong, SHAPES)
    copy = flat(sample[:1])
    sample[0][:] = 0
    assert any(copy)


def test_lmdb_map_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set larger than LMDB's first map, and a value larger than it, are packed whole."""
    monkeypatch.setattr("feedrate.formats.lmdb.MAP_BYTES", 1 << 16)
    monkeypatch.setattr("feedrate.formats.lmdb.BATCH_BYTES", 1 << 14)
    for name, samples in (("many", make(300, ((40, 40, 3),))), ("large", make(2, ((400, 400, 3),)))):
        reader = pack("lmdb", tmp_path / name, samples)
        assert all(map(equal, reader, samples))


def test_lmdb_layout(tmp_path: Path) -> None:
    """A value is a sample's pixels, its key the index in 8 bytes, big-endian: what version 1 has always written."""
    samples = make(3, SHAPES)
    pack("lmdb", tmp_path, samples)
    with lmdb.open(str(tmp_path), readonly=True, lock=False) as env, env.begin() as txn:
        assert list(txn.cursor()) == [(i.to_bytes(8, "big"), bytes(flat(s))) for i, s in enumerate(samples)]
    assert format_("lmdb").VERSION == 1


@pytest.mark.parametrize("readahead", [True, False])
def test_lmdb_readahead(tmp_path: Path, readahead: bool) -> None:
    """The knob reaches the kernel: the map is advised to be read at random, or is not."""
    samples = make(3, SHAPES)
    reader = pack("lmdb", tmp_path, samples, readahead=readahead)
    assert equal(reader[2], samples[2])
    described = Path("/proc/self/smaps").read_text().split(str(tmp_path / "data.mdb"))[1]
    flags = next(line for line in described.splitlines() if line.startswith("VmFlags"))
    assert ("rr" not in flags.split()) == readahead


@pytest.mark.parametrize("name", ["lmdb", "lmdb_lz4"])
def test_lmdb_shares_an_environment(tmp_path: Path, name: str) -> None:
    """LMDB refuses to open a file twice in a process: readers share it, and the last one closes it."""
    samples = make(4, SHAPES)
    first = pack(name, tmp_path, samples)
    second, third = again(format_(name), tmp_path), pickle.loads(pickle.dumps(first))
    assert all(equal(reader[3], samples[3]) for reader in (first, second, third))
    del first, second
    assert equal(third[0], samples[0])
    del third
    lmdb.open(str(tmp_path), readonly=True, lock=False).close()


def test_lz4_values(tmp_path: Path) -> None:
    """A value is one frame over all fields, which any lz4 reads; what repeats takes less room."""
    sample = make(1, SHAPES)[0]
    pack("lmdb_lz4", tmp_path, [sample, tuple(np.zeros_like(field) for field in sample)])
    with lmdb.open(str(tmp_path), readonly=True, lock=False) as env, env.begin() as txn:
        values = [value for _, value in txn.cursor()]
    assert lz4.frame.decompress(values[0]) == bytes(flat(sample))
    assert len(values[1]) < SIZE // 10


def test_lz4_notices_damage(tmp_path: Path) -> None:
    """Every flipped byte of a value is noticed, and never decoded into other pixels."""
    reader = pack("lmdb_lz4", tmp_path, make(1, SHAPES))
    index, value = reader.read(0)
    for place in range(0, len(value), 13):
        changed = bytearray(value)
        changed[place] ^= 0x10
        with pytest.raises(DataError, match=r"data\.mdb: sample 0: .*run again"):
            reader.decode((index, bytes(changed)))


def test_memmap_layout(tmp_path: Path) -> None:
    """The file is the pixels, sample after sample, and nothing else."""
    samples = make(5, SHAPES)
    pack("memmap", tmp_path, samples)
    assert (tmp_path / "pixels.bin").read_bytes() == b"".join(map(flat, samples))


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


def test_npy_of_another_type(tmp_path: Path) -> None:
    """A file of the right length that holds something else, such as int8, is refused."""
    reader = pack("npy", tmp_path, make(2, SHAPES))
    np.save(tmp_path / "00000" / "00000001.npy", np.zeros(SIZE, np.int8))
    with pytest.raises(DataError, match=r"00000001\.npy: .*run again"):
        reader[1]


def test_hdf5_layout(tmp_path: Path) -> None:
    """H5py with its defaults reads both files: one sample a chunk, and 16 of them compressed."""
    samples = make(20, SHAPES)
    for name, chunk, compression in (("hdf5", 1, None), ("hdf5_chunked", 16, "gzip")):
        pack(name, tmp_path / name, samples)
        with h5py.File(tmp_path / name / "pixels.h5") as file:
            pixels = file["pixels"]
            assert (pixels.chunks, pixels.compression) == ((chunk, SIZE), compression)
            assert np.array_equal(pixels[:], [np.frombuffer(flat(sample), np.uint8) for sample in samples])


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
    assert reader._opened()._file.swmr_mode


def test_hdf5_without_locks(tmp_path: Path) -> None:
    """A file that somebody else has locked for writing is read all the same, as network disks refuse to lock."""
    samples = make(3, SHAPES)
    reader = pack("hdf5", tmp_path, samples)
    with (tmp_path / "pixels.h5").open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert equal(reader[1], samples[1])


def test_hdf5_reads_a_chunk_once_in_order(tmp_path: Path) -> None:
    """The chunk cache holds what is read in order: the file is not read again for each sample of a chunk."""
    reader = pack("hdf5_chunked", tmp_path, make(64, ((64, 64, 3),)))

    def bytes_read(order: list[int]) -> int:
        def total() -> int:
            return int(next(line for line in io.read_text().splitlines() if line.startswith("rchar")).split()[1])

        io = Path(f"/proc/self/task/{threading.get_native_id()}/io")
        begun = total()
        for index in order:
            reader.read(index)
        return total() - begun

    size = (tmp_path / "pixels.h5").stat().st_size
    assert bytes_read(list(range(64))) < 1.5 * size
    assert bytes_read([index for turn in range(16) for index in range(turn, 64, 16)]) > 8 * size


def test_zarr_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zarr itself reads the array; samples share files, each a chunk of its own."""
    monkeypatch.setattr(format_("zarr"), "SHARD_SAMPLES", 16)
    samples = make(40, SHAPES)
    pack("zarr", tmp_path, samples)
    array = zarr.open_array(tmp_path / "pixels.zarr", mode="r")
    assert (array.shards, array.chunks) == ((16, SIZE), (1, SIZE))
    assert np.array_equal(array[:], [np.frombuffer(flat(sample), np.uint8) for sample in samples])
    assert len(list((tmp_path / "pixels.zarr").rglob("0"))) == 4  # three shards, and the folder of the first


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


def test_arrow_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow itself reads the file: batches of one column of fixed size."""
    monkeypatch.setattr(format_("arrow"), "BATCH_BYTES", 16 * SIZE)
    samples = make(40, SHAPES)
    reader = pack("arrow", tmp_path, samples)
    with pa.memory_map(str(tmp_path / "pixels.arrow")) as mapped:
        file = pa.ipc.open_file(mapped)
        assert [file.get_batch(i).num_rows for i in range(file.num_record_batches)] == [16, 16, 8]
        assert file.read_all()["pixels"].to_pylist() == [bytes(flat(sample)) for sample in samples]
    assert equal(reader[39], samples[39])


def test_handle_of_each_process() -> None:
    """A handle is opened once in a process, is opened anew in a fork, and does not travel in a pickle."""
    handle = PerProcess(os.getpid)
    assert handle() == handle() == os.getpid()
    assert in_child(lambda: handle() == os.getpid()) == (0, "True")
    opened = PerProcess(count)
    assert [next(opened()), next(opened())] == [0, 1]
    assert next(pickle.loads(pickle.dumps(opened))()) == 0


def test_results_come_in_order() -> None:
    """Results come in the order of the items, whichever is done first; an error comes through."""

    def work(item: int) -> int:
        time.sleep(0.002 if item % 3 == 0 else 0)
        return item * item

    assert list(map_on_all_cores(work, range(200))) == [item * item for item in range(200)]
    with pytest.raises(ZeroDivisionError):
        list(map_on_all_cores(lambda item: 1 // item, [1, 0]))
