"""One file that holds results as a checkout does: to be fetched from a machine that may be taken away."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Mapping
from pathlib import Path


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""
    return member


def pack(archive: Path, contents: Mapping[str, Path]) -> None:
    """Write a gzipped tar of files and folders by name, whole or not at all, that does not say who owned them."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    temporary = archive.with_name(f"{archive.name}.tmp")
    with temporary.open("wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as packed:
            for name, path in contents.items():
                packed.add(path, name, filter=_anonymous)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(archive)


def pack_run(archive: Path, folder: Path) -> None:
    """Pack a run's folder, ``…/MACHINE/RUN``, as it lies in a checkout's ``results/``."""
    pack(archive, {f"results/{folder.parent.name}/{folder.name}": folder})
