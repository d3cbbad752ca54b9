"""The claims: every one of the list is there, runs where it can, and says what its records say.

For each the verdict is put to the test: the same cells, with an effect planted as the claim says it, the other way
round, not at all, and drowned in scatter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness import expand as expanding
from harness import matrix, plan, registry, suite
from harness.analysis.claimed import NOT_TESTABLE, judged
from harness.axes import BY_NAME, Value, cell_id
from harness.claim import Claim, Effect, cells_of, terms
from harness.metrics import METRICS
from harness.records import TRIALS

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
SAID: dict[str, str] = {
    # A → B: what the claim says of B; or along which axis what rises or falls; or the check that decides
    "disk-cache": "cache=none → cache=sample: more throughput",
    "batch-cache": "cache=sample → cache=batch: more throughput",
    "totensor-transpose": "collate=totensor → collate=fast, normalize_on=device: more throughput",
    "batch-size-epoch": "batch_size=8 → batch_size=128: more throughput",
    "batch-size-utilization": "batch_size=8 → batch_size=128: more gpu_util",
    "fetch-nonlinear": "batch_size: data_wait falls",
    "fewer-workers-small-batch": "num_workers=0 → num_workers=2: more throughput",
    "workers-async": "num_workers=0 → num_workers=2: more throughput",
    "prefetch-factor": "prefetch_factor=1 → prefetch_factor=8: more throughput",
    "utilization-is-time": "num_workers: gpu_util rises",
    "ddp-over-dp": "parallel=dp, world_size=2 → parallel=ddp, world_size=2: more throughput",
    "ddp-scaling": "parallel=ddp, world_size=1 → parallel=ddp, world_size=2: more throughput",
    "lmdb-over-png": "storage_format=png → storage_format=lmdb: more throughput",
    "lz4-in-lmdb": "storage_format=lmdb → storage_format=lmdb_lz4: more throughput",
    "hdf5-parallel": "num_workers: throughput falls",
    "record-formats": "storage_format=png → storage_format=tfrecord: more throughput",
    "chunking-under-shuffle": "access=sequential → access=random: less throughput",
    "page-cache": "page_cache=cold → page_cache=warm: more throughput",
    "hdf5-in-memory": "check=hdf5_memory",
    "hdf5-swmr": "swmr=False → swmr=True: more throughput",
    "png-burns-cpu": "storage_format=lmdb → storage_format=png: more workers_cpu",
    "storage-device": "page_cache=warm → page_cache=cold: less throughput",
    "io-scheduler": "page_cache=warm → page_cache=cold: less throughput",
    "lmdb-readahead": "readahead=True → readahead=False: more throughput",
    "cudnn-benchmark": "cudnn_benchmark=False → cudnn_benchmark=True: more throughput",
    "amp": "amp=off → amp=bf16: more throughput",
    "bias-before-norm": "conv_bias=True → conv_bias=False: more throughput",
    "grad-none": "zero_grad=memset → zero_grad=none: more throughput",
    "debug-apis": "debug=off → debug=anomaly: less throughput",
    "fuse-pointwise": "fusion=eager → fusion=compile: more throughput",
    "jit-script": "fusion=eager → fusion=script: more throughput",
    "larger-batch-tuning": "batch_size: device_backward falls",
    "loss-item": "sync_every_step=False → sync_every_step=True: less throughput",
    "memory-by-batch": "batch_size=8 → batch_size=128: more gpu_mem_used",
    "fp16-loss-scaling": "grad_scaler=False → grad_scaler=True: less throughput",
    "batchnorm-sync": "sync_every_step=True → sync_every_step=False: less host_ahead",
    "channels-last": "memory_format=contiguous → memory_format=channels_last: more throughput",
    "pageable-small-input": "pin_memory=False → pin_memory=True: less throughput",
    "pinned-large-input": "pin_memory=False → pin_memory=True: more throughput",
    "pin-danger": "pin_memory=False → pin_memory=True: less mem_available",
    "pin-always": "pin_memory=False → pin_memory=True: more throughput",
    "create-on-device": "create_on=host → create_on=device: more throughput",
    "pinned-staging": "pin_memory=False → pin_memory=True: more copy_rate",
    "nonblocking-needs-pin": "non_blocking=False → non_blocking=True: more throughput",
    "nonblocking-sync-points": "non_blocking=False → non_blocking=True: more throughput",
    "overlap-chunks": "prefetcher=none → prefetcher=stream: less exposed_copy",
    "next-batch-transfer": "prefetcher=none → prefetcher=next_batch: more throughput",
    "launch-blocking": "launch_blocking=False → launch_blocking=True: less throughput",
    "pinned-is-gpu-memory": "pin_memory=False → pin_memory=True: more gpu_mem_used",
    "d2h-sync": "d2h=none → d2h=pageable: less throughput",
    "pin-custom-batch": "check=pin_custom",
    "excess-workers": "num_workers=2 → num_workers=8: less throughput",
    "gil-threads": "worker_kind=process → worker_kind=thread: less throughput",
    "clean-termination": "check=termination, ends_by=sigkill, guarded=False",
    "worker-memory": "index_kind=list → index_kind=numpy: less workers_memory",
    "slow-dataset-workers": "num_workers: throughput rises",
    "next-epoch-copies": "check=next_epoch, persistent_workers=True",
    "persistent-workers": "persistent_workers=False → persistent_workers=True: more throughput",
}
RATHER: dict[str, str] = {
    # Interactions: where B is said to do more (or less) than A rather than where
    "fewer-workers-small-batch": "batch_size=128 rather than batch_size=8",
    "prefetch-factor": "read_shape=heavy_tailed rather than read_shape=constant",
    "hdf5-parallel": "storage_format=hdf5 rather than storage_format=lmdb",
    "chunking-under-shuffle": "storage_format=hdf5_chunked rather than storage_format=png",
    "nonblocking-needs-pin": "pin_memory=True rather than pin_memory=False",
    "nonblocking-sync-points": "sync_every_step=False rather than sync_every_step=True",
    "slow-dataset-workers": "read_us=2000, decode_us=0 rather than read_us=0, decode_us=2000",
}
ALL = suite.claims()
EFFECTS = {
    f"{name} on {device}": (claim, device)
    for name, (_, claim) in ALL.items()
    for device in (("cpu", "cuda") if claim.on_cuda else ("cpu",) if claim.needs == "cpu" else ("cuda",))
    if claim.effect and claim.needs in ("cpu", "cuda", "gpus")
}
"""Claims where they can be tested, each with a device; those that have an effect of their own on CUDA stand twice."""
FACTS = [name for name, (_, claim) in ALL.items() if claim.facts]
BLOCKS = 12
PLANTED = 1.2
"""A ratio that no verdict leaves open."""
SCATTER = (0.01, -0.01)
"""Of the logs of B, one block and the next; it averages out over an even number of blocks."""


def test_every_claim_of_the_list_is_there_once() -> None:
    """With its sources, in its suite, and needing what the list says."""
    found = {name: (where, ", ".join(claim.sources), claim.needs) for name, (where, claim) in ALL.items()}
    assert found == LISTED
    assert len(LISTED) == 58


def said(claim: Claim) -> str:
    """The sides of a claim, and what it says of them."""
    effect = claim.effect
    if effect is None:
        return shown(claim.facts[0])
    if effect.along:
        return f"{effect.along}: {effect.metric} {'rises' if effect.says == 'more' else 'falls'}"
    (_, a), (_, b) = effect.steps
    return f"{shown(a)} → {shown(b)}: {effect.says} {effect.metric}"


def deciding() -> list[tuple[str, Effect]]:
    """The effects that decide claims."""
    return [(name, claim.effect) for name, (_, claim) in ALL.items() if claim.effect]


def apart(case: Mapping[str, Value], held: Mapping[str, Value]) -> str:
    """What tells a case from one that it is held against."""
    both = [{name: values.get(name, BY_NAME[name].default) for name in {**case, **held}} for values in (case, held)]
    names = [name for name in both[0] if both[0][name] != both[1][name]]
    return " rather than ".join(shown({name: values[name] for name in names}) for values in both)


def shown(values: Mapping[str, Value]) -> str:
    """Values as a reader writes them."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def test_every_claim_compares_what_the_list_compares() -> None:
    """Its A and its B, which way it goes, and in what; swapped sides would turn a verdict round."""
    assert {name: said(claim) for name, (_, claim) in ALL.items()} == SAID
    assert {name: apart(effect.cases[0], effect.against[0]) for name, effect in deciding() if effect.against} == RATHER


