"""The claims of the sources: every one of the list is there once, and runs where it can."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from feedrate.plan import cells as expanding
from feedrate.plan import matrix, schedule, suite
from feedrate.plan.claim import terms
from feedrate.schema import plugins

LISTED: dict[str, tuple[str, str, str]] = {
    # id: suite, sources, what it needs
    "batch-size-epoch": ("loader", "IO", "cpu"),
    "batch-size-utilization": ("loader", "IO", "cuda"),
    "fetch-nonlinear": ("loader", "IO", "cpu"),
    "fewer-workers-small-batch": ("loader", "IO", "cpu"),
    "pageable-small-input": ("transfer", "IO", "cuda"),
    "pinned-large-input": ("transfer", "IO", "cuda"),
    "lmdb-over-png": ("storage", "IO", "cpu"),
    "lz4-in-lmdb": ("storage", "IO", "cpu"),
    "hdf5-parallel": ("storage", "IO", "cpu"),
    "record-formats": ("storage", "IO", "cpu"),
    "chunking-under-shuffle": ("storage", "BOT", "cpu"),
    "page-cache": ("storage", "BOT", "cpu"),
    "totensor-transpose": ("collate", "BOT", "cpu"),
    "excess-workers": ("workers", "BOT", "cpu"),
    "gil-threads": ("workers", "BOT", "cpu"),
    "utilization-is-time": ("loader", "BOT", "cuda"),
    "clean-termination": ("workers", "BOT", "cpu"),
    "pin-danger": ("transfer", "BOT", "cuda"),
    "workers-async": ("loader", "TIPS, AIDA, API", "cpu"),
    "pin-always": ("transfer", "TIPS", "cuda"),
    "cudnn-benchmark": ("training", "TIPS", "cuda"),
    "amp": ("training", "TIPS, BOT", "cpu"),
    "bias-before-norm": ("training", "TIPS", "cpu"),
    "grad-none": ("training", "TIPS", "cpu"),
    "debug-apis": ("training", "TIPS", "cpu"),
    "ddp-over-dp": ("parallel", "TIPS, BOT", "gpus"),
    "fuse-pointwise": ("training", "TIPS, BOT", "cpu"),
    "create-on-device": ("transfer", "TIPS", "cuda"),
    "larger-batch-tuning": ("training", "TIPS", "cuda"),
    "worker-memory": ("workers", "API", "cpu"),
    "pinned-staging": ("transfer", "API", "cuda"),
    "prefetch-factor": ("loader", "API", "cpu"),
    "nonblocking-needs-pin": ("transfer", "API", "cuda"),
    "nonblocking-sync-points": ("transfer", "API", "cuda"),
    "overlap-chunks": ("transfer", "API", "cuda"),
    "slow-dataset-workers": ("workers", "AIDA", "cpu"),
    "disk-cache": ("caching", "AIDA", "cpu"),
    "next-batch-transfer": ("transfer", "AIDA", "cuda"),
    "launch-blocking": ("transfer", "AIDA", "cuda"),
    "loss-item": ("training", "AIDA", "cpu"),
    "hdf5-in-memory": ("storage", "IO", "cpu"),
    "hdf5-swmr": ("storage", "IO", "cpu"),
    "png-burns-cpu": ("storage", "IO", "cpu"),
    "memory-by-batch": ("training", "IO", "cuda"),
    "storage-device": ("storage", "BOT", "disks"),
    "io-scheduler": ("storage", "BOT", "machines"),
    "pinned-is-gpu-memory": ("transfer", "TIPS", "cuda"),
    "fp16-loss-scaling": ("training", "BOT", "cuda"),
    "jit-script": ("training", "BOT, TIPS", "cpu"),
    "batchnorm-sync": ("training", "API", "cuda"),
    "d2h-sync": ("transfer", "API", "cuda"),
    "pin-custom-batch": ("transfer", "API", "cuda"),
    "next-epoch-copies": ("workers", "AIDA", "cpu"),
    "batch-cache": ("caching", "AIDA", "cpu"),
    "persistent-workers": ("workers", "field", "cpu"),
    "channels-last": ("training", "field", "cpu"),
    "lmdb-readahead": ("storage", "field", "cpu"),
    # Not in the list, whose ddp-over-dp needs two GPUs: what gloo can show of it without any.
    "ddp-scaling": ("parallel", "field", "cpu"),
}
ALL = suite.claims()


def test_every_claim_of_the_list_is_there_once() -> None:
    """With its sources, in its suite, and needing what the list says."""
    found = {name: (where, ", ".join(claim.sources), claim.needs) for name, (where, claim) in ALL.items()}
    assert found == LISTED
    assert len(LISTED) == 58


@cache
def expanded(device: str, only: str = suite.CLAIMS) -> schedule.Plan:
    """A suite as it is planned on a machine that has every library, one GPU at most, and no photographs."""
    whole = matrix.load(plugins.ROOT / "matrix.yaml", only=only, device=device)
    return expanding.expand(whole, schedule.Place(device, Path("no data here"), gpus=2))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_claim_is_asked_or_its_reason_is_known(device: str) -> None:
    """On either device; what a CPU can tell is asked there, and on CUDA what needs one device."""
    found = expanded(device)
    asked = {claim.id for claim in found.claims}
    assert asked | set(found.untestable) == set(LISTED)
    assert not asked & set(found.untestable)
    assert all(found.untestable.values())
    needs = ("cpu",) if device == "cpu" else ("cpu", "cuda")
    able = {name for name, (_, _, need) in LISTED.items() if need in needs}
    assert asked <= able | {"ddp-over-dp"}
    assert able - asked <= {"jit-script", "fuse-pointwise", "ddp-scaling"}, (
        "what may lack a library, or a second device"
    )


def test_a_block_is_short() -> None:
    """Half an hour of two cores: few cells, shared between claims, nearly all of them done in 1.4 s."""
    found = expanded("cpu")
    assert len(found.cells) <= 145
    assert not found.ceilings
    assert found.block_s <= 205
    slow = [cell for cell in found.cells if found.cell_s(cell) > 1.4]
    assert len(slow) <= 12


def test_a_gpu_has_room_for_its_questions() -> None:
    """A CUDA device adds 60 cells at most, those taken off that only a CPU has."""
    assert len(expanded("cuda").cells) <= len(expanded("cpu").cells) + 60


@pytest.mark.parametrize("name", sorted({where for where, _, _ in LISTED.values()} - {"loader", "storage"}))
def test_a_suite_has_the_cells_of_its_claims(name: str) -> None:
    """Every suite of claims asks all of its own by itself, as the suite of all claims does."""
    found = expanded("cuda", name)
    everywhere = expanded("cuda")
    own = {claim for claim, (where, _, _) in LISTED.items() if where == name}
    assert {claim.id for claim in found.claims} | set(found.untestable) == own
    assert {claim.id for claim in found.claims} == own & {claim.id for claim in everywhere.claims}


def test_no_claim_asks_twice() -> None:
    """Two claims never have the same effect: they would be one, and count twice among the verdicts."""
    seen: dict[Any, str] = {}
    for name, (_, claim) in ALL.items():
        if (effect := claim.on("cuda").effect) and claim.needs in ("cpu", "cuda", "gpus"):
            key = (effect.metric, frozenset((term.cell_id, round(term.weight, 6)) for term in terms(effect, "cuda")))
            assert key not in seen, f"{name} and {seen.get(key)}"
            seen[key] = name
