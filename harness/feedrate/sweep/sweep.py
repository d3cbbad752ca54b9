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
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from feedrate.machine import quiet
from feedrate.machine.identity import scrub
from feedrate.plan.request import Here
from feedrate.plan.schedule import PlannedCell
from feedrate.schema import words
from feedrate.schema.columns import PROTOCOL_VERSION
from feedrate.schema.errors import EnvironmentFault, FeedrateError, InputError
from feedrate.store import runs
from feedrate.store.manifest import Dataset
from feedrate.sweep.launcher import Answer, Template
from feedrate.sweep.observer import Observer, rows
from feedrate.sweep.run import Running
from feedrate.sweep.screen import Screen

PREPARE_TIMEOUT_S = 24 * 3600.0
_SKIPPED = re.compile(r"^skipped .*: ")
_DISAGREE = {
    "cuda": "the driver (NVML) says cuda",
    "cpu": "NVML could not be asked, or names no GPU that CUDA_VISIBLE_DEVICES lets through, so the plan says cpu",
}
"""Planned device → what the plan goes by, where PyTorch finds another."""
_AGREE = {
    "cuda": "Install a PyTorch built for this driver",
    "cpu": "Install nvidia-ml-py and see that the driver's libnvidia-ml.so.1 can be loaded (a container needs the "
    "driver's capability utility)",
}
"""Planned device → what to do then."""
_ERRORS: dict[str, type[FeedrateError]] = {"InputError": InputError, "EnvironmentFault": EnvironmentFault}


def run(here: Here, screen: Screen) -> runs.StoredRun | None:
    """Measure a plan.

    Args:
        here: machine and plan.
        screen: where progress goes.

    Returns:
        The run as stored; None when it was interrupted before any trial had ended.

    Raises:
        FeedrateError: the sweep cannot begin or go on; what was measured stays in the journal.
    """
    has_room(here)
    with runs.machine_lock(here.options.results, here.machine.machine_id) as folder:
        sweep = _open(here, folder, screen)
        try:
            _look_before(sweep)
            reason = _measure(sweep)
            with contextlib.suppress(KeyboardInterrupt):
                sweep.noise["after"] = quiet.look(sweep.host, sweep.gpu).numbers
        except KeyboardInterrupt:
            reason = "interrupted"
        except BaseException:
            sweep.close()
            if not sweep.entries:
                runs.discard(sweep.folder)
            raise
        return _finish(sweep, reason)


def has_room(here: Here) -> None:
    """See that the budget has room for a block: whoever does something long before a sweep asks this first.

    Args:
        here: machine and plan.

    Raises:
        InputError: it has not, and no single block was asked for all the same.
    """
    if here.plan.blocks == 0 and not here.options.yes:
        raise InputError(
            f"BUDGET: {words.show(here.plan.matrix.budget_s or 0)} is less than one block, which takes about "
            f"{words.show(here.plan.block_s)}; expected room for one at least. Raise BUDGET, leave values out "
            "(make plan says which), or say YES=1 to run one block all the same"
        )


def _look_before(sweep: Running) -> None:
    """See whether anything else uses the machine, wait for it if asked to, and say so at once."""
    if sweep.here.options.wait_quiet:
        limit_s = words.parse(sweep.here.options.wait_quiet, "WAIT_QUIET")
        sweep.noise["before"] = quiet.wait(sweep.host, sweep.gpu, limit_s, sweep.screen.say).numbers
        return
    seen = quiet.look(sweep.host, sweep.gpu)
    sweep.noise["before"] = seen.numbers
    if not seen.quiet:
        sweep.screen.say(
            f"The machine is busy: {'; '.join(seen.reasons)}. Numbers will scatter and the run's grade will say so "
            "(WAIT_QUIET=10m waits for a quiet machine)."
        )


def _finish(sweep: Running, reason: str) -> runs.StoredRun | None:
    """Turn the journal into parquet; a run without a trial leaves nothing."""
    sweep.close()
    if not sweep.entries:
        runs.discard(sweep.folder)
        return None
    manifest = sweep.manifest(reason)
    runs.write_run(sweep.folder, manifest, map(rows, runs.journal_chunks(sweep.folder)))
    return runs.StoredRun(sweep.folder, manifest)


def _open(here: Here, folder: Path, screen: Screen) -> Running:
    """Resume the unfinished run of the same plan, or begin a new one."""
    key = here.key()
    for path, begun in runs.unfinished(folder):
        if begun["key"] != key:
            screen.say(f"Note: {path} holds an unfinished run of another plan; the same command as then resumes it.")
            continue
        journal = runs.Journal(path)
        run = Running(here, path, path.name, begun["seed"], begun["started_at"], journal, screen)
        for entry in journal.entries():
            run.take(entry)
        if not here.options.fresh:
            screen.say(f"resuming run {path.name}: {len(run.entries)} trials are there already (FRESH=1 starts anew)")
            return run
        _finish(run, "interrupted")
        screen.say(f"Run {path.name} is closed with the {len(run.entries)} trials that it had.")
    now = datetime.now(UTC)
    run_id = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    seed = here.options.seed if here.options.seed is not None else secrets.randbits(32)
    started_at = now.isoformat(timespec="seconds")
    path = runs.begin(folder, run_id, {"key": key, "seed": seed, "started_at": started_at})
    return Running(here, path, run_id, seed, started_at, runs.Journal(path), screen)


