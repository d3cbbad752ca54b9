"""A memory cgroup of a given size for one trial: what does training do when its data do not fit into memory?

Page cache counts: pages that the trial reads are charged to its group and pushed out when the group is full, as on a
machine that has no more memory. Version 2 (one tree, ``memory.max``) and version 1 (``memory.limit_in_bytes``) are
known. Making a group takes root, or a tree that was delegated (``systemd-run --user --scope -p Delegate=yes make …``).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from feedrate.schema.errors import EnvironmentFault

MIB = 1 << 20
GONE_S = 5.0
"""How long a group may take to become empty after its processes were killed."""
_ROOT = Path("/sys/fs/cgroup")
_ADVICE = "run as root, or in a delegated tree: systemd-run --user --scope -p Delegate=yes make sweep"


@dataclass(frozen=True, slots=True)
class Group:
    """A memory cgroup."""

    folder: Path

    @property
    def entry(self) -> Path:
        """The file through which a process enters, by writing 0; what it starts later is in the group too."""
        return self.folder / "cgroup.procs"

    def killed(self) -> bool:
        """Whether the kernel killed one of its processes because it was full."""
        for name in ("memory.events", "memory.oom_control"):  # version 2, version 1
            with suppress(OSError):
                lines = (self.folder / name).read_text(encoding="ascii").splitlines()
                return any(int(count) > 0 for word, count in map(str.split, lines) if word == "oom_kill")
        return False


def _home() -> tuple[Path, str] | None:
    """The folder of this process' own memory group, and the name of the file that limits one."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    groups = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    for controllers, path in groups.items():
        if "memory" in controllers.split(","):
            own = _ROOT / "memory" / path.lstrip("/")
            return (
                own if own.is_dir() else _ROOT / "memory"
            ), "memory.limit_in_bytes"  # a container may not see its own
    own = _ROOT / groups.get("", "/").lstrip("/")
    return (own, "memory.max") if (own / "cgroup.controllers").is_file() else None


def missing() -> str | None:
    """Say why no group can be made here; None where one can."""
    try:
        with group(64):
            return None
    except EnvironmentFault as fault:
        return str(fault)


@contextmanager
def group(mib: int) -> Iterator[Group]:
    """Make a group of so many MiB and remove it afterwards, when nothing lives in it any more.

    Raises:
        EnvironmentFault: this process may not make one.
    """
    if not (home := _home()):
        raise EnvironmentFault("no memory cgroup is mounted here")
    try:
        with suppress(OSError):  # already there, or not ours to change: the limit tells
            (home[0] / "cgroup.subtree_control").write_text("+memory", encoding="ascii")
        folder = Path(tempfile.mkdtemp(prefix="feedrate-", dir=home[0]))
        try:
            (folder / home[1]).write_text(str(mib * MIB), encoding="ascii")
        except OSError:
            folder.rmdir()
            raise
    except OSError as error:
        raise EnvironmentFault(f"no memory cgroup can be made ({error.strerror}); {_ADVICE}") from error
    try:
        yield Group(folder)
    finally:
        until = time.monotonic() + GONE_S
        while folder.is_dir():
            with suppress(OSError):
                folder.rmdir()
                break
            if time.monotonic() > until:
                break
            time.sleep(0.01)
