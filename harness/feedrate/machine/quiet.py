"""Is the machine quiet? A look at it while feedrate itself does nothing, and waiting until it is.

A look is judged as if it were a trial in which nothing of ours ran: the same rules, the same limits (``probes.noise``).
Load averages are recorded and judge nothing: they remember a minute in which ``make`` and Python itself were started.
A quiet second does not promise a quiet hour, which is why each trial is watched too.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import psutil

from feedrate.machine.probes import noise, procfs
from feedrate.machine.probes.gpu import GpuProbe
from feedrate.machine.probes.host import HostProbe, disturbance, percent, pressure_pct
from feedrate.schema import words

LOOK_S, EVERY_S = 1.0, 3.0
"""Length of a look, and pause between two looks of a wait, in seconds."""
SAY_EVERY_S = 60.0
"""How often a wait says that it goes on, in seconds."""
GPU_BUSY_PCT = 5
"""Utilization above which somebody computes on the GPU, even where his process cannot be seen."""
_NAMED = 3
_SENTENCES = {
    "foreign_cpu_pct": "other processes use {:.0f} % of a core",
    "stolen_share_pct": "the hypervisor takes {:.0f} % of the CPU time that is wanted",
    "throttled_pct": "a CPU quota stops this container for {:.0f} % of the time",
    "memory_pressure_pct": "tasks wait for memory {:.0f} % of the time",
    "foreign_io_pct": "tasks wait for storage {:.0f} % of the time",
    "gpu_slowed": "power or heat slows the GPU down",
    "gpu_foreign_processes": "other processes on the GPU: {:.0f}",
}
"""What a rule's first measure says of an idle machine."""


class Quietness(NamedTuple):
    """What a look at the machine saw."""

    reasons: tuple[str, ...]
    """What is wrong, a sentence each; they may name programs and are for the terminal, never for a record."""
    numbers: dict[str, float | int | None]
    """What was measured, for the record; None is what the machine does not tell."""

    @property
    def quiet(self) -> bool:
        """Whether nothing is wrong, as far as the machine tells."""
        return not self.reasons


def look(host: HostProbe, gpu: GpuProbe | None, seconds: float = LOOK_S) -> Quietness:
    """Watch the machine for some seconds, in which nothing of ours may run, on the GPU neither."""
    before, used = host.machine(), _used()
    time.sleep(seconds)
    after = host.machine()
    sample, computing = (gpu.sample(), gpu.computing()) if gpu else ({}, None)
    seen: dict[str, float | int | None] = {
        "wall_ns": after.t_ns - before.t_ns,
        **disturbance(before, after, 0),
        "cpu_pressure_pct": pressure_pct(before, after, "cpu"),
        "load_1m": host.load_1m(),
        "gpu_foreign_processes": None if computing is None else len(computing),
        "gpu_util_pct": sample.get("gpu_util_pct"),
        "gpu_throttle_reasons": sample.get("gpu_throttle_reasons"),
    }
    reasons = []
    idle = {**seen, "main_cpu_pct": 0.0, "workers_cpu_pct": 0.0, "read_bytes": 0}
    for rule in noise.broken(idle):
        name = rule.limits[0].measure
        busiest = _busiest(used, after.t_ns - before.t_ns) if name == "foreign_cpu_pct" else ""
        reasons.append(_SENTENCES[name].format(noise.measure(name, idle)) + busiest)
    if (busy := seen["gpu_util_pct"]) is not None and busy > GPU_BUSY_PCT:
        reasons.append(f"somebody computes on the GPU: it is busy {busy:.0f} % of the time")
    numbers = {name: round(value, 3) if isinstance(value, float) else value for name, value in seen.items()}
    return Quietness(tuple(reasons), numbers)


def _used() -> dict[int, int]:
    """CPU time of every process that can be seen, in nanoseconds."""
    return {pid: used for pid in psutil.pids() if (used := procfs.cpu_ns(pid)) is not None}


def _busiest(before: dict[int, int], wall_ns: int) -> str:
    """The programs that used most CPU since ``before``, in brackets; nothing where none can be seen."""
    used_ns: Counter[str] = Counter()
    for pid, used in _used().items():
        if pid != os.getpid() and (name := procfs.command(pid)):
            used_ns[name] += max(0, used - before.get(pid, 0))
    shares = [(name, percent(used, wall_ns) or 0) for name, used in used_ns.most_common(_NAMED)]
    named = [f"{name} {share:.0f} %" for name, share in shares if share >= 1]
    return f" ({', '.join(named)})" if named else ""


def wait(host: HostProbe, gpu: GpuProbe | None, limit_s: float, say: Callable[[str], None]) -> Quietness:
    """Look again and again until the machine is quiet, or until the limit, and say so; gives the last look."""
    last_said = began = time.monotonic()
    seen = look(host, gpu)
    if seen.quiet:
        return seen
    say(f"Waiting for a quiet machine, {words.show(limit_s)} at most: {'; '.join(seen.reasons)}.")
    while (left := began + limit_s - time.monotonic()) > LOOK_S / 2:
        time.sleep(max(0.0, min(EVERY_S, left - LOOK_S)))
        seen = look(host, gpu)
        now = time.monotonic()
        if seen.quiet:
            say(f"The machine is quiet, after {words.show(now - began)}.")
            return seen
        if now - last_said >= SAY_EVERY_S:
            last_said = now
            say(f"Still waiting, for {words.show(now - began)} now: {'; '.join(seen.reasons)}.")
    say(f"Not quiet after {words.show(time.monotonic() - began)}, going on: {'; '.join(seen.reasons)}.")
    return seen
