"""A sweep: plan → data → blocks → journal → parquet.

Every cell runs once a block, each block in a fresh random order that the run's seed repeats. The parent holds no torch;
it orders, watches and writes. Whatever happens, trials that ended are kept: a run that was killed resumes, one that was
interrupted is written as far as it came.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from feedrate.machine import limits, quiet, read_ahead
from feedrate.plan.request import LocalPlan
from feedrate.plan.schedule import PlannedCell
from feedrate.schema import words
from feedrate.schema.columns import PROTOCOL_VERSION
from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.store import archive, remote, runs
from feedrate.store.manifest import Dataset
from feedrate.sweep import preparation, record
from feedrate.sweep.launcher import Answer, Template, TemplateLost, Templates
from feedrate.sweep.observer import Observer
from feedrate.sweep.run import ActiveRun
from feedrate.sweep.screen import Screen
from feedrate.trial.rendezvous import Meeting

SERVES = 16
"""Trials of a tuned sweep, whose blocks are short, after which it starts another template."""


def run(local: LocalPlan, screen: Screen) -> runs.StoredRun | None:
    """Measure a plan, and show how far it is.

    Where an archive is asked for it holds the run as it stands after every trial: a machine that is taken away costs
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
            reason = _measure(active)
            with contextlib.suppress(KeyboardInterrupt):
                active.noise["after"] = quiet.look(active.host, active.gpu).numbers
        except KeyboardInterrupt:
            reason = "interrupted"
        except BaseException:
            active.close()
            if not active.blocks.trials:
                runs.discard(active.folder)
            raise
        stored = _finish(active, reason)
        if stored and local.options.archive:
            archive.pack_run(local.options.archive, stored.folder)
        return _hand_in(stored, local, screen)


