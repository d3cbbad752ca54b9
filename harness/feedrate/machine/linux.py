"""What feedrate needs of Linux beyond the standard library: children that die with their parent, exact timers, caches.

Also which files of a folder are images, found without any library, as a plan needs that too.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, or die now if ``parent``, its id, is gone already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none can get away unseen."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def exact_timers() -> None:
    """Wake this thread, and what it starts, when a sleep is over; by default up to 50 us later (``timer_slack_ns``)."""
    _prctl(_PR_SET_TIMERSLACK, 1)


def sync(path: Path) -> None:
    """Force a file or folder to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(root: Path) -> None:
    """Force a folder and all below it to disk, from several threads: one by one, thousands of files take seconds."""
    walked = list(os.walk(root))
    with ThreadPoolExecutor(8) as pool:  # a journaling file system commits what waits together in one go
        list(pool.map(sync, (Path(folder, name) for folder, _, names in walked for name in names)))
    for folder, _, _ in reversed(walked):
        sync(Path(folder))


CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
CACHE_UNKNOWN = 64 * 2**20
"""Bytes of a last-level cache that Linux does not tell of, as in some virtual machines: more than most have."""


def last_level_cache_bytes(caches: Path = CACHES) -> int:
    """Size of the largest cache of the first core, in bytes; source: Linux, ``sysfs-devices-system-cpu``."""
    sizes = [int(path.read_text().strip().removesuffix("K")) * 1024 for path in caches.glob("index*/size")]
    return max(sizes, default=CACHE_UNKNOWN)


SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
NONE = f"no image here; expected files that end in {', '.join(SUFFIXES)} (in either case)"
"""What is wrong with a folder that has none."""


def images(folder: Path) -> Iterator[Path]:
    """Find the PNG, JPEG and WebP files below a folder, by suffix in either case; links to folders are not followed."""
    return (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
