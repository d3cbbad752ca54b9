"""DIV2K, from its archive to sub-images: ``make div2k``.

The archive is downloaded, or the user's own is taken, and sub-images are cut straight from it: the photographs
themselves are never unpacked. Every step is either done or not, whenever it is interrupted; the same command goes on.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from feedrate.downloads import crop_set, crops, disk
from feedrate.downloads.crop_set import CutSet
from feedrate.downloads.meter import say
from feedrate.downloads.transfer import Patience, Remote, download, mismatch, rest
from feedrate.schema.errors import DataError, InputError, expected_one_of

TERMS = """\
DIV2K is for academic research only. Its photographs belong to their authors: never pass them on, neither whole nor cut,
and never publish them with results. Cite: Agustsson and Timofte, "NTIRE 2017 Challenge on Single Image
Super-Resolution: Dataset and Study", CVPR Workshops 2017. https://data.vision.ee.ethz.ch/cvl/DIV2K/"""


@dataclass(frozen=True, slots=True)
class Part:
    """One of DIV2K's archives, as published."""

    remote: Remote
    folder: str
    """Of the members of the archive."""
    first: int
    """Number of the first photograph."""
    count: int

    @property
    def files(self) -> list[str]:
        """Names of the photographs."""
        return [f"{number:04d}.png" for number in range(self.first, self.first + self.count)]

    @property
    def members(self) -> list[str]:
        """Names of the photographs in the archive."""
        return [f"{self.folder}/{name}" for name in self.files]


def _part(folder: str, first: int, count: int, size: int, sha256: str) -> Part:
    url = f"https://data.vision.ee.ethz.ch/cvl/DIV2K/{folder}.zip"
    return Part(Remote(url, size, "sha256", sha256), folder, first, count)


_TRAIN = "9d0b9c463f6e35b6c62cc6a930ee2224f670b34c1df841a57670f9acf0f6c335"
_VALID = "20dd31fd84d777bc1cf5d6b7654a3f569c0aec74458ae094122ad1d0489900fc"
PARTS: dict[str, Part] = {
    "train": _part("DIV2K_train_HR", 1, 800, 3_530_603_713, _TRAIN),
    "valid": _part("DIV2K_valid_HR", 801, 100, 448_993_893, _VALID),
}


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the photographs are."""

    path: Path
    """A zip archive or a folder."""
    names: list[str]
    """Of its members or files."""
    sha256: str | None
    """Of the archive."""


def fetch(
    split: str,
    data_root: Path,
    console: Console,
    archive: Path | None = None,
    parts: Mapping[str, Part] = PARTS,
    patience: Patience | None = None,
) -> Path:
    """Make sure that the sub-images of a part of DIV2K are there.

    Raises:
        InputError: no such part, or a wrong archive.
        EnvironmentFault: no room, a folder that cannot be written, or a network that does not work.
        DataError: what came is damaged.
        KeyboardInterrupt: after saying that the same command continues.
    """
    if split not in parts:
        raise InputError(f"SPLIT={split}: DIV2K has no such part; {expected_one_of(split, parts)}")
    part = parts[split]
    say(console, TERMS)
    with disk.workplace(data_root, console):
        target = data_root / f"{part.folder}_sub"
        if whole := _whole(target, part):
            say(console, f"{target}: {whole.count:,} sub-images of {whole.photographs} photographs are there already.")
            return target
        source = _given(archive, split, parts, console) if archive else _downloaded(part, data_root, console, patience)
        count = _cut(source, target, console)
        say(console, f"{target}: {count:,} sub-images of {part.count} photographs.")
        if not archive:
            size = disk.gigabytes(part.remote.size)
            say(console, f"{source.path} ({size}) is not needed any more: it can be deleted.")
        return target


def _whole(target: Path, part: Part) -> CutSet | None:
    """Give the record of a set that needs no cutting: of this geometry, and not a file missing."""
    try:
        record = CutSet.load(target)
        found = sum(1 for name in part.files for _ in (target / Path(name).stem).iterdir())
    except (DataError, OSError):
        return None
    wanted = (part.count, found, crop_set.SIZE, crop_set.STEP)
    return record if (record.photographs, record.count, record.size, record.step) == wanted else None


def _downloaded(part: Part, data_root: Path, console: Console, patience: Patience | None) -> _Source:
    path = data_root / part.remote.name
    with disk.writing(path, "looking at what is there"):
        left = rest(part.remote, path)
    if left:
        sub_images = round(part.remote.size * crops.GROWTH)
        disk.require(data_root, {"the rest of the archive": left, "the sub-images": sub_images})
    download(part.remote, path, console, patience)
    return _Source(path, part.members, part.remote.digest)


def _cut(source: _Source, target: Path, console: Console) -> int:
    with disk.writing(target, "cutting"):
        target.mkdir(exist_ok=True)
        (target / crop_set.RECORD).unlink(missing_ok=True)
        wanted = crops.photographs(source.path, source.names)
        left = sum(photograph.size for photograph in crops.missing(wanted, target))
        disk.require(target, {"the sub-images": round(left * crops.GROWTH)})
        count = crops.cut(source.path, target, wanted, console)
        geometry = crop_set.SIZE, crop_set.STEP, crop_set.COMPRESS_LEVEL
        CutSet(len(wanted), count, *geometry, source.sha256).save(target)
    return count


def _given(archive: Path, split: str, parts: Mapping[str, Part], console: Console) -> _Source:
    """Take the user's own archive or folder of photographs, if it is the right one."""
    part = parts[split]
    expected = (
        f"expected {part.remote.name} as published ({part.remote.size:,} bytes), or a folder with its {part.count} "
        f"photographs, {part.files[0]} to {part.files[-1]}"
    )
    try:
        if archive.is_dir():
            folder = archive / part.folder if (archive / part.folder).is_dir() else archive
            source, names = _Source(folder, part.files, None), {path.name for path in folder.iterdir()}
        else:
            size = archive.stat().st_size
            with zipfile.ZipFile(archive) as opened:
                source, names = _Source(archive, part.members, part.remote.digest), set(opened.namelist())
    except OSError as error:
        raise InputError(f"ARCHIVE={archive}: {error.strerror or error}; {expected}") from error
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        raise InputError(
            f"ARCHIVE={archive}: {size:,} bytes that are no zip archive, or only the beginning of one; {expected}"
        ) from None
    if lacking := sorted(set(source.names) - names):
        kind = "folder" if source.sha256 is None else "zip archive"
        other = next((name for name, each in parts.items() if names.issuperset(each.members)), None)
        hint = f". This is the part '{other}': say SPLIT={other}" if other else ""
        raise InputError(
            f"ARCHIVE={archive}: a {kind} that lacks {len(lacking)} of {part.count} photographs, such as {lacking[0]}; "
            f"{expected}{hint}"
        )
    if source.sha256 is not None and (problem := mismatch(archive, part.remote, console)):
        raise InputError(
            f"ARCHIVE={archive}: the photographs have the right names, but the archive {problem}: it is damaged, or "
            "was packed anew. Leave ARCHIVE= out to download the published one; or, if you trust this one, unpack it "
            "and name the folder"
        )
    return source
