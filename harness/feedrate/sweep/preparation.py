"""What comes before the first block: the device is the one that was planned, and every set is packed."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from feedrate.machine.identity import environment
from feedrate.schema import words
from feedrate.schema.errors import EnvironmentFault, FeedrateError, InputError, TrialError
from feedrate.schema.redaction import scrub
from feedrate.store.manifest import Dataset
from feedrate.sweep.launcher import LOSSES, Answer, Templates
from feedrate.sweep.run import ActiveRun

PREPARE_TIMEOUT_S = 24 * 3600.0
_SKIPPED = re.compile(r"^skipped .*: ")
_ERRORS: dict[str | None, type[FeedrateError]] = {"InputError": InputError, "EnvironmentFault": EnvironmentFault}


def confirm_device(active: ActiveRun, templates: Templates) -> None:
    """The child, which may ask CUDA, must agree with the plan, which asked NVML."""
    facts = _ask(templates, {"kind": "facts"}).result
    planned, device = active.local.plan.host.device, facts["device"]
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


def pack(active: ActiveRun, templates: Templates) -> None:
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

        try:
            answer = _ask(templates, active.job("prepare", cell), watch, PREPARE_TIMEOUT_S).result
        except (InputError, EnvironmentFault, TrialError):
            raise
        except FeedrateError as error:  # other sets may do better
            active.unpacked[key] = f"packing {name}: {error}"
            active.screen.say(f"{active.unpacked[key]}. What reads this set is left out.")
            continue
        active.packed[key] = answer["packed"]
        _require_same_data(active, key, answer["data_hash"])
        for note in answer["notes"]:
            if note not in printed:
                active.screen.say(f"{axes['workload']}: {note}")
            printed.add(note)
        fields = {field: answer[field] for field in Dataset.model_fields}
        active.datasets.append(Dataset(**fields | {"notes": without_names(answer["notes"])}))

    if not active.packed and active.unpacked:
        raise FeedrateError(next(iter(active.unpacked.values())))


def _require_same_data(active: ActiveRun, key: tuple[tuple[str, Any], ...], data_hash: str) -> None:
    """A resumed run must go on with the pixels that it began with."""
    readers = {cell.cell_id for cell in active.local.plan.all_cells if active.data_key(cell) == key}
    before = {trial.get("data_hash") for trial in active.blocks.trials if trial["cell_id"] in readers}
    if before - {None, data_hash}:
        raise InputError(
            f"run {active.run_id}: the data changed since it began ({dict(key)['workload']}); expected the same "
            "samples to the end. --fresh closes that run as far as it came and begins anew"
        )


def without_names(notes: list[str]) -> tuple[str, ...]:
    """Notes as they may be published: how many files were skipped and why, not what a user's photographs are called."""
    counts = Counter(_SKIPPED.sub("skipped a file: ", note) for note in notes)
    return tuple(f"{scrub(note)} (× {count})" if count > 1 else scrub(note) for note, count in counts.items())


def _ask(templates: Templates, job: dict[str, Any], watch: Any = lambda *_: None, timeout_s: float = 120.0) -> Answer:
    """Run a job that must not fail; one whose process was killed has as many further turns as a lost template has."""
    for _ in range(1 + LOSSES):
        answer = templates.run(json.dumps(job), timeout_s=timeout_s, watch=watch)
        if answer.outcome != "crash":
            break
    if answer.outcome != "ok":
        raise _ERRORS.get(answer.kind, FeedrateError)(answer.message or f"{job['kind']}: {answer.outcome}")
    return answer
