"""A sweep: plan → data → blocks → journal → parquet.

Every cell runs once a block, each block in a fresh random order that the run's seed repeats. The parent holds no torch;
it orders, watches and writes. Whatever happens, trials that ended are kept: a run that was killed resumes, one that was
interrupted is written as far as it came.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from feedrate.machine import memory_limit, quiet, read_ahead
from feedrate.machine.identity import environment
from feedrate.machine.probes import gpu, noise
from feedrate.machine.probes.host import HostProbe, TrialCounters, difference
from feedrate.machine.probes.procfs import descendants, memory, workers_uss
from feedrate.plan.request import LocalPlan
from feedrate.plan.schedule import PlannedCell
from feedrate.schema import window, words
from feedrate.schema.axes import Cell
from feedrate.schema.columns import PROTOCOL_VERSION
from feedrate.schema.errors import EnvironmentFault, FeedrateError, InputError
from feedrate.schema.redaction import KIND_MOST, scrub
from feedrate.store import archive, remote, runs
from feedrate.store.manifest import Dataset
from feedrate.sweep import forecast, manifest, snapshot
from feedrate.sweep.launcher import Answer, Template
from feedrate.sweep.run import ActiveRun
from feedrate.sweep.screen import Screen
from feedrate.trial.rendezvous import Meeting

SERVES = 16
"""Trials of a tuned sweep, whose blocks are short, after which it starts another template."""
PREPARE_TIMEOUT_S = 24 * 3600.0
_SKIPPED = re.compile(r"^skipped .*: ")
_ERRORS: dict[str | None, type[FeedrateError]] = {"InputError": InputError, "EnvironmentFault": EnvironmentFault}


def run(local: LocalPlan, screen: Screen, kept_in: Path | None = None) -> runs.StoredRun | None:
    """Measure a plan.

    Args:
        local: the plan.
        screen: shows how far it is.
        kept_in: gets an archive of the run as it stands after every trial, so that a machine which is taken away costs
            none that had ended.

    Returns:
        The run as stored; None when it was interrupted before any trial had ended. One that a store did not take lies
        in its outbox.

    Raises:
        FeedrateError: the sweep cannot begin or go on; what was measured stays in the journal.
    """
    require_a_block(local)
    results, machine_id = local.options.results, local.machine.machine_id
    with runs.machine_lock(results, machine_id) as folder:
        for left in remote.hand_in_left(results, machine_id):
            screen.say(f"Handed in from an earlier sweep: {left}")
        active = _open(local, folder, screen)
        try:
            _look_before(active)
            reason = _measure(active, kept_in)
            with contextlib.suppress(KeyboardInterrupt):
                active.noise["after"] = quiet.look(active.host, active.gpu).numbers
        except KeyboardInterrupt:
            reason = "interrupted"
        except BaseException:
            active.close()
            if not active.trials:
                runs.discard(active.folder)
            raise
        stored = _finish(active, reason)
        if stored and kept_in:
            archive.pack_run(kept_in, stored.folder)
        return _hand_in(stored, local, screen)


def require_a_block(local: LocalPlan) -> None:
    """Refuse a budget without room for a block; call it before anything that takes long.

    Raises:
        InputError: not one block fits, and ``--yes`` was not given.
    """
    if local.plan.blocks == 0 and not (local.options.yes or local.options.tune):
        raise InputError(
            f"BUDGET: {words.show(local.plan.matrix.budget_s or 0)} is less than one block, which takes about "
            f"{words.show(local.plan.block_s)}; expected room for one at least. Raise BUDGET, leave values out "
            "(make plan says which), or say YES=1 to run one block all the same"
        )


def _open(local: LocalPlan, folder: Path, screen: Screen) -> ActiveRun:
    """Resume the unfinished run of the same plan, or begin a new one."""
    key = local.key()
    for path, begun in runs.unfinished(folder):
        if begun["key"] != key:
            screen.say(f"Note: {path} holds an unfinished run of another plan; the same command as then resumes it.")
            continue
        active = ActiveRun(local, path, begun["seed"], begun["started_at"], screen)
        for entry in active.journal.entries():
            active.add(entry["trial"])
        if not local.options.fresh:
            screen.say(f"resuming run {path.name}: {len(active.trials)} trials are there already (FRESH=1 starts anew)")
            return active
        _finish(active, "interrupted")
        screen.say(f"Run {path.name} is closed with the {len(active.trials)} trials that it had.")
    now = datetime.now(UTC)
    seed = local.options.seed if local.options.seed is not None else secrets.randbits(32)
    started_at = now.isoformat(timespec="seconds")
    path = runs.begin(folder, runs.new_id(now), {"key": key, "seed": seed, "started_at": started_at})
    return ActiveRun(local, path, seed, started_at, screen)


def _look_before(active: ActiveRun) -> None:
    """Record what else uses the machine; wait for quiet if asked to, and warn at once."""
    options = active.local.options
    if options.wait_quiet:
        limit_s = words.parse(options.wait_quiet, "WAIT_QUIET")
        active.noise["before"] = quiet.wait(active.host, active.gpu, limit_s, active.screen.say).numbers
        return
    look = quiet.look(active.host, active.gpu)
    active.noise["before"] = look.numbers
    if not look.quiet:
        active.screen.say(
            f"The machine is busy: {'; '.join(look.reasons)}. Numbers will scatter and the run's grade will say so "
            "(WAIT_QUIET=10m waits for a quiet machine)."
        )


def _finish(active: ActiveRun, reason: str) -> runs.StoredRun | None:
    """Turn the journal into parquet; a run without a trial leaves nothing."""
    active.close()
    if not active.trials:
        runs.discard(active.folder)
        return None
    return runs.write_run(
        active.folder, manifest.assemble(active, reason), map(snapshot.rows, runs.journal_chunks(active.folder))
    )


def _hand_in(stored: runs.StoredRun | None, local: LocalPlan, screen: Screen) -> runs.StoredRun | None:
    """Give the store what has ended; what it does not take stays where it was written."""
    try:
        handed = remote.hand_in_left(local.options.results, local.machine.machine_id)
    except EnvironmentFault as fault:
        screen.say(str(fault))
        return stored
    folders = {path.name: path for path in handed}
    return stored and replace(stored, folder=folders.get(stored.folder.name, stored.folder))


def _measure(active: ActiveRun, kept_in: Path | None) -> str:
    """Prepare data, then run blocks until every contrast is narrow enough and every claim certain.

    Budget or protocol may end them before.
    """
    budget = active.local.plan.matrix.budget_s
    block = first = max((trial["block"] for trial in active.trials), default=0)
    template, served = None, 0
    with contextlib.ExitStack() as stack:
        while order := active.order(block):
            if active.meeting:
                if not active.meeting.begin(block, active.plan_digest()):
                    return "budget"
            elif block > first and budget and active.elapsed_s() + forecast.block_s(active, block, order) > budget:
                return "budget"
            if block == first:
                active.screen.say("Starting: importing torch takes a few seconds.")
            if template is None or not active.searches or served >= SERVES:
                stack.close()
                template, served = stack.enter_context(Template()), 0
            if block == first:
                _confirm_device(active, template)
                _prepare(active, template)
                active.begin_blocks()
            _run_block(active, block, order, template, kept_in)
            block, served = block + 1, served + len(order)
    return "budget" if active.live(block) else "target" if active.answered(block) else "blocks"


def _ask(template: Template, job: dict[str, Any], watch: Any = lambda *_: None, timeout_s: float = 120.0) -> Answer:
    """Run a job that must not fail."""
    answer = template.run(json.dumps(job), timeout_s=timeout_s, watch=watch)
    if answer.outcome != "ok":
        raise _ERRORS.get(answer.kind, FeedrateError)(answer.message or f"{job['kind']}: {answer.outcome}")
    return answer


def _confirm_device(active: ActiveRun, template: Template) -> None:
    """The child, which may ask CUDA, must agree with the plan, which asked NVML."""
    facts = _ask(template, {"kind": "facts"}).result
    planned, device = active.local.plan.place.device, facts["device"]
    if device != planned:
        raise EnvironmentFault(
            f"by the driver (NVML) the plan says {planned}, PyTorch says {device}; expected them to agree. Install a "
            "PyTorch built for this driver; or, where PyTorch finds the GPU and NVML does not, nvidia-ml-py, and see "
            "that the driver's libnvidia-ml.so.1 can be loaded (a container needs the driver's capability utility); or "
            "set CUDA_VISIBLE_DEVICES= to measure the CPU"
        )
    if active.gpu and facts["uuid"] and not active.gpu.follow(facts["uuid"]):
        raise EnvironmentFault(
            "PyTorch's first CUDA device is none that the driver (NVML) lists; expected it there, to be watched. "
            "Name the GPU by its identifier (nvidia-smi -L lists them) in CUDA_VISIBLE_DEVICES; in a container, see "
            "that it is given the same GPUs for compute and for utility"
        )
    active.runtime = {name: facts[name] for name in ("cuda", "cudnn", "torch_threads")} | environment()
    if active.gpu:
        active.runtime |= {name: value for name, value in active.gpu.facts().items() if name != "memory_bytes"}


def _prepare(active: ActiveRun, template: Template) -> None:
    """Pack every set that a cell reads, once."""
    readers = [cell for cell in active.local.plan.all_cells if cell.axes["mode"] != "check"]
    first_readers = {active.data_key(cell): cell for cell in reversed(readers)}
    printed: set[str] = set()
    for key, cell in reversed(first_readers.items()):
        axes = dict(key)
        name = f"{words.sized(axes['workload'], axes.get('patch_size'), ' ')} {axes['storage_format']}"

        def watch(event: str, _: int, fields: dict[str, Any], name: str = name) -> None:
            if event == "progress":
                active.screen.preparing(name, fields["done"], fields["total"])

        answer = _ask(template, active.job("prepare", cell), watch, PREPARE_TIMEOUT_S).result
        active.packed[key] = answer["packed"]
        _require_same_data(active, key, answer["data_hash"])
        for note in answer["notes"]:
            if note not in printed:
                active.screen.say(f"{axes['workload']}: {note}")
            printed.add(note)
        fields = {field: answer[field] for field in Dataset.model_fields}
        active.datasets.append(Dataset(**fields | {"notes": without_names(answer["notes"])}))


def _require_same_data(active: ActiveRun, key: tuple[tuple[str, Any], ...], data_hash: str) -> None:
    """A resumed run must go on with the pixels that it began with."""
    readers = {cell.cell_id for cell in active.local.plan.all_cells if active.data_key(cell) == key}
    before = {trial.get("data_hash") for trial in active.trials if trial["cell_id"] in readers}
    if before - {None, data_hash}:
        raise InputError(
            f"run {active.run_id}: the data changed since it began ({dict(key)['workload']}); expected the same "
            "samples to the end. FRESH=1 closes that run as far as it came and begins anew"
        )


def without_names(notes: list[str]) -> tuple[str, ...]:
    """Notes as they may be published: how many files were skipped and why, not what a user's photographs are called."""
    counts = Counter(_SKIPPED.sub("skipped a file: ", note) for note in notes)
    return tuple(f"{scrub(note)} (× {count})" if count > 1 else scrub(note) for note, count in counts.items())


