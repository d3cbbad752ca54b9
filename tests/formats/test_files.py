"""Formats that hold files of any size, byte for byte."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from contract import everything, format_

from feedrate.formats import Manifest, Reader, ReadOptions, Sample, Stream, shapes_of
from feedrate.schema.plugins import names, traits

OF_FILES = [name for name in names("feedrate.formats") if "files" in traits(name).holds]
COUNT = 66


def made() -> list[Sample]:
    """Files of 1 to 9,000 bytes, some with RecordIO's magic number in them; the last field tells the index."""
    random = np.random.default_rng(5)
    magic = np.frombuffer(b"\x0a\x23\xd7\xce", np.uint8)
    samples = []
    for index in range(COUNT):
        file = random.integers(0, 256, int(random.integers(1, 9000)), np.uint8)
        file = np.concatenate([file, magic, magic]) if index % 3 else file
        about = np.array([0] * 10 + list(divmod(index, 256)), np.uint8).reshape(1, 1, 12)
        samples.append((file, about))
    return samples


def packed(name: str, root: Path) -> Reader | Stream:
    """Pack files and open them."""
    samples = made()
    format_(name).pack(iter(samples), root)
    manifest = Manifest(COUNT, shapes_of(samples[0]), 0, "", 1, 1, 0.0)
    (root / "manifest.json").write_text(json.dumps(asdict(manifest)))
    opened: Reader | Stream = format_(name).open(root, ReadOptions(decoder="simplejpeg"))
    return opened


@pytest.mark.parametrize("name", OF_FILES)
def test_files_come_back(name: str, tmp_path: Path) -> None:
    """Every byte of every file, in memory of the caller's, also from a reader that was pickled."""
    opened, samples = packed(name, tmp_path), made()
    for reader in (opened, pickle.loads(pickle.dumps(opened))):
        for (file, about), (wanted, number) in zip(everything(reader), samples, strict=True):
            assert np.array_equal(file, wanted)
            assert np.array_equal(about, number)
            file[:] = 0
