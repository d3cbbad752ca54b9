"""What Linux tells about one process and about shared memory: CPU time, switches, faults, reads, memory, children.

Every function answers None (or nothing) for what a kernel or a container withholds and for a process that is gone:
never 0, never an exception. Sources: proc(5), clock_getcpuclockid(3).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
"""One tick of the clocks in ``/proc/stat`` and ``/proc/PID/stat``, in nanoseconds: 10 ms where USER_HZ is 100."""
SHM = "/dev/shm"  # noqa: S108 - where POSIX shared memory lies, not a place for temporary files
SHM_PREFIXES = ("torch_", "sem.", "psm_", "nccl-", "__KMP_REGISTERED_LIB_")
"""Shared memory of ATen (``torch_PID_RANDOM_N``), POSIX semaphores (``multiprocessing`` locks), CPython's
``multiprocessing.shared_memory``, NCCL, and the OpenMP runtime of LLVM and Intel."""
_OWNED = re.compile(r"(?:torch_|psm_|sem\.feedrate-)(\d+)[_-]")
_UNFINISHED = re.compile(r"sem\.\w{6}")
"""What glibc calls a semaphore until it has its name."""
_MAKING_S = 0.05
"""It does so in microseconds."""


def read(path: str, size: int = 16384) -> bytes | None:
    """Read the start of a small file in one system call."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return os.read(descriptor, size)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - Path objects would double the cost of a sample
    except OSError:
        return []


def _stat_fields(pid: int) -> list[bytes] | None:
    """``/proc/PID/stat`` from its third field (state) on; the name before it may hold spaces and brackets."""
    text = read(f"/proc/{pid}/stat")
    return text.rpartition(b")")[2].split() if text else None


def command(pid: int) -> str | None:
    """Name a process' program, at most 15 printable characters; any process may call itself anything."""
    name = (read(f"/proc/{pid}/comm") or b"").decode(errors="replace")
    return "".join(filter(str.isprintable, name)) or None


def descendants(pid: int) -> list[int]:
    """List a process' descendants, parents first; defunct ones too. One whose own parent has died is not found."""
    if read("/proc/thread-self/children") is None:  # a kernel without CONFIG_PROC_CHILDREN: scan all processes
        try:
            return [child.pid for child in psutil.Process(pid).children(recursive=True)]
        except psutil.Error:
            return []
    family = [pid]
    for parent in family:
        for thread in _entries(f"/proc/{parent}/task"):
            family += map(int, (read(f"/proc/{parent}/task/{thread}/children") or b"").split())
    return family[1:]


def cpu_ns(pid: int) -> int | None:
    """Read the CPU time of all threads of a process, those that ended included, in nanoseconds.

    The process CPU clock costs half a microsecond and needs no file; the sum of ``task/*/schedstat`` would forget
    threads that ended and lag by up to a tick. Ticks of ``/proc/PID/stat`` are the fallback.
    """
    try:
        # MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED), as in glibc's clock_getcpuclockid.c; Python does not wrap it.
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        fields = _stat_fields(pid)
        return (int(fields[11]) + int(fields[12])) * TICK_NS if fields else None


def usage(pid: int) -> tuple[int | None, int]:
    """Count the major page faults of a process, and the CPU time, in ns, of the children that it has waited for."""
    fields = _stat_fields(pid)
    return (int(fields[9]), (int(fields[13]) + int(fields[14])) * TICK_NS) if fields else (None, 0)


def switches(pid: int) -> dict[int, tuple[int, int]] | None:
    """Count (voluntary, involuntary) context switches of each living thread of a process, by thread id."""
    counts: dict[int, tuple[int, int]] = {}
    for thread in _entries(f"/proc/{pid}/task"):
        status = read(f"/proc/{pid}/task/{thread}/status")
        _, label, rest = (status or b"").partition(b"\nvoluntary_ctxt_switches:")
        if label:
            voluntary, _, involuntary = rest.split()[:3]
            counts[int(thread)] = (int(voluntary), int(involuntary))
    return counts or None


def _amount(text: bytes | None, label: bytes) -> int | None:
    """The number after ``label`` in lines of ``label: number``."""
    _, there, rest = (b"\n" + (text or b"")).partition(b"\n" + label + b":")
    return int(rest.split(None, 1)[0]) if there else None


def read_bytes(pid: int) -> int | None:
    """Read how many bytes a process caused to be read from storage since it started (page cache hits are not)."""
    return _amount(read(f"/proc/{pid}/io"), b"read_bytes")