def _run_block(
    active: ActiveRun, block: int, order: list[PlannedCell], template: Template, kept_in: Path | None
) -> None:
    """Run every trial of the block that the journal does not hold yet."""
    plan, machine_id = active.local.plan, active.local.machine.machine_id
    done = {trial["position"] for trial in active.trials if trial["block"] == block}
    later = forecast.following(active, block, order)
    for position, cell in enumerate(order):
        if position in done:
            continue
        meeting = active.meeting and active.meeting.gate(block, position)
        if active.meeting and (not meeting or meeting.turn >= int(cell.axes.get("nodes", 1))):
            continue
        active.screen.trial(cell, forecast.progress(active, block, position, order, later))
        growth = cell.axes.get("index_kind", "none") != "none"
        observer = Observer(active.host, active.gpu, active.origin_ns, active.screen.tick, growth=growth)
        answer = _run_trial(active, cell, block, template, observer, meeting)
        identity = {
            "run_id": active.run_id,
            "trial_id": f"{active.run_id}-{block:03d}-{position:04d}",
            "cell_id": cell.cell_id,
            "machine_id": machine_id,
            "suite": cell.suite,
            "role": cell.role,
            "block": block,
            "position": position,
            "device": plan.place.device,
            "protocol_version": PROTOCOL_VERSION,
        }
        entry = observer.entry(answer, identity, cell.axes)
        active.add(entry["trial"])
        if kept_in:  # before the journal has it: a kill between the two loses nothing of the archive
            snapshot.keep(active, entry, kept_in)
        active.journal.append(entry)
        active.screen.ended(entry["trial"])


