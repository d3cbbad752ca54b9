"""What a run records: its manifest and its tables, when it has stopped for whatever reason and as it stands."""

from __future__ import annotations

import math
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from feedrate import __version__
from feedrate.store import archive, runs
from feedrate.store.manifest import AskedClaim, RunManifest, Spread, Stopped
from feedrate.sweep.run import ActiveRun

Entry = dict[str, Any]
"""A trial in the journal: its row, ``steps`` (column to values), ``telemetry`` (rows)."""


def assemble(active: ActiveRun, reason: str) -> RunManifest:
    """Assemble the manifest of a run that stopped for a reason."""
    local, plan, failed = active.local, active.local.plan, active.blocks.given_up()
    ended = Counter(trial["block"] for trial in active.blocks.trials)
    cpu_s, clock_s = active.began
    wall_s = time.perf_counter() - clock_s
    return RunManifest(
        feedrate_version=__version__,
        run_id=active.run_id,
        machine=local.machine,
        software=local.software,
        device=plan.host.device,
        command=local.options.command(),
        cluster=local.node_part.membership if local.node_part else None,
        profile=plan.matrix.profile,
        suites=plan.matrix.suites(),
        protocol=plan.matrix.protocol,
        budget_s=plan.matrix.budget_s,
        seed=active.seed,
        combinations=plan.combinations,
        cells=len(plan.cells),
        merged=plan.merged,
        excluded=plan.excluded,
        substitutions=plan.substitutions,
        runtime=active.runtime,
        datasets=tuple(active.datasets),
        started_at=active.started_at,
        ended_at=active.now().isoformat(timespec="seconds"),
        blocks=sum(trials >= len(active.node_order(block)) for block, trials in ended.items()),
        stop_reason=reason,
        control=plan.control.cell_id,
        ceilings=len(plan.ceilings),
        contrasts=tuple(_contrasts(active, reason, failed)),
        claims=tuple(_claims(active, reason, failed)),
        tuned=active.blocks.searches.results(active.blocks.trials) if active.blocks.searches else (),
        untestable=dict(plan.untestable),
        noise_before=active.noise.get("before", {}),
        noise_after=active.noise.get("after", {}),
        outcomes=dict(Counter(trial["outcome"] for trial in active.blocks.trials)),
        cell_seconds=_cell_seconds(active),
        cell_spread=_spread(active),
        parent_cpu_pct=round(100 * (time.process_time() - cpu_s) / wall_s, 2) if clock_s else 0.0,
    )


def _contrasts(active: ActiveRun, reason: str, failed: set[str]) -> Iterator[Stopped]:
    """Every contrast, and why it was not measured further."""
    for pair in active.blocks.contrasts.pairs:
        values = active.blocks.contrasts.values(pair)
        why = "target" if active.blocks.contrasts.rule.done(values) else reason
        if not failed.isdisjoint((pair.cell_a, pair.cell_b)):
            why = "failed"
        yield Stopped(axis=pair.axis, cell_a=pair.cell_a, cell_b=pair.cell_b, blocks=len(values), reason=why)


def _claims(active: ActiveRun, reason: str, failed: set[str]) -> Iterator[AskedClaim]:
    """Every claim, and why it was not measured further."""
    tracker = active.blocks.claims
    for claim in tracker.claims:
        why = "blocks" if tracker.done(claim) else reason
        if not failed.isdisjoint(claim.deciding):
            why = "failed"
        elif tracker.certainty(claim) >= 1:
            why = "done"
        blocks = min(len(tracker.values(effect)) for effect in claim.effects)
        yield AskedClaim(claim=claim.id, blocks=blocks, reason=why)


def _cell_seconds(active: ActiveRun) -> dict[str, float]:
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for trial in active.blocks.trials:
        seconds[trial["cell_id"]].append(trial["trial_wall_ns"] / 1e9)
    return {cell: round(fmean(times), 3) for cell, times in seconds.items()}


def _spread(active: ActiveRun) -> dict[str, Spread]:
    """How each cell's log throughput varied: between blocks, and within windows by their halves.

    A window's log throughput is about the mean of its halves', whose difference is the log of their ratio: half the
    spread of that is the window's own share.
    """
    halves: defaultdict[str, list[float]] = defaultdict(list)
    for trial in active.blocks.trials:
        if trial["outcome"] == "ok" and (ratio := trial.get("half_ratio")):
            halves[trial["cell_id"]].append(math.log(ratio) / 2)
    spread = {}
    for cell in active.local.plan.all_cells:
        logs, windows = active.blocks.contrasts.logs.sums({cell.cell_id: 1.0}), halves[cell.cell_id]
        if len(logs) > 1:
            within = round(stdev(windows), 6) if len(windows) > 1 else 0.0
            spread[cell.cell_id] = Spread(sd=round(stdev(logs), 6), within=within)
    return spread


def keep(active: ActiveRun, entry: Entry, kept_in: Path) -> None:
    """Pack the run as it stands, with a trial that has ended and that the journal may not hold yet."""
    with tempfile.TemporaryDirectory(prefix="feedrate-") as scratch:
        folder = Path(scratch) / active.local.machine.machine_id / active.run_id
        entries: Iterator[list[Entry]] = chain(runs.journal_chunks(active.folder), [[entry]])
        runs.write_run(folder, assemble(active, "interrupted"), map(rows, entries))
        archive.pack_run(kept_in, folder)


def rows(entries: list[Entry]) -> dict[str, list[dict[str, Any]]]:
    """Turn a journal into the rows of the three tables."""
    tables: dict[str, list[dict[str, Any]]] = {"trials": [], "steps": [], "telemetry": []}
    for entry in entries:
        trial = entry["trial"]
        key = {"run_id": trial["run_id"], "trial_id": trial["trial_id"]}
        tables["trials"].append(trial)
        columns: dict[str, list[int | None]] = entry["steps"]
        names = list(columns)
        for step, values in enumerate(zip(*columns.values(), strict=True)):
            tables["steps"].append({**key, "step": step, **dict(zip(names, values, strict=True))})
        tables["telemetry"] += [{**key, **sample} for sample in entry["telemetry"]]
    return tables
