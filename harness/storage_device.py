"""What kind of disk a folder lies on: enough to read a storage result by, nothing that identifies it."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from harness.errors import InputError

_NETWORK = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "lustre",
        "ceph",
        "glusterfs",
        "beegfs",
        "gpfs",
        "afs",
        "9p",
        "virtiofs",
    )
)
_MEMORY = frozenset(("tmpfs", "ramfs"))
_BY_NAME = (("nvme", "nvme"), ("vd", "virtual"), ("xvd", "virtual"), ("mmcblk", "flash card"), ("zram", "memory"))


class Storage(BaseModel):
    """The storage under a folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file_system: str | None
    """As the kernel names it: ext4, xfs, nfs4, overlay …"""
    device_class: str
    """nvme, ssd, hdd, virtual, flash card, network, memory; unknown for what the kernel does not tell."""
    rotational: bool | None
    """The kernel's word for spinning disks; None where it means nothing (virtual, network, memory)."""


def _mount(folder: Path) -> tuple[str | None, str]:
    """(file system type, source) of the mount that lies nearest above a folder; of several at one place, the last."""
    nearest = -1
    found: tuple[str | None, str] = (None, "")
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:  # 36 35 98:0 /root /point options - ext4 /dev/vda rw: proc(5)
        before, _, after = line.partition(" - ")
        point = before.split()[4].replace("\\040", " ")
        if folder.is_relative_to(point) and len(point) >= nearest:
            kind, source = after.split(" ")[:2]
            nearest, found = len(point), (kind, source)
    return found


def _block_device(folder: Path, source: str) -> tuple[str, bool | None]:
    """(kernel's name, rotational) of the disk under a folder; btrfs and others number their files otherwise."""
    numbers = [folder.stat().st_dev]
    if source.startswith("/dev/") and Path(source).exists():
        numbers.append(Path(source).stat().st_rdev)
    for number in numbers:
        block = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
        for device in (block, block.parent):  # a partition's queue is its disk's
            try:
                return device.name, (device / "queue" / "rotational").read_text().strip() == "1"
            except OSError:
                continue
    return "", None


def _device_class(file_system: str | None, name: str, rotational: bool | None) -> str:
    if file_system in _MEMORY:
        return "memory"
    if file_system in _NETWORK or (file_system or "").startswith("fuse"):
        return "network"
    known = next((kind for prefix, kind in _BY_NAME if name.startswith(prefix)), None)
    if known or rotational is None:
        return known or "unknown"
    return "hdd" if rotational else "ssd"


def storage(folder: Path) -> Storage:
    """Tell what kind of storage a folder lies on.

    Args:
        folder: an existing folder.

    Returns:
        Its file system and class of device; what the kernel does not tell is None or ``unknown``.

    Raises:
        InputError: the folder cannot be looked at.
    """
    try:
        file_system, source = _mount(folder.resolve(strict=True))
        name, rotational = _block_device(folder, source)
    except OSError as error:
        raise InputError(f"data folder {folder}: {error.strerror}; expected a folder that exists") from error
    kind = _device_class(file_system, name, rotational)
    return Storage(
        file_system=file_system, device_class=kind, rotational=rotational if kind in ("nvme", "ssd", "hdd") else None
    )
