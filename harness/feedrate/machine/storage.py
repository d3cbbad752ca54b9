"""What kind of disk a folder lies on: enough to read a storage result by, nothing that identifies it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from feedrate.schema.errors import InputError

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
_OPTIONS = frozenset(
    (
        *("ro", "rw", "sync", "async", "dirsync", "atime", "noatime", "relatime", "strictatime", "lazytime"),
        *("nodiratime", "discard", "barrier", "nobarrier", "data", "journal_checksum", "commit", "dax", "stripe"),
        *("sunit", "swidth", "logbsize", "largeio", "allocsize", "compress", "compress-force", "ssd", "nodatacow"),
        *("autodefrag", "rsize", "wsize", "vers", "proto", "nconnect", "hard", "soft", "noac", "actimeo", "cache"),
        *("acregmin", "acregmax", "acdirmin", "acdirmax", "local_lock", "flock", "max_read", "size"),
    )
)
"""Mount options that can change how fast a file is read; all others may name people, hosts or folders."""


class Storage(BaseModel):
    """The storage under a folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file_system: str | None
    """As the kernel names it: ext4, xfs, nfs4, overlay …"""
    device_class: str
    """nvme, ssd, hdd, virtual, flash card, network, memory; unknown for what the kernel does not tell."""
    rotational: bool | None
    """The kernel's word for spinning disks; None where it means nothing (virtual, network, memory)."""
    model: str | None = None
    """What its maker calls the disk; never its serial number. None where the kernel names none."""
    mount_options: tuple[str, ...] = ()
    """Those that can change how fast a file is read, sorted."""
    scheduler: str | None = None
    """The kernel's I/O scheduler of the disk: none, mq-deadline, bfq, kyber."""
    read_ahead_bytes: int | None = None
    """How far the kernel reads ahead in a file at most."""


@dataclass(frozen=True, slots=True)
class _Mount:
    file_system: str | None = None
    source: str = ""
    options: tuple[str, ...] = ()


def _mount(folder: Path) -> _Mount:
    """The mount that lies nearest above a folder; of several at one place, the last."""
    nearest, found = -1, _Mount()
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found
    for line in lines:  # 36 35 98:0 /root /point options - ext4 /dev/vda rw: proc(5)
        before, _, after = line.partition(" - ")
        point, options = before.split()[4].replace("\\040", " "), before.split()[5]
        if folder.is_relative_to(point) and len(point) >= nearest:
            kind, source, more = (*after.split(" "), "", "")[:3]
            nearest, found = len(point), _Mount(kind, source, _telling(f"{options},{more}"))
    return found


def _telling(options: str) -> tuple[str, ...]:
    """Keep of mount options those that are known to say something of speed and nothing of people."""
    return tuple(sorted({option for option in options.split(",") if option.partition("=")[0] in _OPTIONS}))


def _block_device(folder: Path, source: str) -> Path | None:
    """The disk under a folder, below /sys; btrfs and others number their files otherwise."""
    numbers = [folder.stat().st_dev]
    if source.startswith("/dev/") and Path(source).exists():
        numbers.append(Path(source).stat().st_rdev)
    for number in numbers:
        block = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}").resolve()
        for device in (block, block.parent):  # a partition's queue is its disk's
            if (device / "queue" / "rotational").exists():
                return device
    return None


def _said(path: Path) -> str | None:
    """What a file of the kernel's says; None where there is none or it says nothing."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _scheduler(device: Path) -> str | None:
    """The one in brackets of "none [mq-deadline] kyber bfq"."""
    said = _said(device / "queue" / "scheduler") or ""
    return next((word.strip("[]") for word in said.split() if word.startswith("[")), said or None)


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

    Raises:
        InputError: the folder cannot be looked at.
    """
    try:
        mount = _mount(folder.resolve(strict=True))
        device = _block_device(folder, mount.source)
    except OSError as error:
        raise InputError(f"data folder {folder}: {error.strerror}; expected a folder that exists") from error
    told = _said(device / "queue" / "rotational") if device else None
    rotational = None if told is None else told == "1"
    kind = _device_class(mount.file_system, device.name if device else "", rotational)
    ahead = _said(device / "queue" / "read_ahead_kb") if device else None
    return Storage(
        file_system=mount.file_system,
        device_class=kind,
        rotational=rotational if kind in ("nvme", "ssd", "hdd") else None,
        model=_said(device / "device" / "model") if device else None,
        mount_options=mount.options,
        scheduler=_scheduler(device) if device else None,
        read_ahead_bytes=int(ahead) * 1024 if ahead else None,
    )
