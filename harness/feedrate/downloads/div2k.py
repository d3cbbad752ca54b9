"""DIV2K, from its archive to sub-images: ``make div2k``.

The archive is downloaded, or the user's own is taken, and sub-images are cut straight from it: the photographs
themselves are never unpacked. Every step is either done or not, whenever it is interrupted; the same command goes on.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from urllib3.util import Retry

from feedrate.downloads import crops, disk
from feedrate.downloads.disk import Meter, say
from feedrate.downloads.transfer import RETRY, Remote, download, mismatch, rest
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
    def members(self) -> list[str]:
        """Names of the photographs in the archive."""
        return [f"{self.folder}/{number:04d}.png" for number in range(self.first, self.first + self.count)]


def _part(folder: str, first: int, count: int, size: int, sha256: str) -> Part:
    url = f"https://data.vision.ee.ethz.ch/cvl/DIV2K/{folder}.zip"
    return Part(Remote(url, size, "sha256", sha256), folder, first, count)


_TRAIN = "9d0b9c463f6e35b6c62cc6a930ee2224f670b34c1df841a57670f9acf0f6c335"
_VALID = "20dd31fd84d777bc1cf5d6b7654a3f569c0aec74458ae094122ad1d0489900fc"
PARTS: dict[str, Part] = {
    "train": _part("DIV2K_train_HR", 1, 800, 3_530_603_713, _TRAIN),
    "valid": _part("DIV2K_valid_HR", 801, 100, 448_993_893, _VALID),
}


def fetch(
    split: str,
    data_root: Path,
    console: Console,
    archive: Path | None = None,
    parts: Mapping[str, Part] = PARTS,
    retry: Retry = RETRY,
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
        if count := _whole(target):
            say(console, f"{target}: {count:,} sub-images of {part.count} photographs are there already.")
            return target
        path = archive or data_root / part.remote.name
        if archive:
            _check_own(archive, part, console)
        else:
            if left := rest(part.remote, path):
                sub_images = round(part.remote.size * crops.GROWTH)
                disk.require(data_root, {"the rest of the archive": left, "the sub-images": sub_images})
            download(part.remote, path, console, retry)
        with disk.writing(target, "cutting"):
            target.mkdir(exist_ok=True)
            _cut(path, part, target, console)
            count = crops.record(target, part.count, part.remote.digest if path.is_file() else None)
    say(console, f"{target}: {count:,} sub-images of {part.count} photographs.")
    if not archive:
        size = disk.gigabytes(part.remote.size)
        say(console, f"{path} ({size}) is not needed any more: it can be deleted.")
    return target


def _whole(target: Path) -> int:
    """How many sub-images a set has that needs no cutting, else 0; one that lost a file is cut anew."""
    try:
        count = crops.recorded(target)
    except DataError:
        return 0
    if sum(1 for _ in target.glob("*/*.png")) != count:
        shutil.rmtree(target)
        return 0
    return count


def _photographs(source: Path, part: Part) -> tuple[Path, dict[str, int]]:
    """The archive or folder in which the photographs lie, and by name the bytes of each that is there."""
    if source.is_dir():
        folder = source / part.folder if (source / part.folder).is_dir() else source
        found = {f"{part.folder}/{path.name}": path.stat().st_size for path in folder.iterdir()}
        return folder, {Path(name).name: found[name] for name in part.members if name in found}
    with zipfile.ZipFile(source) as opened:
        found = {member.filename: member.file_size for member in opened.infolist()}
    return source, {name: found[name] for name in part.members if name in found}


def _check_own(archive: Path, part: Part, console: Console) -> None:
    """Refuse the user's own archive or folder of photographs if it is not the right one."""
    expected = (
        f"expected {part.remote.name} as published ({part.remote.size:,} bytes), or a folder with its {part.count} "
        f"photographs, {Path(part.members[0]).name} to {Path(part.members[-1]).name}"
    )
    try:
        _, found = _photographs(archive, part)
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise InputError(f"ARCHIVE={archive}: {error}; {expected}") from error
    if len(found) < part.count:
        raise InputError(f"ARCHIVE={archive}: has {len(found)} of {part.count} photographs; {expected}")
    if archive.is_file() and (problem := mismatch(archive, part.remote, console)):
        raise InputError(
            f"ARCHIVE={archive}: the photographs have the right names, but the archive {problem}: it is damaged, or "
            "was packed anew. Leave ARCHIVE= out to download the published one; or, if you trust this one, unpack it "
            "and name the folder"
        )


def _cut(source: Path, part: Part, target: Path, console: Console) -> None:
    """Cut all photographs that are not cut yet; those that are damaged are named when all others are cut."""
    place, sizes = _photographs(source, part)
    left = {name: size for name, size in sizes.items() if not crops.folder_of(name, target).exists()}
    disk.require(target, {"the sub-images": round(sum(left.values()) * crops.GROWTH)})
    done = part.count - len(left)
    damaged: list[str] = []
    if done and left:
        say(console, f"{target}: {done} of {part.count} photographs are cut already")
    with (
        Meter(console, f"cutting {source.name}", part.count, done, "photographs") as meter,
        closing(crops.cut_all(place, list(left), target)) as answers,
    ):
        for number, problem in enumerate(answers, done + 1):
            damaged += [problem] if problem else []
            meter.at(number)
    if damaged:
        raise DataError(
            f"{source}: {len(damaged)} of {part.count} photographs cannot be used, such as {min(damaged)}. The others "
            "are cut and kept: get the file anew (delete it, or name another with ARCHIVE=) and type the same command "
            "again"
        )
