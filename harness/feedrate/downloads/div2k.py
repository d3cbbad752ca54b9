"""DIV2K, from its archive to sub-images: ``make div2k``. The photographs themselves are never unpacked."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pooch
from rich.console import Console

from feedrate.downloads import crops, transfer
from feedrate.downloads.transfer import Archive
from feedrate.schema.errors import DataError, InputError, expected_one_of

TERMS = """\
DIV2K is for academic research only. Its photographs belong to their authors: never pass them on, neither whole nor cut,
and never publish them with results. Cite: Agustsson and Timofte, "NTIRE 2017 Challenge on Single Image
Super-Resolution: Dataset and Study", CVPR Workshops 2017. https://data.vision.ee.ethz.ch/cvl/DIV2K/"""
GROWTH = 4.0
"""Bytes of the sub-images for a byte of photographs, with some to spare: they overlap, in 3.36 times the pixels."""
_SERVER = "https://data.vision.ee.ethz.ch/cvl/DIV2K"
_TRAIN = "sha256:9d0b9c463f6e35b6c62cc6a930ee2224f670b34c1df841a57670f9acf0f6c335"
_VALID = "sha256:20dd31fd84d777bc1cf5d6b7654a3f569c0aec74458ae094122ad1d0489900fc"
SPLITS: dict[str, tuple[Archive, range]] = {
    "train": (Archive(f"{_SERVER}/DIV2K_train_HR.zip", 3_530_603_713, _TRAIN), range(1, 801)),
    "valid": (Archive(f"{_SERVER}/DIV2K_valid_HR.zip", 448_993_893, _VALID), range(801, 901)),
}
"""Name → the archive, and the numbers of its photographs."""


def fetch(split: str, data_root: Path, console: Console, copy: Path | None = None) -> Path:
    """Make sure that the sub-images of a part of DIV2K are there, from its archive or the user's own copy.

    Raises:
        InputError: no such part, or a wrong copy.
        EnvironmentFault: no room, a folder that cannot be written, or a network that does not work.
        DataError: what came is damaged.
    """
    if split not in SPLITS:
        raise InputError(f"--split {split}: DIV2K has no such part; {expected_one_of(split, SPLITS)}")
    console.out(TERMS, highlight=False)
    archive, numbers = SPLITS[split]
    stem, path = Path(archive.name).stem, data_root / archive.name
    target = data_root / f"{stem}_sub"
    with transfer.workplace(data_root, console):
        if not (count := _whole(target)):
            left = sum(not (target / f"{number:04d}").exists() for number in numbers)
            transfer.require(data_root, [] if copy else [archive], GROWTH * archive.size * left / len(numbers))
            source = _checked(copy, archive, numbers) if copy else transfer.fetch(archive, data_root, console)
            target.mkdir(exist_ok=True)
            folder = f"{stem}/" if source.is_file() else ""
            crops.cut_all(source, [f"{folder}{number:04d}.png" for number in numbers], target, console)
            count = crops.record(target, len(numbers), archive.checksum[7:] if source.is_file() else None)
    console.out(f"{target}: {count:,} sub-images of {len(numbers)} photographs are there.", highlight=False)
    if path.exists():
        console.out(f"{path} is not needed any more: it can be deleted.", highlight=False)
    return target


def _whole(target: Path) -> int:
    """How many sub-images a set has that needs no cutting, else 0; one that lost a file is removed."""
    with suppress(DataError):
        if (count := crops.recorded(target)) == sum(1 for _ in target.glob("*/*.png")):
            return count
        shutil.rmtree(target)
    return 0


def _checked(copy: Path, archive: Archive, numbers: range) -> Path:
    """The user's own archive, or folder in which the photographs lie, if it is the right one."""
    stem, names = Path(archive.name).stem, [f"{number:04d}.png" for number in numbers]
    folder = copy / stem if (copy / stem).is_dir() else copy
    expected = f"expected {archive.name} as published ({archive.checksum}), or a folder with {names[0]} to {names[-1]}"
    if not copy.exists():
        raise InputError(f"--archive {copy}: no such file or folder; {expected}")
    if copy.is_file() and (checksum := pooch.file_hash(copy)) != archive.checksum[7:]:
        raise InputError(f"--archive {copy}: has the sha256 {checksum}; {expected}. Leave --archive out to download it")
    if folder.is_dir() and (lacking := [name for name in names if not (folder / name).is_file()]):
        raise InputError(f"--archive {copy}: lacks {len(lacking)} photographs, such as {lacking[0]}; {expected}")
    return folder
