"""What Linux tells about one process: CPU time, context switches, faults, reads, memory, children.

Every function answers None (or nothing) for what a kernel or a container withholds and for a process that is gone:
never 0, never an exception. Sources: proc(5), clock_getcpuclockid(3).

What Linux tells about the whole machine: CPU time, pressure, load, memory, and quotas that stopped this process.

Files are opened once and read again from their start: a reading costs some ten microseconds. In a container ``/proc``
shows the host, which is what disturbs a measurement. A file that is not there, or that a container withholds, makes
its columns None, never 0. Sources: proc(5), and the kernel's ``accounting/psi``, ``admin-guide/cgroup-v2`` and
``scheduler/sched-bwc``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from feedrate.machine import identity
from feedrate.machine.probes.counters import PRESSURES, MachineCounters, Ticks

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
"""One tick of the clocks in ``/proc/stat`` and ``/proc/PID/stat``, in nanoseconds: 10 ms where USER_HZ is 100."""
SHM = "/dev/shm"  # noqa: S108 - where POSIX shared memory lies, not a place for temporary files
SHM_PREFIXES = ("torch_", "sem.", "psm_", "nccl-", "__KMP_REGISTERED_LIB_")
"""Shared memory of ATen (``torch_PID_RANDOM_N``), POSIX semaphores (``multiprocessing`` locks), CPython's
``multiprocessing.shared_memory``, NCCL, and the OpenMP runtime of LLVM and Intel."""

_OWNER = re.compile(r"torch_(\d+)_")


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


def processes() -> list[int]:
    """List the ids of all processes that can be seen, the kernel's threads too."""
    return [int(name) for name in _entries("/proc") if name.isdigit()]


def command(pid: int) -> str | None:
    """Tell the name of a process' program, at most 15 printable characters; any process may call itself anything."""
    name = (read(f"/proc/{pid}/comm") or b"").decode(errors="replace")
    return "".join(filter(str.isprintable, name)) or None


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in _entries(f"/proc/{pid}/task"):
        found.extend(map(int, (read(f"/proc/{pid}/task/{thread}/children") or b"").split()))
    return found


def _parents() -> dict[int, list[int]]:
    """Children of every process, by scanning all of them: for kernels without CONFIG_PROC_CHILDREN."""
    tree: dict[int, list[int]] = {}
    for pid in processes():
        if fields := _stat_fields(pid):
            tree.setdefault(int(fields[1]), []).append(pid)
    return tree


def descendants(pid: int) -> list[int]:
    """List the children of a process, theirs, and so on; defunct ones too.

    A descendant whose own parent has died hangs under a subreaper or init and is not found.

    Args:
        pid: the process at the root; it is not in the list.

    Returns:
        Process ids, parents before their children; empty for a process that is gone.
    """
    own = os.getpid()
    tree = _parents() if read(f"/proc/{own}/task/{own}/children") is None else None
    found = [pid]
    for parent in found:
        found.extend(_children(parent) if tree is None else tree.get(parent, []))
    return found[1:]


def cpu_ns(pid: int) -> int | None:
    """Tell the CPU time of all threads of a process, those that ended included, in nanoseconds.

    The process CPU clock costs half a microsecond and needs no file; the sum of ``task/*/schedstat`` would forget
    threads that ended and lag by up to a tick. Ticks of ``/proc/PID/stat`` are the fallback.
    """
    try:
        # MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED), as in glibc's clock_getcpuclockid.c; Python does not wrap it.
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        fields = _stat_fields(pid)
        return (int(fields[11]) + int(fields[12])) * TICK_NS if fields else None


def reaped_cpu_ns(pid: int) -> int | None:
    """Tell the CPU time of the children that a process has waited for, and of theirs, in nanoseconds of whole ticks."""
    fields = _stat_fields(pid)
    return (int(fields[13]) + int(fields[14])) * TICK_NS if fields else None


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


def major_faults(pid: int) -> int | None:
    """Count the major page faults of all threads of a process since it started."""
    fields = _stat_fields(pid)
    return int(fields[9]) if fields else None


def _amount(text: bytes | None, label: bytes) -> int | None:
    """The number after ``label`` in lines of ``label: number``."""
    _, found, rest = (b"\n" + (text or b"")).partition(b"\n" + label + b":")
    return int(rest.split(None, 1)[0]) if found else None


def read_bytes(pid: int) -> int | None:
    """Tell how many bytes a process caused to be read from storage since it started (page cache hits are not)."""
    return _amount(read(f"/proc/{pid}/io"), b"read_bytes")


def _footprint(pid: int) -> tuple[int, int] | None:
    """(USS, PSS) of one process, in bytes."""
    rollup = read(f"/proc/{pid}/smaps_rollup")
    clean, dirty = _amount(rollup, b"Private_Clean"), _amount(rollup, b"Private_Dirty")
    pss = _amount(rollup, b"Pss")
    if clean is None or dirty is None or pss is None:
        return None
    huge = _amount(rollup, b"Private_Hugetlb") or 0
    return (clean + dirty + huge) * 1024, pss * 1024


def memory(trial_pid: int) -> dict[str, int | None]:
    """Sum the memory of a process and its descendants; walking the page tables takes milliseconds a process."""
    main = _footprint(trial_pid)
    parts = [part for pid in descendants(trial_pid) if (part := _footprint(pid))] if main else []
    try:
        shm = os.statvfs(SHM)
        shm_bytes: int | None = (shm.f_blocks - shm.f_bfree) * shm.f_frsize
    except OSError:
        shm_bytes = None
    return {
        "uss_peak_bytes": main[0] + sum(uss for uss, _ in parts) if main else None,
        "pss_peak_bytes": main[1] + sum(pss for _, pss in parts) if main else None,
        "shm_bytes": shm_bytes,
    }


