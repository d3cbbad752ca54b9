"""Formats that store image files: the same files in each, encoded on all cores; streams notice what is gone."""

from __future__ import annotations

import io
import json
import pickle
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image as PILImage
from skimage import data as photographs

from feedrate.formats import Manifest, ReadOptions, Sample, _ahead, _encoding
from feedrate.formats._encoded import FILES_PER_FOLDER
from feedrate.formats._encoding import JPEG, PNG, THREADED_BYTES, encode_jpeg, encode_png, encoded
from feedrate.schema.errors import DataError, InputError
from feedrate.schema.plugins import STREAM_SHARDS, load, traits

SHAPES = ((12, 10, 3), (9, 8, 4), (4, 4, 1))
OF_PNG = ("png", "lmdb_png", "recordio", "webdataset", "tfrecord")
STREAMS = ("webdataset", "tfrecord")


def make(count: int, shapes: tuple[tuple[int, ...], ...] = SHAPES) -> list[Sample]:
    """Random samples."""
    random = np.random.default_rng(count)
    return [tuple(random.integers(0, 256, shape, np.uint8) for shape in shapes) for _ in range(count)]


def open_packed(storage: ModuleType, root: Path, samples: list[Sample], decoder: str = "pil") -> Any:
    """Pack samples, describe them as ``prepare`` does, and open them."""
    root.mkdir(exist_ok=True)
    storage.pack(iter(samples), root)
    manifest = Manifest(len(samples), tuple(field.shape for field in samples[0]), 0, "", 1, 1, 0.0)
    (root / "manifest.json").write_text(json.dumps(asdict(manifest)))
    return storage.open(root, ReadOptions(decoder=decoder))


def everything(packed: Any) -> list[tuple[int, Any]]:
    """Read all that is packed, in the order in which it comes."""
    if hasattr(packed, "records"):
        return [raw for shard in range(packed.shards) for raw in packed.records(shard)]
    return [packed.read(index) for index in range(len(packed))]


def same(left: Sample, right: Sample) -> bool:
    """Whether two samples agree in every pixel."""
    return len(left) == len(right) and all(map(np.array_equal, left, right))


def test_encoder_is_pillows() -> None:
    """A PNG file is, byte by byte, what Pillow saves at level 3: the stand-in is calibrated to it."""
    pixels = photographs.astronaut()[:200, :150]
    file = io.BytesIO()
    PILImage.fromarray(pixels).save(file, format="PNG", compress_level=3)
    assert encode_png(pixels) == file.getvalue()


@pytest.mark.parametrize("name", OF_PNG)
def test_same_files_in_every_container(name: str, tmp_path: Path) -> None:
    """What is read from a container is what the one encoder made, byte by byte: only the container differs."""
    samples = make(40)
    raws = dict(everything(open_packed(load("feedrate.formats", name), tmp_path, samples)))
    assert sorted(raws) == list(range(40))
    for index, sample in enumerate(samples):
        assert [bytes(data) for data in raws[index]] == [encode_png(field) for field in sample]


@pytest.mark.parametrize("decoder", ["pil", "torchvision", "cv2", "pyspng"])
@pytest.mark.parametrize("name", OF_PNG)
def test_every_decoder(name: str, decoder: str, tmp_path: Path) -> None:
    """Every format decodes with every decoder, also after it was pickled, into memory that the caller owns."""
    samples = make(3)
    packed = pickle.loads(pickle.dumps(open_packed(load("feedrate.formats", name), tmp_path, samples, decoder)))
    for raw in everything(packed):
        sample = packed.decode(raw)
        assert same(sample, samples[raw[0]])
        for field in sample:
            field[:] = 0
        assert same(packed.decode(raw), samples[raw[0]])


@pytest.mark.parametrize(
    ("name", "decoder", "message"),
    [("png", "pill", "did you mean 'pil'"), ("jpeg", "pyspng", "does not decode jpeg"), ("tfrecord", "x", "unknown")],
)
def test_decoder_refused(name: str, decoder: str, message: str, tmp_path: Path) -> None:
    """A decoder that is unknown, or does not decode what is stored, is refused when the data are opened."""
    with pytest.raises(InputError, match=message):
        open_packed(load("feedrate.formats", name), tmp_path, make(1), decoder)


