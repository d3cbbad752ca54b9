"""The Oxford-IIIT Pet Dataset, in the layout that torchvision's loader expects: ``feedrate data pets``."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from urllib3.util import Retry

from feedrate.downloads import disk
from feedrate.downloads.disk import Meter, say
from feedrate.downloads.transfer import RETRY, Remote, download, rest
from feedrate.schema.errors import DataError, EnvironmentFault

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
_DAMAGE = (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error)


def fetch(data_root: Path, console: Console, archives: Mapping[str, Remote] = ARCHIVES, retry: Retry = RETRY) -> Path:
    """Make sure that the photographs and annotations are there.

    Returns:
        ``data_root/oxford-iiit-pet``, for ``torchvision.datasets.OxfordIIITPet(data_root)``.

    Raises:
        InputError: another file lies in an archive's place.
        EnvironmentFault: no room, a folder that cannot be written, or a network that does not work.
        DataError: what came is damaged.
        KeyboardInterrupt: after saying that the same command continues.
    """
    say(console, TERMS)
    base = data_root / FOLDER
    with disk.workplace(data_root, console), disk.writing(base, "fetching the Oxford-IIIT Pet Dataset"):
        base.mkdir(exist_ok=True)
        wanted = {folder: remote for folder, remote in archives.items() if not (base / folder).exists()}
        if not wanted:
            say(console, f"{base}: the photographs are there already.")
            return base
        left = {folder: rest(remote, base / remote.name) for folder, remote in wanted.items()}
        size = sum(remote.size for remote in wanted.values())
        disk.require(base, {"the rest of the archives": sum(left.values()), "what is in them": round(GROWTH * size)})
        for remote in wanted.values():
            download(remote, base / remote.name, console, retry)
        for folder, remote in wanted.items():
            _unpack(base / remote.name, base / folder, console)
    say(
        console,
        f"{base}: the photographs are there. The archives beside them ({disk.gigabytes(size)}) are not needed any "
        "more: they can be deleted.",
    )
    return base


def _unpack(archive: Path, folder: Path, console: Console) -> None:
    """Take one folder out of an archive; it gets its name when all of it is on disk."""
    if not hasattr(tarfile, "data_filter"):
        raise EnvironmentFault("this Python cannot unpack archives safely; expected 3.11.4 or newer")
    try:
        with (
            disk.whole(folder) as temp,
            archive.open("rb") as file,
            tarfile.open(fileobj=file, mode="r:gz") as tar,
            Meter(console, f"unpacking {archive.name}", archive.stat().st_size) as meter,
        ):
            for member in tar:
                if member.isfile():
                    member.name = member.name.removeprefix(f"{folder.name}/")
                    tar.extract(member, temp, filter="data")
                meter.at(file.tell())
    except _DAMAGE as error:
        raise DataError(
            f"{archive}: cannot be unpacked ({error}), though its checksum is right; delete it and run again"
        ) from error