def workers_uss(trial_pid: int) -> int | None:
    """Sum the memory that only one of a process' descendants has: what a fork shares counts once it was written to."""
    parts = [part[0] for pid in descendants(trial_pid) if (part := _footprint(pid))]
    return sum(parts) if parts else None


def semaphores(pid: int) -> set[Path]:
    """List the named semaphores under ``/dev/shm`` that a process has open.

    glibc makes one under another name than its own, which is what the map shows: they are told by their inodes.
    """
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        inodes = {int(line.split(None, 5)[4]) for line in lines if f" {SHM}/sem." in line}
        with os.scandir(SHM) as entries:
            return {Path(each) for each in entries if each.name.startswith("sem.") and each.inode() in inodes}
    except OSError:
        return set()


def remove_segments(segments: Iterable[str], makers: Collection[int]) -> int:
    """Remove shared-memory files of processes that are dead: a worker that is killed at the wrong moment leaves one.

    Args:
        segments: names under ``/dev/shm``; PyTorch's hold the process id of their maker.
        makers: the dead processes; other containers may share ``/dev/shm``, and theirs are left alone.

    Returns:
        How many were removed.
    """
    dead = [name for name in segments if (owner := _OWNER.match(name)) and int(owner[1]) in makers]
    for name in dead:
        Path(SHM, name).unlink(missing_ok=True)
    return len(dead)


def shm_segments() -> set[str]:
    """List the names under ``/dev/shm`` that belong to this user and that training processes make.

    PyTorch's default sharing strategy unlinks a segment as soon as the other side has opened it: names that stay are
    left-overs of processes that were killed, or of the ``file_system`` strategy.
    """
    found: set[str] = set()
    for name in _entries(SHM):
        try:
            mine = Path(SHM, name).lstat().st_uid == os.getuid()
        except OSError:
            continue
        if mine and name.startswith(SHM_PREFIXES):
            found.add(name)
    return found


_THROTTLED = re.compile(rb"^throttled_(?:(usec)|time) (\d+)$", re.MULTILINE)
"""In ``cpu.stat`` of a control group: version 2 counts microseconds, version 1 nanoseconds."""


class System:
    """The machine's own files, held open. Close it when done."""

    __slots__ = ("_files", "_quotas", "cpus")

    def __init__(self, proc: Path = Path("/proc"), groups: Iterable[Path] | None = None) -> None:
        """Open the files."""
        names = ("stat", "loadavg", "meminfo", *(f"pressure/{name}" for name in PRESSURES))
        self._files = {name: file for name in names if (file := _opened(proc / name)) is not None}
        found = identity.groups("cpu") if groups is None else groups
        stats = [_opened(folder / "cpu.stat") for folder in dict.fromkeys(found)]
        self._quotas = [file for file in stats if file is not None]
        cores = re.findall(rb"^cpu\d", read(str(proc / "stat"), 1 << 20) or b"", re.MULTILINE)
        self.cpus: int | None = len(cores) or None
        """Cores whose time ``ticks`` sums; None where they are not listed."""

    def close(self) -> None:
        """Close the files; later readings are None."""
        while self._files:
            os.close(self._files.popitem()[1])
        while self._quotas:
            os.close(self._quotas.pop())

    def counters(self) -> MachineCounters:
        """Read everything that only grows, this process' own CPU time included."""
        return MachineCounters(
            ticks=self.ticks(),
            t_ns=time.perf_counter_ns(),
            own_cpu_ns=time.process_time_ns(),
            cpus=self.cpus,
            pressure_us={name: self._pressure_us(name) for name in PRESSURES},
            throttled_ns=self._throttled_ns(),
        )

    def ticks(self) -> Ticks | None:
        """CPU time of all cores; None where ``/proc/stat`` cannot be read or understood."""
        words = self._text("stat").split(b"\n", 1)[0].split()[1:9]
        if len(words) < 4 or not all(word.isdigit() for word in words):
            return None
        fields = [int(word) for word in words]
        steal = fields[7] if len(fields) > 7 else None
        return Ticks(busy=sum(fields) - sum(fields[3:5]) - (steal or 0), steal=steal, total=sum(fields))

    def load_1m(self) -> float | None:
        """Load average over a minute."""
        load = self._text("loadavg").split(b" ", 1)[0]
        return float(load) if load else None

    def mem_available_bytes(self) -> int | None:
        """Memory that the kernel says is available."""
        available = self._text("meminfo").partition(b"MemAvailable:")[2].split(b"kB", 1)[0].strip()
        return int(available) * 1024 if available.isdigit() else None

    def _pressure_us(self, name: str) -> int | None:
        """How long at least one task of the machine has waited for a resource, in microseconds."""
        some, _, amount = self._text(f"pressure/{name}").split(b"\n", 1)[0].partition(b"total=")
        return int(amount) if some.startswith(b"some ") and amount.isdigit() else None

    def _throttled_ns(self) -> int | None:
        """How long quotas have stopped the control groups, summed over groups and cores, in nanoseconds."""
        found = [match for file in self._quotas if (match := _THROTTLED.search(_read(file)))]
        return sum(int(match[2]) * (1000 if match[1] else 1) for match in found) if found else None

    def _text(self, name: str) -> bytes:
        return _read(self._files[name]) if name in self._files else b""


def _opened(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:
        return None


def _read(file: int) -> bytes:
    """The start of an open file; nothing where it cannot be read."""
    try:
        return os.pread(file, 4096, 0)
    except OSError:
        return b""