def test_two_channels(tmp_path: Path) -> None:
    """Samples that no image file holds are refused while packing."""
    with pytest.raises(InputError, match="2 channels"):
        load("feedrate.formats", "recordio").pack(iter(make(1, ((9, 9, 2),))), tmp_path)


def test_folders_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder holds more files than the limit, whatever the number of fields."""
    assert FILES_PER_FOLDER == 1000
    monkeypatch.setattr("feedrate.formats._encoded.FILES_PER_FOLDER", 10)
    samples = make(20)
    packed = open_packed(load("feedrate.formats", "png"), tmp_path, samples)
    counts = [len(list(folder.iterdir())) for folder in tmp_path.iterdir() if folder.is_dir()]
    assert sum(counts) == 60
    assert max(counts) <= 10
    assert all(same(packed[index], sample) for index, sample in enumerate(samples))


@pytest.mark.parametrize("decoder", ["pil", "torchvision", "cv2"])
def test_jpeg(decoder: str, tmp_path: Path) -> None:
    """A photograph comes back within the format's bound; a label and transparency as they were, in files named so."""
    photograph = photographs.coffee()[:64, :80]
    random = np.random.default_rng(1)
    others = [random.integers(0, 256, shape, np.uint8) for shape in ((7, 20, 3), (1, 1, 1), (16, 16, 4))]
    jpeg = load("feedrate.formats", "jpeg")
    packed = open_packed(jpeg, tmp_path, [(photograph, photograph[..., :1], *others)], decoder)
    colour, grey, *exact = packed[0]
    assert 0 < np.abs(colour.astype(int) - photograph).mean() < jpeg.MEAN_ERROR
    assert 0 < np.abs(grey.astype(int) - photograph[..., :1]).mean() < jpeg.MEAN_ERROR
    assert same(tuple(exact), tuple(others))
    assert [path.suffix for path in sorted((tmp_path / "00000").iterdir())] == [".jpeg"] * 2 + [".raw"] * 3
    assert all(field.flags.writeable for field in packed[0])


def test_jpeg_raw_truncated(tmp_path: Path) -> None:
    """A label that lost bytes is an error that names its file."""
    packed = open_packed(load("feedrate.formats", "jpeg"), tmp_path, make(1, ((4, 4, 1),)))
    path = tmp_path / "00000" / "00000000-0.raw"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=f"{path.name}.*15 bytes, expected 16.*run again"):
        packed[0]


def test_jpeg_bound_holds_for_noise() -> None:
    """Even random bytes come back within the bound, at full colour resolution."""
    pixels = make(1, ((64, 64, 3),))[0][0]
    decode = load("feedrate.formats.decoders", "pil").decode
    error = np.abs(decode(encode_jpeg(pixels), pixels.shape).astype(int) - pixels).mean()
    assert error < load("feedrate.formats", "jpeg").MEAN_ERROR


def test_encodes_on_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many samples are encoded at once as there are cores, and come in their order."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    together = threading.Barrier(3)
    shape = (THREADED_BYTES, 1, 1)

    def encode(pixels: Any) -> bytes:
        together.wait(timeout=10)
        return bytes(pixels[0, 0])

    samples = [(np.full(shape, index, np.uint8),) for index in range(9)]
    files = list(encoded(samples, replace(PNG, encode=encode)))
    assert [files[index][0].data[0] for index in range(9)] == list(range(9))


@pytest.mark.parametrize("size", [4, 64])
def test_draws_few_ahead(size: int) -> None:
    """However many samples there are, few are drawn before the first is asked for: memory does not grow with them."""
    drawn = 0

    def endless() -> Iterator[Sample]:
        nonlocal drawn
        while True:
            drawn += 1
            yield make(1, ((size, size, 3),))[0]

    files = encoded(endless(), PNG)
    for asked in range(1, 50):
        next(files)
        assert drawn <= asked + _ahead.LOOK_AHEAD * _cores() + 1


def _cores() -> int:
    return len(_ahead.os.sched_getaffinity(0))


