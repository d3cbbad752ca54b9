"""Formats that store image files: the same files in each, encoded on all cores; streams notice what is gone."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import equal, flipped, format_, make, pack, raws
from PIL import Image as PILImage
from skimage import data as photographs

from feedrate.formats import Image, Sample
from feedrate.schema.errors import DataError, InputError
from feedrate.schema.plugins import STREAM_SHARDS

SHAPES = ((12, 10, 3), (9, 8, 4), (4, 4, 1))
OF_PNG = ("png", "lmdb_png", "recordio", "webdataset", "tfrecord")
STREAMS = ("webdataset", "tfrecord")


def saved(pixels: Image) -> bytes:
    """A PNG file as Pillow saves it at level 3, to which the stand-in is calibrated."""
    file = io.BytesIO()
    PILImage.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(file, "PNG", compress_level=3)
    return file.getvalue()


@pytest.mark.parametrize("name", OF_PNG)
def test_same_files_in_every_container(name: str, tmp_path: Path) -> None:
    """What is read from a container is what Pillow makes, byte by byte: only the container differs."""
    samples = make(40, SHAPES)
    read = dict(raws(pack(name, tmp_path, samples)))
    assert sorted(read) == list(range(40))
    for index, sample in enumerate(samples):
        assert [bytes(data) for data in read[index]] == [saved(field) for field in sample]


@pytest.mark.parametrize(
    ("name", "decoder", "message"),
    [("png", "pill", "did you mean 'pil'"), ("jpeg", "pyspng", "does not decode jpeg"), ("tfrecord", "x", "unknown")],
)
def test_decoder_refused(name: str, decoder: str, message: str, tmp_path: Path) -> None:
    """A decoder that is unknown, or does not decode what is stored, is refused when the data are opened."""
    with pytest.raises(InputError, match=message):
        pack(name, tmp_path, make(1, SHAPES), decoder=decoder)


@pytest.mark.parametrize("decoder", ["pil", "torchvision", "cv2"])
def test_jpeg(decoder: str, tmp_path: Path) -> None:
    """Photographs and noise come back within the bound; a label and transparency as they were, in files named so."""
    photograph = photographs.coffee()[:64, :80]
    noise, *others = make(1, ((64, 64, 3), (7, 20, 3), (1, 2, 1), (16, 16, 4)))[0]
    originals = (photograph, photograph[..., :1], noise)
    packed = pack("jpeg", tmp_path, [(*originals, *others)], decoder=decoder)
    images, exact = packed[0][:3], packed[0][3:]
    for image, original in zip(images, originals, strict=True):
        assert 0 < np.abs(image.astype(int) - original).mean() < format_("jpeg").MEAN_ERROR
    assert equal(exact, tuple(others))
    files = sorted((tmp_path / "00000").iterdir())
    assert [path.suffix for path in files] == [".jpeg"] * 3 + [".raw"] * 3
    assert all(field.flags.writeable for field in packed[0])
    files[-1].write_bytes(files[-1].read_bytes()[:-1])
    with pytest.raises(DataError, match=f"{files[-1].name}.*1023 bytes, expected 1024.*run again"):
        packed[0]


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("count", [1, STREAM_SHARDS - 1, STREAM_SHARDS, 2 * STREAM_SHARDS + 5])
def test_shards(name: str, count: int, tmp_path: Path) -> None:
    """Every sample lies in one shard; there are as many shards as samples allow, of nearly the same length."""
    stream = pack(name, tmp_path, make(count, ((8, 8, 3),)))
    assert stream.shards == len(list(tmp_path.iterdir())) - 1 == min(count, STREAM_SHARDS)
    lengths = [len(list(stream.records(shard))) for shard in range(stream.shards)]
    assert max(lengths) - min(lengths) <= 1
    assert sum(lengths) == count


def read_shard(stream: Any, shard: int) -> list[tuple[int, Sample]]:
    """Read and decode one shard."""
    return [(raw[0], stream.decode(raw)) for raw in stream.records(shard)]


@pytest.mark.parametrize("name", STREAMS)
def test_damaged_shard(name: str, tmp_path: Path) -> None:
    """A shard that was cut or damaged, at every so many bytes, is an error that names it, never other samples."""
    samples = make(STREAM_SHARDS * 3, ((8, 8, 3), (2, 2, 1)))
    stream = pack(name, tmp_path, samples)
    path = stream.path(0, 0)
    data = path.read_bytes()
    due = [0, STREAM_SHARDS, 2 * STREAM_SHARDS]
    for place in range(0, len(data), 211):
        path.write_bytes(flipped(data, place))
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
            assert all(equal(sample, samples[index]) for index, sample in got)
        path.write_bytes(data[:place])
        with pytest.raises(DataError, match=f"{path.name}.*run again"):
            read_shard(stream, 0)


@pytest.mark.parametrize("name", STREAMS)
def test_shards_mixed_up(name: str, tmp_path: Path) -> None:
    """Shards that changed places, are missing, of another set, or not files of this kind are named."""
    stream = pack(name, tmp_path, make(70, ((8, 8, 3),)))
    first, second = stream.path(0, 0), stream.path(1, 0)

    def refused(problem: str) -> None:
        with pytest.raises(DataError, match=problem):
            list(stream.records(0))

    aside = first.rename(tmp_path / "aside")
    refused(f"{first.name}: No such file")
    second.rename(first)
    refused(f"{first.name}: .*sample 1 lies where 0")
    first.write_bytes(aside.read_bytes())
    stream.manifest = replace(stream.manifest, count=64)
    refused("sample 64 lies where the end")
    stream.manifest = replace(stream.manifest, count=150)
    refused("ends before sample 96")
    for junk in (b"no such thing" * 100, b"BZh9" + bytes(99), b"\x1f\x8b" + bytes(99), b"\xfd7zXZ\0" + bytes(99), b""):
        first.write_bytes(junk)
        refused(f"{first.name}: .*run again")
    first.write_bytes(aside.read_bytes())
    stream.manifest = replace(stream.manifest, count=70, shapes=((8, 8, 3), (4, 4, 1)))
    with pytest.raises(DataError, match="run again"):
        read_shard(stream, 0)