def require_a_block(local: LocalPlan) -> None:
    """Refuse a budget without room for a block, unless ``--yes`` was given; call it before anything that takes long."""
    if local.plan.blocks == 0 and not (local.options.yes or local.options.tune):
        raise InputError(
            f"--budget: {words.show(local.plan.matrix.budget_s or 0)} is less than one repetition, which takes about "
            f"{words.show(local.plan.block_s)}; expected room for one at least. Raise it, leave values out "
            "(feedrate plan says which), or say --yes to run one repetition all the same"
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
            count = len(active.blocks.trials)
            screen.say(f"resuming run {path.name}: {count} measurements are there already (--fresh starts anew)")
            return active
        active.datasets = [Dataset(**fields) for fields in begun.get("datasets", ())]
        active.runtime = begun.get("runtime", {})
        _finish(active, "interrupted")
        screen.say(f"Run {path.name} is closed with the {len(active.blocks.trials)} measurements that it had.")
    now = datetime.now(UTC)
    seed = local.options.seed if local.options.seed is not None else secrets.randbits(32)
    started_at = now.isoformat(timespec="seconds")
    path = runs.begin(folder, runs.new_id(now), {"key": key, "seed": seed, "started_at": started_at})
    return ActiveRun(local, path, seed, started_at, screen)


def _look_before(active: ActiveRun) -> None:
    """Record what else uses the machine; wait for quiet if asked to, and warn at once."""
    options = active.local.options
    if options.wait_quiet:
        limit_s = words.parse(options.wait_quiet, "--wait-quiet")
        active.noise["before"] = quiet.wait(active.host, active.gpu, limit_s, active.screen.say).numbers
        return
    look = quiet.look(active.host, active.gpu)
    active.noise["before"] = look.numbers
    if not look.quiet:
        active.screen.say(
            f"The machine is busy: {'; '.join(look.reasons)}. Numbers will scatter and the run's grade will say so "
            "(--wait-quiet 10m waits for a quiet machine)."
        )


def _finish(active: ActiveRun, reason: str) -> runs.StoredRun | None:
    """Turn the journal into parquet; a run without a trial leaves nothing."""
    active.close()
    if not active.blocks.trials:
        runs.discard(active.folder)
        return None
    return runs.write_run(
        active.folder, record.assemble(active, reason), map(record.rows, runs.journal_chunks(active.folder))
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


def _measure(active: ActiveRun) -> str:
    """Prepare data, then run blocks; the reason why they end."""
    budget = active.local.plan.matrix.budget_s
    block = first = max((trial["block"] for trial in active.blocks.trials), default=0)
    served = 0
    with contextlib.closing(Templates(active.screen.say)) as templates:
        while order := active.blocks.order(block):
            if active.meeting:
                if not active.meeting.gate(block, plan=active.plan_digest()):
                    return "budget"
            elif block > first and budget and active.elapsed_s() + active.block_s(block, order) > budget:
                return "budget"
            if block == first:
                active.screen.say("Starting: importing torch takes a few seconds.")
            if not active.blocks.searches or served >= SERVES:
                templates.close()
                served = 0
            if block == first:
                preparation.confirm_device(active, templates)
                preparation.pack(active, templates)
                runs.prepared(active.folder, active.datasets, active.runtime)
                active.begin_blocks()
            _run_block(active, block, order, templates)
            block, served = block + 1, served + len(order)
    return "budget" if active.blocks.live(block) else "target" if active.blocks.answered(block) else "blocks"


def _run_block(active: ActiveRun, block: int, order: list[PlannedCell], templates: Templates) -> None:
    """Run every trial of the block that the journal does not hold yet."""
    plan, machine_id = active.local.plan, active.local.machine.machine_id
    done = {trial["position"] for trial in active.blocks.trials if trial["block"] == block}
    following = active.following(block, order)
    for position, cell in enumerate(order):
        if position in done:
            continue
        meeting = active.meeting and active.meeting.gate(block, position)
        if active.meeting and (not meeting or meeting.turn >= int(cell.axes.get("nodes", 1))):
            continue
        active.screen.trial(cell, active.progress(block, position, order, following))
        observer, answer = _watched(active, cell, block, templates, meeting)
        identity = {
            "run_id": active.run_id,
            "trial_id": f"{active.run_id}-{block:03d}-{position:04d}",
            "cell_id": cell.cell_id,
            "machine_id": machine_id,
            "suite": cell.suite,
            "role": cell.role,
            "block": block,
            "position": position,
            "device": plan.host.device,
            "protocol_version": PROTOCOL_VERSION,
        }
        entry = observer.entry(answer, identity, cell.axes)
        active.add(entry["trial"])
        try:
            # Before the journal has it: a kill between the two loses nothing of the archive.
            if kept_in := active.local.options.archive:
                record.keep(active, entry, kept_in)
        finally:
            active.journal.append(entry)
        active.screen.ended(entry["trial"])


def _watched(
    active: ActiveRun, cell: PlannedCell, block: int, templates: Templates, meeting: Meeting | None
) -> tuple[Observer, Answer]:
    """Run a trial under an observer, once more where the sweep was stopped meanwhile, or its template was lost.

    Neither is a fault of its cell's. Other nodes do not wait for a trial that they share: it is one that failed.
    """
    growth = cell.axes.get("index_kind", "none") != "none"
    watch = partial(Observer, active.host, active.gpu, active.origin_ns, active.screen.tick, growth=growth)
    if reason := active.unpacked.get(active.data_key(cell)):
        return watch(active.now()), _failed("NotPacked", reason)

    def attempt(template: Template) -> tuple[Observer, Answer]:
        observer = watch(active.now())
        return observer, _run_trial(active, cell, block, template, observer, meeting)

    try:
        observer, answer = templates.attempt(attempt, again=meeting is None)
        active.still_s += observer.idle_s
        if observer.still_s and meeting is None:
            active.screen.say(f"Everything stood still for {observer.still_s:.0f} s: the setting is measured again.")
            observer, answer = templates.attempt(attempt)
        return observer, answer
    except TemplateLost as lost:
        return watch(active.now()), _failed("TemplateLost", str(lost))


def _failed(kind: str, message: str) -> Answer:
    now = time.perf_counter_ns()
    return Answer("error", kind=kind, message=message, ordered_ns=now, over_ns=now)


def _run_trial(
    active: ActiveRun, cell: PlannedCell, block: int, template: Template, observer: Observer, meeting: Meeting | None
) -> Answer:
    """Run a trial, in a control group of its own and with another read-ahead of the disk where its cell says so."""
    axes = ("memory_limit_mib", "disk_mib_s", "read_ahead_kib")
    limit_mib, disk_mib_s, ahead_kib = (int(cell.axes.get(axis, 0)) for axis in axes)
    data_root = active.local.options.data_root
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(limits.group(limit_mib, disk_mib_s, data_root))
        observer.group = group if limit_mib else None
        if ahead_kib:
            stack.enter_context(read_ahead.limit(data_root, ahead_kib))
        job = active.job("trial", cell, block, meeting) | {"groups": group.entries}
        answer = template.run(json.dumps(job), timeout_s=active.blocks.timeout_s(cell, block), watch=observer)
        if limit_mib and answer.outcome != "ok" and group.killed():
            full = f"the kernel killed a process of the trial, whose memory is limited to {limit_mib} MiB"
            answer = replace(answer, outcome="oom", kind="MemoryLimit", message=full)
    return answer