def _run_trial(
    active: ActiveRun,
    cell: PlannedCell,
    block: int,
    template: Template,
    observer: Observer,
    meeting: Meeting | None,
) -> Answer:
    """Run a trial, in a memory group of its own and with another read-ahead of the disk where its cell says so."""
    limit_mib, ahead_kib = (int(cell.axes.get(axis, 0)) for axis in ("memory_limit_mib", "read_ahead_kib"))
    with contextlib.ExitStack() as stack:
        group = observer.group = stack.enter_context(memory_limit.group(limit_mib)) if limit_mib else None
        if ahead_kib:
            stack.enter_context(read_ahead.limit(active.local.options.data_root, ahead_kib))
        job = active.with_meeting(active.job("trial", cell, block), cell, meeting)
        job |= {"memory_group": str(group.entry) if group else None}
        answer = template.run(json.dumps(job), timeout_s=active.durations.timeout_s(cell, block), watch=observer)
        if group and answer.outcome != "ok" and group.killed():
            full = f"the kernel killed a process of the trial, whose memory is limited to {limit_mib} MiB"
            answer = replace(answer, outcome="oom", kind="MemoryLimit", message=full)
    return answer


def require_page_cache(answer: Answer, read_bytes: int | None, memory_used: float, cell: Cell) -> Answer:
    """Make a trial one that failed whose page cache was not cold, or not full, although its cell says so.

    Args:
        answer: of a trial, however it ended.
        read_bytes: what its processes caused to be read in its window; None where that cannot be observed.
        memory_used: share of its memory limit that was used when its window opened.
        cell: its axes.
    """
    state = cell.get("page_cache")
    if answer.outcome != "ok" or state not in ("cold", "full"):
        return answer
    problem: str | None
    if read_bytes is None:
        problem = "what a process reads from storage cannot be observed here (/proc/PID/io): leave it out"
    elif state == "cold":
        problem = _not_cold(answer.result["row"], read_bytes, cell)
    else:
        problem = _not_full(answer.result["row"], read_bytes, memory_used)
    if not problem:
        return answer
    kind, message = f"Not{state.capitalize()}", f"page_cache {state}: {problem}"
    return replace(answer, outcome="error", result={}, kind=kind, message=message)