@pytest.mark.parametrize("name", ALL)
def test_a_claim_says_what_it_means(name: str) -> None:
    """One sentence of claim; a design of several, which says what its two sides are; whole sentences, no leftovers."""
    claim = ALL[name][1]
    assert claim.id == name
    assert claim.says.endswith(".")
    assert claim.says.count(". ") == 0
    assert claim.design.endswith(".")
    assert 2 <= claim.design.count(". ") + 1 <= 6
    if claim.effect:
        assert "interaction" in claim.design or claim.effect.along or "B " in claim.design
    assert not claim.figures or claim.figures.endswith(".")
    for text in (claim.says, claim.design, claim.figures):
        assert "  " not in text
        assert text == text.strip()
    labels = [aside.label for aside in claim.asides]
    assert len(set(labels)) == len(labels)


def test_sources_that_contradict_each_other_stand_side_by_side() -> None:
    """Each of them tells of the other; the source that contradicts itself is quoted with both of its figures."""
    for name in ("pin-always", "pin-danger", "pinned-is-gpu-memory"):
        assert {"BOT", "TIPS"} <= set(ALL[name][1].figures.replace(",", " ").split())
        assert "contradict" in ALL[name][1].figures
    assert "pinned-large-input" in ALL["pageable-small-input"][1].design
    assert "pageable-small-input" in ALL["pinned-large-input"][1].design
    for number in ("16", "3", "20", "4"):
        assert number in ALL["batch-size-epoch"][1].figures.replace(",", " ").split()


