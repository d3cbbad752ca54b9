"""Runs that were never measured: plausible rows by formula and seed, written through the real store.

The formulas follow the shape of real runs (loading against computing, whichever is slower, plus overheads); the numbers
stand for no machine.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import fake_storage
from fake_cells import added, cells
from fake_kind import HOSTILE, Fake, machine
from fake_trial import steps, trial

from feedrate.machine.identity import Software
from feedrate.schema.axes import cell_id
from feedrate.store import runs
from feedrate.store.bench_record import BenchRecord, Promise, WitnessedTrial
from feedrate.store.manifest import Counted, Dataset, Membership, Protocol, RunManifest, Stopped

CONTROL_EVERY = 16
PLAIN = Fake()
SWEEP, NODES = "20260102T030405Z-c1d2", 8
"""Of a cluster, and how many nodes it has."""


def rows(fake: Fake) -> dict[str, list[dict[str, Any]]]:
    """Make up the three tables of a run."""
    random_ = random.Random(7 if fake.node is None else 100 + fake.node)
    trials = []
    everything = [(cell, "cell") for cell in cells(fake)] + [(cell, "ceiling") for cell in added(fake)]
    for block in range(fake.blocks):
        order = list(everything)
        random_.shuffle(order)
        if not fake.asked_only:
            for place in range(CONTROL_EVERY * (len(order) // CONTROL_EVERY), 0, -CONTROL_EVERY):
                order.insert(place, (everything[0][0], "control"))
        trials += [trial(fake, cell, role, block, place, random_) for place, (cell, role) in enumerate(order)]
    kept = [step for row in trials for step in steps(fake, row)]
    return {"trials": trials, "steps": kept, "telemetry": _samples(fake, trials)}


def _samples(fake: Fake, trials: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the probes see: three looks at every trial, half a second apart, and a pause between blocks."""
    random_, found, now = random.Random(11), [], 0
    for at, row in enumerate(trials):
        now += 4 * 10**9 if at and trials[at - 1]["block"] != row["block"] else 10**8
        for tick in range(3):
            now += 5 * 10**8
            sample = {"run_id": fake.run_id, "trial_id": row["trial_id"], "t_ns": now, "in_window": tick > 0}
            found.append(sample | ({} if fake.nulls else _look_at(fake, random_)))
    return found


def _look_at(fake: Fake, random_: random.Random) -> dict[str, Any]:
    """One look of the probes."""
    main, workers, others = (
        random_.uniform(60, 100),
        random_.uniform(0, 190),
        random_.uniform(0, 80 if fake.busy else 8),
    )
    seen = {
        "cpu_util_pct": (main + workers + others) / fake.cores,
        "main_cpu_pct": main,
        "workers_cpu_pct": workers,
        "steal_pct": random_.choice((0.0, 0.0, 2.5)) if fake.busy else 0.0,
        "load_1m": random_.uniform(1.5, 2.5),
        "mem_available_bytes": random_.randint(50, 56) * 2**30,
    }
    if fake.device == "cuda":
        seen |= {
            "gpu_util_pct": random_.uniform(20, 100),
            "gpu_power_w": random_.uniform(90, 300),
            "gpu_mem_bytes": 3 * 2**30,
        }
    return seen


def manifest(fake: Fake, trials: Sequence[dict[str, Any]]) -> RunManifest:
    """Make up what the run says of itself."""
    text = HOSTILE if fake.hostile else ""
    return RunManifest(
        protocol_version=fake.protocol_version,
        feedrate_version="0.1.0",
        run_id=fake.run_id,
        machine=machine(fake),
        software=Software(python="3.11.7", torch="2.15.0", torchvision="0.29.2"),
        device=fake.device,
        command=f"feedrate sweep {text}".strip(),
        profile="quick",
        suites={name: [{"batch_size": [8]}] for name in fake.suites},
        protocol=Protocol(warmup_s=0.3, window_s=0.6, min_steps=12, blocks=(8, 30), timeout_s=120),
        budget_s=240.0,
        seed=7,
        combinations=96,
        cells=len(cells(fake)),
        substitutions=(text or "div2k_standin stands in for div2k: procedural images of its geometry",),
        datasets=(_dataset(text),),
        started_at="2026-01-02T03:04:05Z",
        ended_at="2026-01-02T03:08:05Z",
        blocks=fake.blocks,
        stop_reason="budget",
        **_counted(fake, text),
        **({} if fake.asked_only else _trust(fake)),
        outcomes=dict(sorted(Counter(row["outcome"] for row in trials).items())),
        cell_seconds={},
        parent_cpu_pct=1.2,
        cluster=None
        if fake.node is None
        else Membership(sweep=SWEEP, node=fake.node, nodes=NODES, together=fake.together),
    )