def _not_cold(row: dict[str, Any], read_bytes: int, cell: Cell) -> str | None:
    """Why a window was not cold: too few bytes were read in it, or what was not read lies in memory."""
    count, batch, workers, ahead = (
        int(cell.get(axis, 0)) for axis in ("n_samples", "batch_size", "num_workers", "prefetch_factor")
    )
    needed = window.needed_bytes(row["stored_bytes"], row["samples"], count)
    if read_bytes < window.READ_LEAST * needed:
        return (
            f"{read_bytes:,} bytes were read from storage in the window, whose samples take {needed:,.0f} bytes there; "
            f"expected {window.READ_LEAST:.0%} of that or more. The rest had been read ahead: raise n_samples, or "
            "lower read_ahead_kib"
        )
    if cell["access"] != "random" or cell.get("memory_limit_mib"):
        return None
    consumed = window.consumed_samples(row["warmup_steps"] + row["steps"], batch, workers, ahead)
    unread = window.unread_in_memory(row["cached_after_pct"], consumed, count)
    if unread <= window.UNREAD_MOST:
        return None
    return (
        f"{read_bytes / needed:.2f} times the bytes of its samples were read from storage in the window, but "
        f"{unread:.0%} of the {count - consumed:,} samples that were not read lies in memory; expected "
        f"{window.UNREAD_MOST:.0%} at most. It was read with other samples: raise n_samples, or lower read_ahead_kib"
    )


def _not_full(row: dict[str, Any], read_bytes: int, memory_used: float) -> str | None:
    """Why memory was not full: there was room when the window opened, or nothing had to be read in it."""
    if memory_used < window.FULL:
        return (
            f"{memory_used:.0%} of memory_limit_mib was used when the window opened; expected {window.FULL:.0%} or "
            "more: raise n_samples, or lower memory_limit_mib"
        )
    if not read_bytes or row["cached_after_pct"] >= 100:
        return "nothing was read from storage in the window: raise n_samples, or lower memory_limit_mib"
    return None


