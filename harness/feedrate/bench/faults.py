"""Faults: what must not be lost while processes are killed, and what ``feedrate run`` must not do to a script.

Four sections: kills of a real sweep's processes at random moments; mishaps, each once (``bench.mishaps``); strikes at
scripts under ``feedrate run`` (``bench.struck``), which must do what they do alone; and a soak of short trials, in
which nothing may grow. Not shown: a machine that loses power, and faults of a GPU.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from feedrate.analysis.estimate import half_width
from feedrate.bench.ground import Ground, family
from feedrate.bench.mishaps import CASES, NotHereError
from feedrate.bench.session import Figure, Session, cell
from feedrate.machine.probes.procfs import shm_segments
from feedrate.schema import words
from feedrate.schema.axes import Value
from feedrate.store import runs
from feedrate.sweep.launcher import LOSSES, Template

OFTEN = {"trial": 8, "worker": 8, "template": 1}
"""How often each is killed, beside a parent once a sweep."""
PAUSE_S = 0.2
"""Between two kills, on average."""
SOAK_TRIALS = 10
"""For each kill that is asked for."""


def kills(session: Session) -> Iterator[Figure]:
    """Kill processes of sweeps until there were enough kills."""
    counts, problems, sweeps, draw = Counter[str](), list[str](), 0, random.Random(session.kills)
    while counts.total() < session.kills:
        ground = Ground(session.folder / "kills" / str(sweeps), blocks=4)
        if sweeps % 4:  # others pack their own, so that packing is hit, too
            ground.data = session.folder / "kills" / "0" / "data"
        wrong = storm(ground, draw, counts)
        problems += [f"sweep {sweeps}: {problem}" for problem in wrong]
        sweeps += 1
        session.console.print(f"{counts.total()} of {session.kills} kills, {len(problems)} problems ...", *wrong)
    kinds = ", ".join(f"{count} of the {kind}" for kind, count in sorted(counts.items()))
    measured = f"{counts.total()} kills in {words.plural(sweeps, 'sweep')} ({kinds}): {len(problems)} problems"
    what = "kill -9 at random: measurements lost, processes, shared memory and damaged files left, sweeps not ended"
    yield Figure(what, "0", "; ".join([measured, *problems[:3]]), not problems)


def storm(ground: Ground, draw: random.Random, counts: Counter[str]) -> list[str]:
    """Kill processes of one sweep at random, its parent once; the command is then repeated. Says what is wrong."""
    ended: dict[str, float | None] = {}
    process, parent_at = ground.start(), time.monotonic() + draw.uniform(1.0, 25.0)
    templates, problems = 0, list[str]()
    while process.poll() is None:
        time.sleep(draw.expovariate(1 / PAUSE_S))
        now = ground.journal()
        templates, ended = (0 if now.keys() > ended.keys() else templates), {**ended, **now}
        if parent_at and time.monotonic() > parent_at:
            if process.poll() is None:
                process.kill()
                counts["parent"] += 1
            process.wait()
            ended, parent_at = {**ended, **ground.journal()}, 0.0
            problems += ground.left()
            process = ground.start()
            continue
        (kind,) = draw.choices(list(OFTEN), list(OFTEN.values()))
        # More in a row end a sweep, which then says so; one that ended just before a kill is seen after it.
        if kind == "template" and templates == LOSSES - 1:
            continue
        if victims := family(process)[kind]:
            with suppress(psutil.Error):
                draw.choice(victims).kill()
                counts[kind] += 1
                templates += kind == "template"
    if wrong := ground.done(process).wrong(0, 1):
        problems.append(wrong)
    elif process.returncode and any("ok" in run.manifest.outcomes for run in runs.runs(ground.results)):
        problems.append("status 1 though measurements ended well")
    return [*problems, *ground.left(), *ground.faults(ended)]


def mishaps(session: Session) -> Iterator[Figure]:
    """Try every mishap once."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else ignored by all children of a background job
    for name, case in CASES.items():
        session.console.print(f"{name} ...")
        what = f"a sweep: {name}: {' '.join((case.__doc__ or '').split()).rstrip('.')}".rstrip(": ")
        try:
            wrong = case(Ground(session.folder / "mishaps" / name.replace(" ", "-")))
        except NotHereError as reason:
            yield Figure(what, "as it must", str(reason), None)
        else:
            yield Figure(what, "as it must", wrong or "so", not wrong)


