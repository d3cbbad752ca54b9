"""Control groups that limit one trial: its memory, and how fast it may read from the disk of the data.

Memory: page cache counts. Pages that the trial reads are charged to its group and pushed out when the group is full, as
on a machine that has no more memory. Disk: the kernel delays reads beyond a rate; page cache is not delayed.

Version 2 (one tree) and version 1 (a tree a controller) are known. In version 2 a group that holds processes has no
limited children: the new one stands beside this process' own. Making one takes root, or a tree of the user's.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from feedrate.machine import identity
from feedrate.schema.errors import EnvironmentFault

MIB = 1 << 20
GONE_S = 5.0
"""How long a group may take to become empty after its processes were killed."""
_ROOT = Path("/sys/fs/cgroup")
_ADVICE = "run as root, or in a scope of your own: systemd-run --user --scope make sweep"


_V1 = {"memory": "memory.limit_in_bytes", "io": "blkio.throttle.read_bps_device"}
_V2 = {"memory": "memory.max", "io": "io.max"}
"""Controller to the file that holds its limit."""


@dataclass(frozen=True, slots=True)
class Group:
    """What a trial is limited by: a folder of control groups, or one for each limit (version 1)."""

    folders: tuple[Path, ...]
    memory_bytes: int = 0

    @property
    def entries(self) -> list[str]:
        """The files through which a process enters, by writing 0; what it starts later is in the group too."""
        return [str(folder / "cgroup.procs") for folder in self.folders]

    def used(self) -> float:
        """Share of the memory that its processes and their page cache use; 0 where the kernel does not tell."""
        text = self._text("memory.current", "memory.usage_in_bytes")
        return int(text) / self.memory_bytes if text else 0.0

    def killed(self) -> bool:
        """Whether the kernel killed one of its processes because it was full."""
        counts = map(str.split, self._text("memory.events", "memory.oom_control").splitlines())
        return any(int(count) > 0 for word, count in counts if word == "oom_kill")

    def _text(self, *names: str) -> str:
        """What a file says, which has one name in version 2 and another in version 1."""
        for path in (folder / name for name in names for folder in self.folders):
            with suppress(OSError):
                return path.read_text(encoding="ascii")
        return ""


def _home(controller: str) -> tuple[Path, str] | None:
    """The folder in which a group can be made, and the name of the file that limits one."""
    tree = {"io": "blkio"}.get(controller, controller)
    folders = list(identity.groups(tree))  # innermost first
    for folder in folders:
        if folder.is_relative_to(_ROOT / tree) and folder.is_dir():  # a container may not see its own
            return folder, _V1[controller]
    home = folders[1] if len(folders) > 1 else _ROOT
    return (home, _V2[controller]) if (home / "cgroup.controllers").is_file() else None


def missing(data_root: Path | None = None) -> str | None:
    """Say why no process can be limited here, in what it reads from the disk of a folder or else in memory, or None."""
    try:
        with group(disk_mib_s=1024, data_root=data_root) if data_root else group(64) as made:
            command = ["sh", "-c", 'for entry; do echo 0 > "$entry" || exit 1; done', "enter", *made.entries]
            entered = subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0
            return None if entered else f"no process may enter a control group; {_ADVICE}"
    except EnvironmentFault as fault:
        return str(fault)


@contextmanager
def group(memory_mib: int = 0, disk_mib_s: int = 0, data_root: Path = Path()) -> Iterator[Group]:
    """Limit memory (MiB, page cache included), reads of the disk under a folder (MiB/s), or both; 0 is no limit.

    What was made goes when nothing lives in it any more. An EnvironmentFault where this process may not make it.
    """
    limits = {"memory": str(memory_mib * MIB)} if memory_mib else {}
    if disk_mib_s:
        number = (identity.disk(data_root) / "dev").read_text(encoding="ascii").strip()  # major and minor
        limits["io"] = f"{number} {disk_mib_s * MIB}"
    folders: dict[Path, Path] = {}
    try:
        for controller, limit in limits.items():
            _limit(controller, limit, folders)
        yield Group(tuple(folders.values()), memory_mib * MIB)
    finally:
        for folder in folders.values():
            _remove(folder)


def _limit(controller: str, limit: str, folders: dict[Path, Path]) -> None:
    """Set a limit in the group below its controller's home, which is made if it is not there."""
    if not (home := _home(controller)):
        raise EnvironmentFault(f"no {controller} cgroup is mounted here")
    below, name = home
    if name == _V2["io"]:
        limit = limit.replace(" ", " rbps=")
    try:
        with suppress(OSError):  # already there, or not ours to change: the limit tells
            (below / "cgroup.subtree_control").write_text(f"+{controller}", encoding="ascii")
        if below not in folders:
            folders[below] = Path(tempfile.mkdtemp(prefix="feedrate-", dir=below))
        (folders[below] / name).write_text(limit, encoding="ascii")
    except OSError as error:
        raise EnvironmentFault(f"no {controller} cgroup can be made ({error.strerror}); {_ADVICE}") from error


def _remove(folder: Path) -> None:
    """Remove a group once its processes are gone."""
    until = time.monotonic() + GONE_S
    while folder.is_dir() and time.monotonic() < until:
        with suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.01)