@cache
def expanded(device: str, only: str = suite.CLAIMS) -> plan.Plan:
    """A suite as it is planned on a machine that has every library, one GPU at most, and no photographs."""
    whole = matrix.load(registry.ROOT / "matrix.yaml", only=only, device=device)
    return expanding.expand(whole, plan.Place(device, Path("no data here"), gpus=2))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_claim_is_asked_or_its_reason_is_known(device: str) -> None:
    """On either device; what a CPU can tell is asked there, and on CUDA what needs one device."""
    found = expanded(device)
    asked = {claim.name for claim in found.asked}
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
    assert {claim.name for claim in found.asked} | set(found.untestable) == own
    assert {claim.name for claim in found.asked} == own & {claim.name for claim in everywhere.asked}


def test_no_claim_asks_twice() -> None:
    """Two claims never have the same effect: they would be one, and count twice among the verdicts."""
    seen: dict[Any, str] = {}
    for name, (_, claim) in ALL.items():
        if (effect := claim.on("cuda").effect) and claim.needs in ("cpu", "cuda", "gpus"):
            key = (effect.metric, frozenset((term.cell_id, round(term.weight, 6)) for term in terms(effect, "cuda")))
            assert key not in seen, f"{name} and {seen.get(key)}"
            seen[key] = name


# The proof: what is planted is what is told.


def device_of(claim: Claim) -> str:
    """Where it can be tested."""
    return "cpu" if claim.needs == "cpu" else "cuda"


def columns(metric: str, value: float) -> dict[str, float]:
    """Records from which a metric is computed to be so much."""
    found = METRICS[metric]
    row = {name: 1e9 if name.endswith("_ns") else 50.0 for name in (*found.up, *found.down)}
    first = found.up[0]
    rest = found.of(row)
    assert rest is not None
    row[first] *= value / rest
    return row


def sides(effect: Effect, ratio: float) -> Iterator[tuple[Mapping[str, Value], float, int]]:
    """Every cell of an effect with the factor that is planted into it, and where its scatter goes.

    Told from cases and sides alone, and from no weight: B, and every doubling of a series, is ``ratio`` times A where
    the claim looks, and the same where it is held against.
    """
    for held, cases in ((False, effect.cases), (True, effect.against)):
        for case in cases:
            for place, (_, values) in enumerate(effect.sides(case)):
                steps = math.log2(float(values[effect.along])) if effect.along else place
                yield values, 1.0 if held else ratio**steps, (-1 if held else 1) * min(place, 1)


