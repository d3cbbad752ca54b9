"""What kind of disk a folder lies on: enough to read a storage result by, nothing that identifies it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

from feedrate.schema.errors import InputError

_NETWORK = re.compile("nfs4?|cifs|smb3|smbfs|lustre|ceph|glusterfs|beegfs|gpfs|afs|9p|virtiofs|fuse.*")
_MEMORY = re.compile("tmpfs|ramfs")
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


def _mount(folder: Path) -> tuple[str | None, str, tuple[str, ...]]:
    """File system, source and options of the mount nearest above a folder; of several at one place the last."""
    try:
        mounts = [each for each in psutil.disk_partitions(all=True) if folder.is_relative_to(each.mountpoint)]
    except OSError:
        mounts = []
    if not mounts:
        return None, "", ()
    mount = max(reversed(mounts), key=lambda each: len(each.mountpoint))
    options = {option for option in mount.opts.split(",") if option.partition("=")[0] in _OPTIONS}
    return mount.fstype, mount.device, tuple(sorted(options))


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


def _text(device: Path | None, name: str) -> str | None:
    """What a file of a disk's folder holds; None where there is none or it is empty."""
    try:
        return (device / name).read_text(encoding="utf-8", errors="replace").strip() or None if device else None
    except OSError:
        return None


def _device_class(file_system: str, name: str, rotational: bool | None) -> str:
    if _MEMORY.fullmatch(file_system):
        return "memory"
    if _NETWORK.fullmatch(file_system):
        return "network"
    kind = next((kind for prefix, kind in _BY_NAME if name.startswith(prefix)), None)
    if kind or rotational is None:
        return kind or "unknown"
    return "hdd" if rotational else "ssd"


def storage(folder: Path) -> Storage:
    """Describe the storage that a folder lies on.

    Raises:
        InputError: the folder cannot be looked at.
    """
    try:
        file_system, source, options = _mount(folder.resolve(strict=True))
        device = _block_device(folder, source)
    except OSError as error:
        raise InputError(f"data folder {folder}: {error.strerror}; expected a folder that exists") from error
    spins, ahead = _text(device, "queue/rotational"), _text(device, "queue/read_ahead_kb")
    rotational = None if spins is None else spins == "1"
    kind = _device_class(file_system or "", device.name if device else "", rotational)
    scheduler = _text(device, "queue/scheduler")
    chosen = re.search(r"\[(.*?)\]", scheduler or "")  # "none [mq-deadline] kyber bfq"
    return Storage(
        file_system=file_system,
        device_class=kind,
        rotational=rotational if kind in ("nvme", "ssd", "hdd") else None,
        model=_text(device, "device/model"),
        mount_options=options,
        scheduler=chosen[1] if chosen else scheduler,
        read_ahead_bytes=int(ahead) * 1024 if ahead else None,
    )