@pytest.mark.parametrize("name", [*OF_PNG, "jpeg"])
@pytest.mark.parametrize("broken", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("size", [4, 64])
def test_broken_source(name: str, broken: type[BaseException], size: int, tmp_path: Path) -> None:
    """An error of the source, and Ctrl-C, come through unchanged and leave no thread behind."""

    def breaking() -> Iterator[Sample]:
        yield from make(40, ((size, size, 3),))
        raise broken("source broke")

    before = set(threading.enumerate())
    with pytest.raises(broken, match="source broke"):
        load("feedrate.formats", name).pack(breaking(), tmp_path)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("name", [*OF_PNG, "jpeg"])
def test_no_samples(name: str, tmp_path: Path) -> None:
    """Packing nothing is no error: the count is checked by who asked for some."""
    load("feedrate.formats", name).pack(iter(()), tmp_path)
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"IHDR" not in written
    assert b"JFIF" not in written


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OF_PNG, "jpeg"])
def test_memory_is_flat(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing ten times the samples takes at most 1.2 times the memory of Python's objects.

    The large set counts by the least of three: whatever else this process allocates meanwhile is traced as well.
    """
    monkeypatch.setattr("feedrate.formats._lmdb.BATCH_BYTES", 1 << 18)  # which 60 samples fill
    picture = photographs.astronaut()[:128, :128]

    def peak(count: int) -> int:
        root = tmp_path / str(len(list(tmp_path.iterdir())))
        root.mkdir()
        tracemalloc.start()
        load("feedrate.formats", name).pack(((picture.copy(),) for _ in range(count)), root)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak(40)
    # Threads are ahead by chance, by up to the bound: hence the most of three sets of few.
    assert min(peak(600) for _ in range(3)) <= 1.2 * max(peak(60) for _ in range(3))


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("count", [1, STREAM_SHARDS - 1, STREAM_SHARDS, 2 * STREAM_SHARDS + 5])
def test_shards(name: str, count: int, tmp_path: Path) -> None:
    """Every sample lies in one shard; there are as many shards as samples allow, of nearly the same length."""
    samples = make(count, ((8, 8, 3),))
    stream = open_packed(load("feedrate.formats", name), tmp_path, samples)
    assert traits(name).streamed
    assert stream.shards == len(list(tmp_path.iterdir())) - 1 == min(count, STREAM_SHARDS)
    lengths = [len(list(stream.records(shard))) for shard in range(stream.shards)]
    assert max(lengths) - min(lengths) <= 1
    assert sorted(index for index, _ in everything(stream)) == list(range(count))
    assert all(same(stream.decode(raw), samples[raw[0]]) for raw in everything(stream))


def read_shard(stream: Any, shard: int) -> list[tuple[int, Sample]]:
    """Read and decode one shard."""
    return [(raw[0], stream.decode(raw)) for raw in stream.records(shard)]


def check_shard_damage(name: str, root: Path, step: int) -> None:
    """Cut the first shard, and flip a byte of it, at every ``step``-th place."""
    samples = make(STREAM_SHARDS * 3, ((8, 8, 3), (2, 2, 1)))
    stream = open_packed(load("feedrate.formats", name), root, samples)
    path = stream.path(0, 0)
    data = path.read_bytes()
    due = [0, STREAM_SHARDS, 2 * STREAM_SHARDS]
    for place in range(0, len(data), step):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :])
        problem = ""
        try:
            got = read_shard(stream, 0)
        except DataError as error:
            problem = str(error)
        if problem:
            assert path.name in problem
            assert "run again" in problem
        else:  # harmless: padding, a time, an owner
            assert [index for index, _ in got] == due
            assert all(same(sample, samples[index]) for index, sample in got)
        path.write_bytes(data[:place])
        with pytest.raises(DataError, match=f"{path.name}.*run again"):
            read_shard(stream, 0)


@pytest.mark.parametrize("name", STREAMS)
def test_damaged_shard(name: str, tmp_path: Path) -> None:
    """A shard that was cut or damaged gives an error that names it, never other, fewer or more samples."""
    check_shard_damage(name, tmp_path, 61)


@pytest.mark.slow
@pytest.mark.parametrize("name", STREAMS)
def test_damaged_shard_anywhere(name: str, tmp_path: Path) -> None:
    """The same at nearly every byte."""
    check_shard_damage(name, tmp_path, 3)


def test_tfrecord_checks_crcs(tmp_path: Path) -> None:
    """A flipped byte of a TFRecord file is noticed while it is read, by the CRC of the length or of the data."""
    stream = open_packed(load("feedrate.formats", "tfrecord"), tmp_path, make(1, ((8, 8, 3),)))
    path = stream.path(0, 0)
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        what = "a record's length" if place < 12 else "a record"
        with pytest.raises(DataError, match=rf"{path.name}.*wrong CRC of {what}\)"):
            list(stream.records(0))


@pytest.mark.parametrize("name", STREAMS)
def test_shards_mixed_up(name: str, tmp_path: Path) -> None:
    """Shards that changed places, are missing, of another set, or not files of this kind are named."""
    stream = open_packed(load("feedrate.formats", name), tmp_path, make(70, ((8, 8, 3),)))
    first, second = stream.path(0, 0), stream.path(1, 0)
    aside = first.rename(tmp_path / "aside")
    with pytest.raises(DataError, match=f"{first.name}: No such file"):
        list(stream.records(0))
    second.rename(first)
    with pytest.raises(DataError, match=f"{first.name}: sample 1 lies where 0"):
        list(stream.records(0))
    first.write_bytes(aside.read_bytes())
    smaller = replace(stream.manifest, count=64)
    stream.manifest = smaller
    with pytest.raises(DataError, match="sample 64 lies where the end"):
        list(stream.records(0))
    stream.manifest = replace(smaller, count=150)
    with pytest.raises(DataError, match="ends before sample 96"):
        list(stream.records(0))
    for junk in (b"no such thing" * 100, b"BZh9" + bytes(99), b"\x1f\x8b" + bytes(99), b"\xfd7zXZ\0" + bytes(99), b""):
        first.write_bytes(junk)
        with pytest.raises(DataError, match=f"{first.name}: .*run again"):
            list(stream.records(0))


@pytest.mark.parametrize("name", STREAMS)
def test_other_fields(name: str, tmp_path: Path) -> None:
    """Samples with another number of fields than the manifest says are refused."""
    stream = open_packed(load("feedrate.formats", name), tmp_path, make(2))
    stream.manifest = replace(stream.manifest, shapes=(*SHAPES, (4, 4, 1)))
    with pytest.raises(DataError, match="run again"):
        read_shard(stream, 0)


def test_tar_files_are_reproducible(tmp_path: Path) -> None:
    """Packing the same samples twice gives the same tar files: no time of day in them."""
    storage, samples = load("feedrate.formats", "webdataset"), make(3)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        storage.pack(iter(samples), tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_lmdb_lengths_damaged(tmp_path: Path) -> None:
    """A value whose fields do not add up is an error, not a shifted file."""
    storage = load("feedrate.formats", "lmdb_png")
    packed = open_packed(storage, tmp_path, make(2))
    packed.manifest = replace(packed.manifest, shapes=SHAPES[:2])
    packed = pickle.loads(pickle.dumps(packed))
    packed._lengths = "<2I"
    with pytest.raises(DataError, match="add up"):
        packed.read(0)
    packed._lengths = f"<{1 << 16}I"
    with pytest.raises(DataError, match="too few"):
        packed.read(0)


def test_codecs_name_what_they_store() -> None:
    """Every field is a PNG file; JPEG leaves labels and transparency alone."""
    assert {PNG.kind(shape) for shape in ((1, 1, 1), (7, 9, 3), (9, 9, 4))} == {"png"}
    assert [JPEG.kind(shape) for shape in ((8, 8, 3), (8, 8, 1))] == ["jpeg"] * 2
    assert [JPEG.kind(shape) for shape in ((7, 8, 3), (8, 7, 1), (8, 8, 4), (8, 8, 2))] == ["raw"] * 4
    assert _encoding.COMPRESS_LEVEL == 3