def trials(
    claim: Claim, device: str, ratio: float, scatter: Sequence[float] = SCATTER, blocks: int = BLOCKS
) -> pd.DataFrame:
    """Trials of a claim's cells, in which B is so many times A; every block is faster or slower than the one before."""
    effect = claim.on(device).effect
    assert effect is not None
    rows = []
    for block in range(blocks):
        for values, factor, way in sides(effect, ratio):
            cell, _ = cells_of(values, device)
            value = 1000 * factor * math.exp(way * scatter[block % len(scatter)]) * (1 + 0.3 * block)
            rows.append({**told(cell, device, block), **columns(effect.metric, value)})
    frame = pd.DataFrame(rows, columns=[column.name for column in TRIALS])
    return frame.drop_duplicates(["cell_id", "block"])


def told(cell: Mapping[str, Value], device: str, block: int) -> dict[str, Any]:
    """What every trial says of itself."""
    return {
        **cell,
        "cell_id": cell_id(cell),
        "run_id": "run",
        "machine_id": "machine",
        "device": device,
        "block": block,
        "protocol_version": 1,
        "workload_version": 1,
        "outcome": "ok",
    }


def verdict(name: str, frame: pd.DataFrame) -> str:
    """What the records say of one claim."""
    found = judged(frame, {name: ALL[name]}).claims
    assert list(found["claim"]) == [name]
    return str(found["verdict"].iloc[0])


@pytest.mark.parametrize("name", EFFECTS)
def test_records_decide(name: str) -> None:
    """An effect as the claim has it confirms it, the contrary refutes it, none is no difference."""
    claim, device = EFFECTS[name]
    effect = claim.on(device).effect
    assert effect is not None
    as_said = PLANTED if effect.says == "more" else 1 / PLANTED
    assert verdict(claim.id, trials(claim, device, as_said)) == "confirmed"
    assert verdict(claim.id, trials(claim, device, 1 / as_said)) == "refuted"
    assert verdict(claim.id, trials(claim, device, 1.0)) == "no difference"


@pytest.mark.parametrize("name", EFFECTS)
def test_scatter_decides_nothing(name: str) -> None:
    """Trials that scatter more than the effect leave the claim open, and say how many blocks it would take."""
    claim, device = EFFECTS[name]
    frame = trials(claim, device, 1.02, (0.5, -0.5))
    assert verdict(claim.id, frame) == "inconclusive"
    assert judged(frame, {claim.id: ALL[claim.id]}).claims["blocks_needed"].iloc[0] > BLOCKS


@pytest.mark.parametrize("name", EFFECTS)
def test_a_claim_without_one_of_its_cells_is_not_judged(name: str) -> None:
    """Half of a comparison says nothing."""
    claim, device = EFFECTS[name]
    frame = trials(claim, device, PLANTED)
    gone = frame["cell_id"].iloc[-1]
    assert verdict(claim.id, frame[frame["cell_id"] != gone]) == NOT_TESTABLE


@pytest.mark.parametrize("name", FACTS)
def test_checks_decide(name: str) -> None:
    """A fact is confirmed where the checks saw it, refuted where they did not, open where they disagree."""
    claim, device = ALL[name][1], device_of(ALL[name][1])
    for saw, wanted in (((True,) * 3, "confirmed"), ((False,) * 3, "refuted"), ((True, False), "inconclusive")):
        rows = []
        for at, values in enumerate(claim.facts):
            cell, _ = cells_of({"mode": "check", **values}, device)
            for block, fact in enumerate(saw):
                # The first check decides; the others say the opposite here.
                seen = {"fact": fact == (at == 0), "fact_value": 0.5, "evidence": "It was seen."}
                rows.append({**told(cell, device, block), **seen})
        assert verdict(name, pd.DataFrame(rows, columns=[column.name for column in TRIALS])) == wanted


@pytest.mark.parametrize("name", ["storage-device", "io-scheduler"])
def test_what_one_run_cannot_tell(name: str) -> None:
    """Where machines or disks must be compared, a run says so, and what it would take."""
    frame = trials(ALL["workers-async"][1], "cpu", PLANTED)
    found = judged(frame, {name: ALL[name]}).claims.iloc[0]
    assert found["verdict"] == NOT_TESTABLE
    assert "needs" in found["reason"]