Values = np.ndarray[Any, np.dtype[np.float64]]


def soak(session: Session) -> Iterator[Figure]:
    """Run very many short trials in one template, and look whether anything grows."""
    count = SOAK_TRIALS * session.kills
    axes: dict[str, Value] = {"workload": "synthetic", "mode": "load", "storage_format": "memmap", "n_samples": 64}
    axes |= {"patch_size": 8, "batch_size": 8, "num_workers": 0}
    job: dict[str, Any] = {
        "device": session.device,
        "cell": cell(session.device, **axes),
        "data_root": str(session.folder / "data"),
        "warmup_s": 0.0,
        "window_s": 0.005,
        "min_steps": 2,
    }
    session.console.print(f"{count} short trials ...")  # what printing imports is no growth
    held = np.full((count, len(GROWING)), np.nan)  # whole from the start: it must not grow itself
    folder = session.folder / "soak"
    folder.mkdir()
    journal = runs.Journal(folder)
    with Template() as template:
        packed = session.ask(template, "prepare", job["cell"])["packed"]
        order = json.dumps({**job, "kind": "trial", "packed": packed})
        for at in range(count):
            begun = time.perf_counter()
            answer = template.run(order, timeout_s=60, watch=lambda *_: None)
            ended = time.perf_counter()
            if answer.outcome != "ok":
                yield Figure("a soak of short trials", "all end well", f"{answer.outcome}: {answer.message}", False)
                return
            journal.append({"trial": {"trial_id": at, **answer.result["row"]}, "steps": {}, "telemetry": []})
            held[at] = *_held(template), ended - begun, time.perf_counter() - ended
    journal.close()
    held = held[count // 10 :]  # what is imported late is there by then
    yield from (_slope(*column, values) for column, values in zip(GROWING.items(), held.T, strict=True))


GROWING = {
    "memory of the parent": ("KiB", 1024.0),
    "memory of the template": ("KiB", 1024.0),
    "file handles": ("", 1.0),
    "threads": ("", 1.0),
    "shared memory segments": ("", 1.0),
    "temporary files": ("", 1.0),
    "time of a trial": ("ms", 1e-3),
    "time of the journal": ("ms", 1e-3),
}
"""What must not grow, in the order of :func:`_held`, to the unit that it is told in."""


def _held(template: Template) -> tuple[float, ...]:
    """What parent and template hold."""
    both = psutil.Process(), psutil.Process(template.pid)
    memory = (process.memory_info().rss for process in both)
    counts = sum(process.num_fds() for process in both), sum(process.num_threads() for process in both)
    return *memory, *counts, len(shm_segments()), sum(1 for _ in Path(template.scratch).rglob("*"))


def _slope(name: str, measure: tuple[str, float], values: Values, batches: int = 20) -> Figure:
    """Growth over a thousand trials, by the slope through means of batches with its 95 % interval."""
    unit, scale = measure
    means = np.array([batch.mean() for batch in np.array_split(values / scale, batches)])
    at = np.arange(batches) * len(values) / batches / 1000
    slope, start = np.polyfit(at, means, 1) if np.ptp(means) else (0.0, means[0])
    rest = means - (slope * at + start)
    error = np.sqrt((rest**2).sum() / (batches - 2) / ((at - at.mean()) ** 2).sum())
    half = float(half_width(error * np.sqrt(batches - 1), batches - 1))
    lo, hi = slope - half, slope + half
    spread = f"{slope:+.3g} {unit} in 1,000 trials ({lo:+.3g} to {hi:+.3g})".replace("  ", " ")
    measured = f"{spread}, from {start:.4g}, n = {len(values):,}"
    return Figure(f"soak of short trials: {name} grows", "interval holds 0, or falls", measured, bool(lo <= 0))
