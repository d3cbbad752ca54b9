"""How far Linux reads ahead on the disk under a folder, set for as long as one trial runs.

Around a fault in a mapped file the kernel reads as much as the disk is set to read ahead: 128 KiB by its own default,
8 MiB on some machines, where a small set lies in memory after a few faults. A file takes its value from the disk when
it is opened, so the disk's must be set before. Writing it takes root. While a value is set, the disk's own one lies in
a file under /run, with the process that set it: what a killed sweep leaves behind is set back by the next plan. File
systems with a value of their own (btrfs, NFS) keep it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from feedrate.machine import identity
from feedrate.schema.errors import EnvironmentFault

_KEPT = Path("/run")


def _setting(folder: Path) -> Path:
    """The file that holds the read-ahead of the disk under a folder, in KiB."""
    return identity.disk(folder) / "queue" / "read_ahead_kb"


def _kept(setting: Path) -> Path:
    return _KEPT / f"feedrate-read-ahead-{setting.parent.parent.name}"


def problem(folder: Path) -> str | None:
    """Say why the read-ahead of the disk under a folder cannot be set; None where it can."""
    try:
        setting = _setting(folder)
        setting.write_text(setting.read_text(encoding="ascii"), encoding="ascii")
    except EnvironmentFault as fault:
        return str(fault)
    except OSError as error:
        return f"the disk's read-ahead cannot be set ({error.strerror}; run as root)"
    return None if os.access(_KEPT, os.W_OK) else f"the disk's own read-ahead cannot be kept ({_KEPT} is read-only)"


def restore(folder: Path) -> None:
    """Set back what a sweep left behind that was killed while it had set a value."""
    with suppress(EnvironmentFault, OSError):
        setting = _setting(folder)
        before, pid = _kept(setting).read_text(encoding="ascii").split()
        if not Path("/proc", pid).exists():
            setting.write_text(before, encoding="ascii")
            _kept(setting).unlink()


@contextmanager
def limit(folder: Path, kib: int) -> Iterator[None]:
    """Set the read-ahead of the disk under a folder, and set it back; an EnvironmentFault where that cannot be."""
    setting = _setting(folder)
    kept, before = _kept(setting), setting.read_text(encoding="ascii").strip()
    if kept.exists():
        raise EnvironmentFault(f"the disk's read-ahead is set by another sweep ({kept}); wait until that has ended")
    if before == str(kib):
        yield
        return
    if why := problem(folder):
        raise EnvironmentFault(why)
    try:
        kept.write_text(f"{before} {os.getpid()}", encoding="ascii")
        setting.write_text(str(kib), encoding="ascii")
        yield
    finally:
        setting.write_text(before, encoding="ascii")
        kept.unlink()
