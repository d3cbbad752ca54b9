"""A script that runs, seen from outside: telemetry, counters, memory, and the stacks of its processes."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable

from feedrate.attach.profiler import Profiler
from feedrate.attach.run import Watched
from feedrate.machine.probes import procfs
from feedrate.machine.probes.gpu import GpuProbe
from feedrate.machine.probes.host import HostProbe

EVERY_S, COUNT_EVERY_S, MEMORY_EVERY_S = 0.1, 0.5, 10.0
"""How often samples, counters and memory are taken."""
MEMORY_SOON_S = 0.5
"""How soon memory is taken again at first; then after twice as long each time, as workers copy pages early."""
MOST_SAMPLES = 20_000
"""When so many samples are there, every other one, and of counters and memory, is dropped, and half as many follow."""


def wait_for_end(watched: Watched) -> None:
    """Sleep for ``EVERY_S``, or until it ends.

    ``Popen.wait`` with a timeout wakes up eight times, on a core that the script needs.
    """
    ended = os.pidfd_open(watched.process.pid)
    try:
        select.select([ended], (), (), EVERY_S)
    finally:
        os.close(ended)


def watch(
    watched: Watched, profiler: Profiler, look: Callable[[Watched], None], wait: Callable[[Watched], None]
) -> None:
    """Look at machine and processes until the script has ended; profile every process that makes an iterator."""
    pid, device = watched.process.pid, GpuProbe.open()
    sample_at = count_at = remember_at = 0.0
    slower, remember_after = 1, MEMORY_SOON_S
    with HostProbe() as host, contextlib.closing(device) if device else contextlib.nullcontext():
        while True:
            wait(watched)
            if watched.process.poll() is not None:
                return
            if (now := time.monotonic()) >= sample_at:
                sample = {"t_ns": time.perf_counter_ns(), **host.sample(pid)}
                watched.samples.append(sample | (device.sample() if device else {}))
                sample_at = now + slower * EVERY_S
            if now >= count_at:
                watched.counters.append(host.counters(pid))
                count_at = now + slower * COUNT_EVERY_S
            if now >= remember_at and any(watched.folder.glob("*.records")):
                by_pid = procfs.footprints(pid)
                at = time.perf_counter_ns()
                watched.memory.append((at, procfs.memory(by_pid)))
                watched.written.append((at, sum(one.dirty for one in by_pid.values())))
                for child, footprint in by_pid.items():
                    watched.footprints[child] = (watched.footprints.get(child, (footprint,))[0], footprint)
                remember_at = now + slower * remember_after
                remember_after = min(MEMORY_EVERY_S, 2 * remember_after)
            if len(watched.samples) >= MOST_SAMPLES:
                slower *= 2
                for kept in (watched.samples, watched.counters, watched.memory, watched.written):
                    del kept[1::2]
            for path in watched.folder.glob("*.jsonl"):
                profiler.watch(int(path.stem.split("-")[0]), sparing=True)
            look(watched)
