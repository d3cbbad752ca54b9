"""One file that holds results as a checkout does: to be fetched from a machine that may be taken away."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from pathlib import Path

from feedrate.store.runs import make_folder, replacing


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""
    return member


def pack(archive: Path, contents: Mapping[str, Path]) -> None:
    """Write a gzipped tar of files and folders by name, whole or not at all, that does not say who owned them."""
    make_folder(archive.parent)
    with replacing(archive) as file, tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as packed:
        for name, path in contents.items():
            packed.add(path, name, filter=_anonymous)


def pack_run(archive: Path, folder: Path) -> None:
    """Pack a run's folder, ``…/MACHINE/RUN``, as it lies in a checkout's ``results/``."""
    pack(archive, {f"results/{folder.parent.name}/{folder.name}": folder})