class Footprint(NamedTuple):
    """Memory of one process, in bytes."""

    uss: int
    """That no other process has: what a fork shares counts once it was written to."""
    pss: int
    """The same, and of what processes share each its part."""
    anonymous: int
    """That belongs to no file, shared after a fork or not."""
    dirty: int
    """Of ``uss``, what it has written to: pages of files that it maps and only reads are left out."""


def footprints(pid: int) -> dict[int, Footprint]:
    """Read the memory of a process and its descendants by pid; walking the page tables takes milliseconds a process.

    Those that have ended are left out, and all where the first has.
    """
    main = footprint(pid)
    others = ((child, footprint(child)) for child in descendants(pid)) if main else ()
    return {pid: main} | {child: seen for child, seen in others if seen} if main else {}


def footprint(pid: int) -> Footprint | None:
    """Read the memory of a process; None of one that has ended, for which psutil gives 0."""
    rollup = read(f"/proc/{pid}/smaps_rollup")
    kinds = (b"Private_Clean", b"Private_Dirty", b"Private_Hugetlb", b"Pss", b"Anonymous")
    clean, dirty, huge, pss, anonymous = (_amount(rollup, kind) for kind in kinds)
    if clean is None or dirty is None or pss is None:
        return None
    dirty += huge or 0
    return Footprint(1024 * (clean + dirty), 1024 * pss, 1024 * (anonymous or 0), 1024 * dirty)


def memory(by_pid: Mapping[int, Footprint]) -> dict[str, int | None]:
    """Sum the memory of some processes, as columns of a trial."""
    shm_bytes: int | None = None
    with suppress(OSError):
        shm_bytes = psutil.disk_usage(SHM).used
    return {
        "uss_peak_bytes": sum(footprint.uss for footprint in by_pid.values()) or None,
        "pss_peak_bytes": sum(footprint.pss for footprint in by_pid.values()) or None,
        "shm_bytes": shm_bytes,
    }


def workers_uss(trial_pid: int) -> int | None:
    """Sum the memory that only one of a process' descendants has: what a fork shares counts once it was written to."""
    workers = list(filter(None, map(footprint, descendants(trial_pid))))
    return sum(worker.uss for worker in workers) if workers else None


def semaphores(pid: int) -> set[Path]:
    """List the named semaphores that a process has open: by inode, as glibc makes one under another name."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        inodes = {int(line.split(None, 5)[4]) for line in lines if f" {SHM}/sem." in line}
        with os.scandir(SHM) as entries:
            return {Path(entry) for entry in entries if entry.name.startswith("sem.") and entry.inode() in inodes}
    except OSError:
        return set()


def remove_segments(segments: Iterable[str], makers: Collection[int]) -> int:
    """Remove shared-memory files whose maker is one of some dead processes: a killed worker may leave one.

    PyTorch's names hold the process id of their maker, those of Grain's loader that of its training process, those of
    semaphores that of the template (``trial.template``). Other containers may share ``/dev/shm``, and theirs stay. A
    semaphore whose maker was killed in the making of it goes, too.
    """
    dead = [name for name in segments if (owner := _OWNED.match(name)) and int(owner[1]) in makers]
    if unfinished := [name for name in segments if _UNFINISHED.fullmatch(name)]:
        time.sleep(_MAKING_S)
        dead += [name for name in unfinished if Path(SHM, name).exists()]
    for name in dead:
        Path(SHM, name).unlink(missing_ok=True)
    return len(dead)


def free_shared_memory() -> int | None:
    """Bytes free under /dev/shm, or None where it is not mounted."""
    with suppress(OSError):
        return psutil.disk_usage(SHM).free
    return None


def shm_segments() -> set[str]:
    """List the names under ``/dev/shm`` that belong to this user and that training processes make.

    PyTorch's default sharing strategy unlinks a segment as soon as the other side has opened it: names that stay are
    left-overs of processes that were killed, or of the ``file_system`` strategy.
    """
    try:
        with os.scandir(SHM) as entries:
            return {entry.name for entry in entries if entry.name.startswith(SHM_PREFIXES) and _own(entry)}
    except OSError:
        return set()


def _own(entry: os.DirEntry[str]) -> bool:
    """Whether a file is this user's; one that has gone is nobody's."""
    with suppress(OSError):
        return entry.stat(follow_symlinks=False).st_uid == os.getuid()
    return False