class Observer:
    """Watches one trial from outside and turns its answer into a row: hand it to ``Template.run``, ask for the entry.

    Counters are read when the child says that its window opens and closes; telemetry in between, ten times a second;
    memory, which is costly, once and after the window, while the trial's workers still live. Who else computes on the
    GPU is asked before the child is there and when its window closes.
    """

    def __init__(
        self,
        host: HostProbe,
        device: gpu.GpuProbe | None,
        origin_ns: int,
        tick: Callable[[dict[str, Any]], None],
        *,
        growth: bool = False,
    ) -> None:
        self._host = host
        self._gpu = device
        self._origin_ns = origin_ns
        self._tick = tick
        self._started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._samples: list[dict[str, Any]] = []
        self._before: TrialCounters | None = None
        self._energy: tuple[float | None, int] = None, 0
        """What the GPU had used when the window opened, in joules, and when that was read."""
        self._computing = device.computing() if device else None
        self._columns: dict[str, Any] = {}
        self._growth = growth
        self._memory_used = 0.0
        self.group: memory_limit.Group | None = None
        """The group that limits the trial's memory."""
        self._read_ns = 0
        """When the workers' memory had been read at the first batch."""

    def __call__(self, event: str, pid: int, fields: dict[str, Any]) -> None:
        """Take note of an event of the child, or of a tick."""
        if event == "first_batch" and self._growth:
            self._columns["workers_uss_start_bytes"] = workers_uss(pid)
            self._read_ns = time.perf_counter_ns()
        elif event == "window_opens":
            self._memory_used = self.group.used() if self.group else 0.0
            self._before = self._host.counters(pid)
            if self._gpu:
                self._energy = self._gpu.energy_j(), time.perf_counter_ns()
        elif event == "window_closes" and self._before is not None:
            self._columns |= difference(self._before, self._host.counters(pid))
            self._close_gpu(pid)
        elif event == "result" and "fact" not in fields.get("row", {}):  # a check of a fact has no loop of its own
            self._columns |= memory(pid)
            if self._growth:
                self._columns["workers_uss_end_bytes"] = workers_uss(pid)
        elif event == "tick":
            sample = {"t_ns": time.perf_counter_ns(), **self._host.sample(pid)}
            if self._gpu:
                sample |= self._gpu.sample()
            self._samples.append(sample)
            self._tick(sample)

    def _close_gpu(self, pid: int) -> None:
        if not self._gpu:
            return
        before_j, read_ns = self._energy
        if before_j is not None and (now_j := self._gpu.energy_j()) is not None:
            self._columns |= {"gpu_energy_j": now_j - before_j, "gpu_energy_ns": time.perf_counter_ns() - read_ns}
        ours = {pid, *descendants(pid)}
        self._columns["gpu_foreign_processes"] = self._gpu.foreign_processes(self._computing, ours)

    def entry(self, answer: Answer, identity: dict[str, Any], cell: Cell) -> dict[str, Any]:
        """The trial for the journal: its row, ``steps`` (column to values) and ``telemetry`` (rows)."""
        answer = require_page_cache(answer, self._columns.get("read_bytes"), self._memory_used, cell)
        started, ended = answer.result.get("started_ns", 0), answer.result.get("ended_ns", 0)
        if started < self._read_ns:  # the warm-up was over before the memory was read: no number from inside a window
            self._columns["workers_uss_start_bytes"] = None
        if self._gpu and started:
            self._columns |= gpu.window(self._samples, started, ended)
        row = {
            **identity,
            **cell,
            "started_at": self._started_at,
            "outcome": answer.outcome,
            "error_kind": scrub(answer.kind, KIND_MOST) if answer.kind else None,
            "error_message": scrub(answer.message) if answer.message else None,
            **answer.result.get("row", {}),
            **self._columns,
            "trial_wall_ns": answer.over_ns - answer.ordered_ns,
            "left_processes": answer.left_processes,
            "left_shm_segments": answer.left_shm_segments,
        }
        if answer.first_batch_ns is not None:
            row["first_batch_ns"] = answer.first_batch_ns - answer.ordered_ns
        row["flags"] = noise.flags(row)
        telemetry = [
            {**sample, "t_ns": sample["t_ns"] - self._origin_ns, "in_window": started <= sample["t_ns"] <= ended}
            for sample in self._samples
        ]
        return {"trial": row, "steps": answer.result.get("steps", {}), "telemetry": telemetry}
