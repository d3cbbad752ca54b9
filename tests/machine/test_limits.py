"""A group that limits memory: what is in it has no more, page cache included, and nothing of it stays behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from feedrate.machine import limits
from feedrate.schema.errors import EnvironmentFault

MIB = 1 << 20
READS = """
import os, sys, time
path, *entries = sys.argv[1:]
for entry in entries:
    open(entry, "w").write("0")
def read_bytes():
    return int(open("/proc/self/io").read().split("\\nread_bytes: ")[1].split()[0])
with open(path, "rb", buffering=0) as file:
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    for _ in range(2):
        before, begun = read_bytes(), time.monotonic()
        file.seek(0)
        while file.read(1 << 20):
            pass
        print(read_bytes() - before, time.monotonic() - begun)
"""


def reads(path: Path, *entries: str) -> list[tuple[int, float]]:
    """Read a file that is not cached twice, in a group: how much came from storage and the seconds, each time."""
    lines = subprocess.check_output([sys.executable, "-c", READS, str(path), *entries], text=True).splitlines()
    return [(int(count), float(seconds)) for count, seconds in map(str.split, lines)]


possible = pytest.mark.skipif((missing := limits.missing()) is not None, reason=str(missing))


@possible
def test_what_does_not_fit_is_read_again(tmp_path: Path) -> None:
    """A file twice as large as the limit comes from storage both times; without a limit the second time from memory."""
    path = tmp_path / "file"
    path.write_bytes(bytes(64 * MIB))
    subprocess.run(["sync", str(path)], check=True)
    with limits.group(32) as group:
        assert group.used() < 0.5
        free, limited = reads(path), reads(path, group.entries[0])
        assert not group.killed()
        assert 0.9 <= group.used() <= 1
    assert free[0][0] >= 0.9 * 64 * MIB > 16 * MIB > free[1][0]
    assert min(limited)[0] >= 0.9 * 64 * MIB


@possible
def test_who_needs_more_is_killed_and_the_group_is_gone() -> None:
    """The kernel's kill is told from others; the group is removed with whatever was in it."""
    with limits.group(32) as group:
        told = f"open({group.entries[0]!r}, 'w').write('0'); bytearray({64 * MIB})[::4096] = bytes({64 * MIB // 4096})"
        assert subprocess.run([sys.executable, "-c", told], check=False).returncode == -9
        assert group.killed()
        assert group.folders[0].is_dir()
    assert not group.folders[0].exists()


@pytest.mark.skipif((slow := limits.missing(Path())) is not None, reason=str(slow))
def test_a_limited_disk_is_as_slow_as_it_says(tmp_path: Path) -> None:
    """A file that is not cached takes its bytes ÷ the limit, from the cache it does not; both limits hold together."""
    path = tmp_path / "file"
    path.write_bytes(bytes(24 * MIB))
    subprocess.run(["sync", str(path)], check=True)
    with limits.group(256, 8, tmp_path) as group:
        (_, cold), (_, warm) = reads(path, *group.entries)
        assert group.memory_bytes == 256 * MIB
        assert 0 < group.used() < 0.5
    assert 2 <= cold <= 8
    assert warm < 1


def test_where_no_group_can_be_made_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cgroup of memory, or a folder that is not ours to fill: a reason, and an error for who asks all the same."""
    monkeypatch.setattr(limits, "_home", lambda _: None)
    assert limits.missing() == "no memory cgroup is mounted here"
    monkeypatch.setattr(limits, "_home", lambda _: (Path("/proc/self"), "memory.max"))
    with pytest.raises(EnvironmentFault, match=r"no memory cgroup can be made \(.*\); run as root"), limits.group(8):
        pass
