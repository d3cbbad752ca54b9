"""The Oxford-IIIT Pet Dataset, in the layout that torchvision's loader reads: ``feedrate data pets``.

That loader could download it, too, but begins anew after each break, and takes a half-unpacked folder for a whole one.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from rich.console import Console

from feedrate.downloads import transfer
from feedrate.downloads.transfer import Archive
from feedrate.machine import linux

TERMS = """\
The Oxford-IIIT Pet Dataset is offered by its authors under the licence CC BY-SA 4.0; the copyright of the photographs
remains with their owners, so look at the data set's page before you pass any on. Cite: Parkhi, Vedaldi, Zisserman and
Jawahar, "Cats and Dogs", CVPR 2012. https://www.robots.ox.ac.uk/~vgg/data/pets/"""
GROWTH = 1.2
"""Bytes of the unpacked files, in blocks of the file system, for a byte of the archives: JPEG files hardly compress."""
_SERVER = "https://www.robots.ox.ac.uk/~vgg/data/pets/data"
ARCHIVES = {
    "images": Archive(f"{_SERVER}/images.tar.gz", 791_918_971, "md5:5c4f3ee8e5d25df40f4fd59a7f44e54c"),
    "annotations": Archive(f"{_SERVER}/annotations.tar.gz", 19_173_078, "md5:95a8c909bbe2e81eed6a22bccdf3f68f"),
}
"""Folder → the archive that it is in."""


def fetch(data_root: Path, console: Console) -> Path:
    """Make sure that ``oxford-iiit-pet`` is there, for ``torchvision.datasets.OxfordIIITPet(data_root)``.

    Raises:
        EnvironmentFault: no room, a folder that cannot be written, or a network that does not work.
        DataError: another file came.
    """
    console.out(TERMS, highlight=False)
    base = data_root / "oxford-iiit-pet"
    with transfer.workplace(data_root, console):
        base.mkdir(exist_ok=True)
        missing = {folder: archive for folder, archive in ARCHIVES.items() if not (base / folder).exists()}
        transfer.require(base, missing.values(), GROWTH * sum(archive.size for archive in missing.values()))
        for folder, archive in missing.items():
            temp = base / f".{folder}.tmp"
            shutil.rmtree(temp, ignore_errors=True)  # an interrupted process may have left it
            with tarfile.open(transfer.fetch(archive, base, console)) as tar:
                tar.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
                tar.extractall(temp)  # noqa: S202 - before, the checksum vouches for it
            linux.sync_tree(temp)
            (temp / folder).rename(base / folder)
            temp.rmdir()
    console.out(f"{base}: the photographs are there; archives beside them can be deleted.", highlight=False)
    return base
