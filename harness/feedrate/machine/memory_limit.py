"""A memory cgroup of a given size for one trial: what does training do when its data do not fit into memory?

Page cache counts: pages that the trial reads are charged to its group and pushed out when the group is full, as on a
machine that has no more memory. Version 2 (one tree, ``memory.max``) and version 1 (``memory.limit_in_bytes``) are
known. In version 2 a group that holds processes has no limited children: the new one stands beside this process' own.
Making one takes root, or a tree of the user's (``systemd-run --user --scope make …``).
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


@dataclass(frozen=True, slots=True)
class Group:
    """A memory cgroup."""

    folder: Path
    limit_bytes: int = 0

    @property
    def entry(self) -> Path:
        """The file through which a process enters, by writing 0; what it starts later is in the group too."""
        return self.folder / "cgroup.procs"

    def used(self) -> float:
        """Share of the limit that its processes and their page cache use; 0 where the kernel does not tell."""
        for name in ("memory.current", "memory.usage_in_bytes"):  # version 2, version 1
            with suppress(OSError):
                return int((self.folder / name).read_text(encoding="ascii")) / self.limit_bytes
        return 0.0

    def killed(self) -> bool:
        """Whether the kernel killed one of its processes because it was full."""
        for name in ("memory.events", "memory.oom_control"):  # version 2, version 1
            with suppress(OSError):
                lines = (self.folder / name).read_text(encoding="ascii").splitlines()
                return any(int(count) > 0 for word, count in map(str.split, lines) if word == "oom_kill")
        return False


def _home() -> tuple[Path, str] | None:
    """The folder in which a memory group can be made, and the name of the file that limits one."""
    folders = list(identity.groups("memory"))  # innermost first
    for folder in folders:
        if folder.is_relative_to(_ROOT / "memory") and folder.is_dir():  # a container may not see its own
            return folder, "memory.limit_in_bytes"
    home = folders[1] if len(folders) > 1 else _ROOT
    return (home, "memory.max") if (home / "cgroup.controllers").is_file() else None


def missing() -> str | None:
    """Say why no process can be limited here; None where one can."""
    try:
        with group(64) as made:
            command = ["sh", "-c", 'echo 0 > "$0"', str(made.entry)]
            entered = subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0
            return None if entered else f"no process may enter a memory cgroup; {_ADVICE}"
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
        yield Group(folder, mib * MIB)
    finally:
        until = time.monotonic() + GONE_S
        while folder.is_dir():
            with suppress(OSError):
                folder.rmdir()
                break
            if time.monotonic() > until:
                break
            time.sleep(0.01)