def _dataset(text: str) -> Dataset:
    """The set that was packed."""
    return Dataset(
        name="div2k_standin-p16-s2-n1024",
        storage_format="png",
        count=1024,
        bytes=1_234_567,
        data_hash="0123456789abcdef",
        workload_version=1,
        pack_s=2.5,
        notes=(text,) if text else (),
    )


def _counted(fake: Fake, text: str) -> dict[str, Any]:
    """Combinations that are no cells, and why."""
    small = (Counted(count=2, reason="the set is smaller than a batch"),)
    return {
        "merged": (Counted(count=36, reason=text or "no CUDA device here: pin_memory, non_blocking"),),
        "excluded": fake_storage.EXCLUDED if fake.formats else small,
    }


def _trust(fake: Fake) -> dict[str, Any]:
    """What a run says of how far it can be trusted."""
    return {
        "control": cell_id(cells(fake)[0]),
        "ceilings": len(added(fake)),
        "contrasts": _stopped(fake),
        "noise_before": _look(fake.busy),
        "noise_after": _look(False),
    }


def _stopped(fake: Fake) -> tuple[Stopped, ...]:
    """Contrasts of batch sizes: some narrow enough, some stopped by the budget."""
    asked = [cell for cell in cells(fake) if cell["mode"] == "train"]
    pairs = [
        (cell_id(a), cell_id(b)) for a, b in combinations(asked, 2) if {**a, "batch_size": 0} == {**b, "batch_size": 0}
    ]
    return tuple(
        Stopped(axis="batch_size", cell_a=a, cell_b=b, blocks=fake.blocks, reason="budget" if at % 3 else "target")
        for at, (a, b) in enumerate(pairs)
    )


def _look(busy: bool) -> dict[str, float | int | None]:
    return {
        "wall_ns": 1_000_400_000,
        "cpu_util_pct": 31.0 if busy else 0.4,
        "foreign_cpu_pct": 62.0 if busy else 1.1,
        "steal_pct": 0.0,
        "throttled_ns": None,
        "io_pressure_pct": None,
        "memory_pressure_pct": None,
        "cpu_pressure_pct": None,
        "load_1m": 1.7 if busy else 0.21,
        "gpu_foreign_processes": None,
        "gpu_util_pct": None,
        "gpu_throttle_reasons": None,
    }


def write(results: Path, fake: Fake = PLAIN) -> Path:
    """Write a made-up run below ``results`` and return its folder."""
    tables = rows(fake)
    run = manifest(fake, tables["trials"])
    folder = results / run.machine.machine_id / ("hostile" if fake.hostile else fake.run_id)
    folder.mkdir(parents=True)
    runs.write_run(folder, run, [tables])
    return folder


def witnessed(witness_ns: int = 10**9, cell: str = "a", **others: float) -> WitnessedTrial:
    """1,000 samples in a second by feedrate; 60 samples a second in the epochs, by the external clock."""
    return WitnessedTrial(
        cell_id=cell,
        cell={"num_workers": 2},
        repeat=0,
        samples=1000,
        wall_ns=10**9,
        witness_ns=witness_ns,
        epoch_steps=8,
        epochs_samples=60,
        epochs_witness_ns=10**9,
        estimates={"wall_clock": 1000.0, **others},
    )


def bench(day: int = 2, cores: int = 2, hostile: bool = False, **changes: Any) -> BenchRecord:
    """Make up what ``make bench`` found on a day of January 2026."""
    promise = Promise(section="accuracy", what="off by", target="≤ 1 %", measured="0.2 %", met=True)
    whole = {
        "feedrate_version": "0.1.0",
        "machine": machine(Fake(cores=cores, hostile=hostile)),
        "software": Software(python="3.11.7", torch="2.15.0"),
        "device": "cpu",
        "started_at": datetime(2026, 1, day, tzinfo=UTC),
        "took_s": 1.0,
        "sections": ("accuracy",),
        "promises": (promise,),
        "witnessed": (witnessed(),),
    }
    return BenchRecord(**(whole | changes))