def _measure(sweep: Running) -> str:
    """Prepare data, then run blocks until every contrast is narrow enough and every claim certain.

    Budget or protocol may end them before.
    """
    budget = sweep.here.plan.matrix.budget_s
    block = first = max((e["trial"]["block"] for e in sweep.entries), default=0)
    while order := sweep.order(block):
        if block > first and budget and sweep.elapsed_s() + sweep.block_s(order) > budget:
            return "budget"
        if block == first:
            sweep.screen.say("Starting: importing torch takes a few seconds.")
        with Template() as template:
            if block == first:
                _confirm_device(sweep, template)
                _prepare(sweep, template)
                sweep.begin_blocks()
            _block(sweep, block, order, template)
        block += 1
    return "budget" if sweep.live(block) else "target" if sweep.answered(block) else "blocks"


def _confirm_device(sweep: Running, template: Template) -> None:
    """The child, which may ask CUDA, must agree with the plan, which asked NVML."""
    planned = sweep.here.plan.place.device
    answer = _ask(template, {"kind": "facts"})
    sweep.runtime = {name: answer.result[name] for name in ("cuda", "cudnn", "torch_threads")}
    if sweep.gpu:
        sweep.runtime |= {name: value for name, value in sweep.gpu.facts().items() if name != "memory_bytes"}
    found = answer.result["device"]
    if found != planned:
        raise EnvironmentFault(
            f"{_DISAGREE[planned]}, PyTorch says {found}; expected them to agree. {_AGREE[planned]}, or set "
            "CUDA_VISIBLE_DEVICES= to measure the CPU"
        )


def _ask(template: Template, job: dict[str, Any], watch: Any = lambda *_: None, timeout_s: float = 120.0) -> Answer:
    """Run a job that must not fail."""
    answer = template.run(json.dumps(job), timeout_s=timeout_s, watch=watch)
    if answer.outcome != "ok":
        raise _ERRORS.get(answer.kind or "", FeedrateError)(answer.message or f"{job['kind']}: {answer.outcome}")
    return answer


def _prepare(sweep: Running, template: Template) -> None:
    """Pack every set that a cell reads, once."""
    readers = [cell for cell in sweep.here.plan.everything if cell.axes["mode"] != "check"]
    wanted = {sweep.set_of(cell): cell for cell in reversed(readers)}
    said: set[str] = set()
    for key, cell in reversed(wanted.items()):
        axes = dict(key)
        name = f"{axes['workload']} {axes['patch_size']} px {axes['storage_format']}"

        def watch(event: str, _: int, fields: dict[str, Any], name: str = name) -> None:
            if event == "progress":
                sweep.screen.preparing(name, fields["done"], fields["total"])

        answer = _ask(template, sweep.job("prepare", cell), watch, PREPARE_TIMEOUT_S)
        sweep.packed[key] = answer.result["packed"]
        _same_data(sweep, key, answer.result["data_hash"])
        fields = {field: answer.result[field] for field in Dataset.model_fields}
        for note in fields["notes"]:
            if note not in said:
                sweep.screen.say(f"{axes['workload']}: {note}")
            said.add(note)
        sweep.datasets.append(Dataset(**fields | {"notes": without_names(fields["notes"])}))


def _same_data(sweep: Running, key: tuple[tuple[str, Any], ...], data_hash: str) -> None:
    """A resumed run must go on with the pixels that it began with."""
    readers = {cell.cell_id for cell in sweep.here.plan.everything if sweep.set_of(cell) == key}
    before = {e["trial"].get("data_hash") for e in sweep.entries if e["trial"]["cell_id"] in readers}
    if before - {None, data_hash}:
        raise InputError(
            f"run {sweep.run_id}: the data changed since it began ({dict(key)['workload']}); expected the same samples "
            "to the end. FRESH=1 closes that run as far as it came and begins anew"
        )


def without_names(notes: list[str]) -> tuple[str, ...]:
    """Notes as they may be published: how many files were skipped and why, not what a user's photographs are called."""
    counts = Counter(_SKIPPED.sub("skipped a file: ", note) for note in notes)
    return tuple(f"{scrub(note)} (× {count})" if count > 1 else scrub(note) for note, count in counts.items())


def _block(sweep: Running, block: int, order: list[PlannedCell], template: Template) -> None:
    """Run every trial of the block that the journal does not hold yet."""
    done = {e["trial"]["position"] for e in sweep.entries if e["trial"]["block"] == block}
    forecast = sweep.forecast(block, order)
    for place, cell in enumerate(order):
        if place in done:
            continue
        sweep.screen.trial(cell, sweep.progress(block, place, order, forecast))
        entry = _trial(sweep, template, block, place, cell)
        sweep.journal.append(entry)
        sweep.take(entry)
        sweep.screen.ended(entry)


def _trial(sweep: Running, template: Template, block: int, place: int, cell: PlannedCell) -> dict[str, Any]:
    growth = cell.axes.get("index_kind", "none") != "none"
    observer = Observer(sweep.host, sweep.gpu, sweep.origin_ns, sweep.screen.tick, growth=growth)
    protocol = sweep.here.plan.matrix.protocol
    answer = template.run(json.dumps(sweep.job("trial", cell, block)), timeout_s=protocol.timeout_s, watch=observer)
    identity = {
        "run_id": sweep.run_id,
        "trial_id": f"{sweep.run_id}-{block:03d}-{place:04d}",
        "cell_id": cell.cell_id,
        "machine_id": sweep.here.machine.machine_id,
        "suite": cell.suite,
        "role": cell.role,
        "block": block,
        "position": place,
        "device": sweep.here.plan.place.device,
        "protocol_version": PROTOCOL_VERSION,
    }
    return observer.entry(answer, identity, cell.axes)
