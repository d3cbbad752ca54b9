"""The Oxford-IIIT Pet Dataset, in the layout that torchvision's loader expects: ``make pets``."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from feedrate.downloads import disk
from feedrate.downloads.meter import Meter, say
from feedrate.downloads.transfer import Patience, Remote, download, rest
from feedrate.schema.errors import DataError, EnvironmentFault, InputError

FOLDER = "oxford-iiit-pet"
"""The name that torchvision's loader looks for."""
TERMS = """\
The Oxford-IIIT Pet Dataset is offered by its authors under the licence CC BY-SA 4.0; the copyright of the photographs
remains with their owners, so look at the data set's page before you pass any on. Cite: Parkhi, Vedaldi, Zisserman and
Jawahar, "Cats and Dogs", CVPR 2012. https://www.robots.ox.ac.uk/~vgg/data/pets/"""
GROWTH = 1.2
"""Bytes of the unpacked files, in blocks of the file system, for a byte of the archives: JPEG files hardly compress."""

_SERVER = "https://www.robots.ox.ac.uk/~vgg/data/pets/data"
ARCHIVES: dict[str, Remote] = {
    "images": Remote(f"{_SERVER}/images.tar.gz", 791_918_971, "md5", "5c4f3ee8e5d25df40f4fd59a7f44e54c"),
    "annotations": Remote(f"{_SERVER}/annotations.tar.gz", 19_173_078, "md5", "95a8c909bbe2e81eed6a22bccdf3f68f"),
}
"""Folder → the archive that it is in."""
_LISTS = ("trainval.txt", "test.txt")
_DAMAGE = (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error)


def fetch(
    data_root: Path, console: Console, archives: Mapping[str, Remote] = ARCHIVES, patience: Patience | None = None
) -> Path:
    """Make sure that the photographs and annotations are there.

    Returns:
        ``data_root/oxford-iiit-pet``, for ``torchvision.datasets.OxfordIIITPet(data_root)``.

    Raises:
        InputError: there are folders of that name that are not whole.
        EnvironmentFault: no room, a folder that cannot be written, or a network that does not work.
        DataError: what came is damaged.
        KeyboardInterrupt: after saying that the same command continues.
    """
    say(console, TERMS)
    base = data_root / FOLDER
    with disk.workplace(data_root, console), disk.writing(base, "fetching the Oxford-IIIT Pet Dataset"):
        base.mkdir(exist_ok=True)
        disk.remove_stale(base)
        wanted = {folder: remote for folder, remote in archives.items() if not (base / folder).exists()}
        left = {folder: rest(remote, base / remote.name) for folder, remote in wanted.items()}
        unpacked = round(GROWTH * sum(remote.size for remote in wanted.values()))
        disk.require(base, {"the rest of the archives": sum(left.values()), "what is in them": unpacked})
        for remote in wanted.values():
            download(remote, base / remote.name, console, patience)
        for folder, remote in wanted.items():
            _unpack(base / remote.name, base / folder, console)
        count = _count(base)
    end = " are there already."
    if wanted:
        size = disk.gigabytes(sum(remote.size for remote in wanted.values()))
        end = f". The archives beside them ({size}) are not needed any more: they can be deleted."
    say(console, f"{base}: {count:,} photographs{end}")
    return base


def _unpack(archive: Path, folder: Path, console: Console) -> None:
    """Take one folder out of an archive; it gets its name when all of it is on disk."""
    if not hasattr(tarfile, "data_filter"):
        raise EnvironmentFault("this Python cannot unpack archives safely; expected 3.11.4 or newer")
    temp = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    temp.mkdir()
    try:
        with (
            archive.open("rb") as file,
            tarfile.open(fileobj=file, mode="r:gz") as tar,
            Meter(console, f"unpacking {archive.name}", archive.stat().st_size) as meter,
        ):
            for member in tar:
                tar.extract(member, temp, filter="data")
                meter.at(file.tell())
        disk.install(temp / folder.name, folder)
    except _DAMAGE as error:
        raise DataError(
            f"{archive}: cannot be unpacked ({error}), though its checksum is right; delete it and run again"
        ) from error
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def _count(base: Path) -> int:
    """Count the photographs that the annotations list."""
    try:
        lines = [line for name in _LISTS for line in (base / "annotations" / name).read_text("utf-8").splitlines()]
        listed = {f"{line.split()[0]}.jpg" for line in lines if line.strip()}
        lacking = sorted(listed - {path.name for path in (base / "images").iterdir()})
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError) as error:
        raise InputError(f"{base}: not the data set as published ({error}); {_advice(base)}") from error
    if lacking:
        raise InputError(
            f"{base}: lacks {len(lacking)} of the {len(listed)} photographs that its annotations list, such as "
            f"{lacking[0]}; {_advice(base)}"
        )
    return len(listed)


def _advice(base: Path) -> str:
    return f"delete {base / 'images'} and {base / 'annotations'}, then type the same command again"
