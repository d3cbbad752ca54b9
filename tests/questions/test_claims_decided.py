"""The proof of the claims' verdicts: each compares what its source compares, and what is planted is what is told.

The same cells, with an effect planted as the claim says it, the other way round, not at all, and drowned in scatter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import pytest

from feedrate.analysis.claim_values import observe
from feedrate.analysis.claims import NOT_TESTABLE, judge_claims
from feedrate.plan import suite
from feedrate.plan.claim import Claim, Effect, cell_on
from feedrate.schema.axes import BY_NAME, Value, cell_id
from feedrate.schema.columns import TRIALS
from feedrate.schema.metrics import METRICS, least_of

ALL = suite.claims()
EFFECTS = {
    f"{name} on {device}": (claim, device)
    for name, (_, claim) in ALL.items()
    for device in (("cpu", "cuda") if claim.on_cuda else ("cpu",) if claim.needs == "cpu" else ("cuda",))
    if claim.effect and claim.needs in ("cpu", "cuda", "gpus")
}
"""Claims where they can be tested, each with a device; those that have an effect of their own on CUDA stand twice."""
FACTS = [name for name, (_, claim) in ALL.items() if claim.facts]
SAID: dict[str, str] = {
    # A → B: what the claim says of B; or along which axis what rises or falls; or the check that decides
    "disk-cache": "cache=none → cache=sample: more throughput",
    "batch-cache": "cache=sample → cache=batch: more throughput",
    "totensor-transpose": "transform_share: 0.8 or more",
    "batch-size-epoch": "batch_size=8 → batch_size=128: more throughput",
    "batch-size-utilization": "batch_size=8 → batch_size=128: more gpu_util by 2.55",
    "fetch-nonlinear": "batch_size: throughput rises",
    "forward-flat": "batch_size: device_forward falls by 0.5",
    "backward-linear": "batch_size: device_backward stays",
    "fewer-workers-small-batch": "num_workers=2 → num_workers=8: more throughput and "
    "num_workers=2 → num_workers=8: less throughput and num_workers=2 → num_workers=8: more throughput",
    "workers-async": "num_workers=0 → num_workers=2: more throughput",
    "prefetch-factor": "prefetch_factor=1 → prefetch_factor=8: more throughput",
    "twelve-workers": "num_workers=12 → num_workers=24: same throughput",
    "utilization-is-time": "num_workers: gpu_util rises and num_workers: throughput rises",
    "ddp-over-dp": "parallel=dp, world_size=2 → parallel=ddp, world_size=2: more throughput",
    "ddp-scaling": "parallel=ddp, world_size=1 → parallel=ddp, world_size=2: more throughput",
    "ddp-overlap": "ddp_buckets=one → ddp_buckets=many: more throughput",
    "lmdb-over-png": "storage_format=png → storage_format=lmdb: more throughput",
    "lmdb-over-hdf5": "storage_format=hdf5 → storage_format=lmdb: more throughput",
    "binary-over-png": "storage_format=png → storage_format=memmap: more throughput",
    "lmdb-resize": "check=lmdb_resize",
    "lz4-in-lmdb": "storage_format=lmdb → storage_format=lmdb_lz4: more throughput",
    "hdf5-parallel": "check=hdf5_fork, guarded=False",
    "record-formats": "storage_format=png → storage_format=tfrecord: more throughput and "
    "storage_format=png → storage_format=recordio: more throughput and "
    "storage_format=png → storage_format=lmdb_png: more throughput",
    "chunking-under-shuffle": "storage_format=hdf5 → storage_format=hdf5_chunks: more throughput and "
    "storage_format=hdf5 → storage_format=hdf5_chunks: more throughput and "
    "storage_format=hdf5 → storage_format=hdf5_chunks: less throughput by 1",
    "page-cache": "page_cache=cold, read_ahead_kib=128 → page_cache=warm: more throughput",
    "hdf5-in-memory": "check=hdf5_memory",
    "hdf5-swmr": "swmr=False → swmr=True: more throughput",
    "png-burns-cpu": "cpu_busy: 100 or more",
    "storage-device": "page_cache=warm → page_cache=cold, read_ahead_kib=128: less throughput",
    "io-scheduler": "page_cache=warm → page_cache=cold, read_ahead_kib=128: same throughput",
    "lmdb-readahead": "readahead=True → readahead=False: more throughput",
    "cudnn-benchmark": "cudnn_benchmark=False → cudnn_benchmark=True: more throughput",
    "amp": "amp=off → amp=bf16: more throughput",
    "amp-memory": "amp=off → amp=bf16: less gpu_mem_peak",
    "bias-before-norm": "conv_bias=True → conv_bias=False: more throughput",
    "grad-none": "zero_grad=memset → zero_grad=none: more throughput",
    "debug-apis": " and ".join(
        f"debug=off → debug={aid}: less throughput"
        for aid in ("anomaly", "profiler", "profiler", "nvtx", "gradcheck", "gradgradcheck")
    ),
    "fuse-pointwise": "fusion=eager → fusion=compile: more throughput",
    "jit-script": "fusion=eager → fusion=script: more throughput",
    "larger-batch-tuning": "batch_size: device_backward falls",
    "loss-item": "sync_every_step=False → sync_every_step=True: less throughput",
    "memory-by-batch": "batch_size=8 → batch_size=128: less gpu_mem_used by 1.42 and "
    "batch_size=8 → batch_size=128: more gpu_mem_used",
    "fp16-loss-scaling": "grad_scaler=False → grad_scaler=True: same throughput",
    "batchnorm-sync": "forward_on_host: 1 or more",
    "channels-last": "memory_format=contiguous → memory_format=channels_last: more throughput",
    "pageable-small-input": "pin_memory=False → pin_memory=True: less throughput",
    "pinned-large-input": "pin_memory=False → pin_memory=True: more throughput",
    "pin-danger": "pin_memory=False → pin_memory=True: less mem_available",
    "pin-always": "pin_memory=False → pin_memory=True: more throughput",
    "create-on-device": "create_on=host → create_on=device: more throughput",
    "pinned-staging": "pin_memory=False → pin_memory=True: more copy_rate",
    "nonblocking-needs-pin": "non_blocking=False → non_blocking=True: more throughput and "
    "non_blocking=False → non_blocking=True: same throughput",
    "nonblocking-sync-points": "non_blocking=False → non_blocking=True: more throughput",
    "overlap-chunks": "prefetcher=none → prefetcher=stream: less exposed_copy",
    "next-batch-transfer": "prefetcher=none → prefetcher=next_batch: more throughput",
    "launch-blocking": "launch_blocking=False → launch_blocking=True: less throughput",
    "launch-blocking-prefetch": "prefetcher=none → prefetcher=stream: same throughput",
    "pinned-is-gpu-memory": "pin_memory=False → pin_memory=True: more gpu_mem_used",
    "d2h-sync": "d2h=none → d2h=pageable: less throughput",
    "pin-custom-batch": "check=pin_custom",
    "excess-workers": "num_workers=2 → num_workers=8: less throughput and num_workers=2 → num_workers=8: more switches",
    "gil-threads": "loader=torch → loader=threads: less throughput",
    "clean-termination": "check=termination, ends_by=sigkill, guarded=False",
    "worker-memory": "index_kind=list → index_kind=numpy: less workers_memory",
    "slow-dataset-workers": "num_workers: throughput rises and num_workers=8 → num_workers=32: less throughput by 1",
    "next-epoch-copies": "check=next_epoch, persistent_workers=True",
    "persistent-workers": "persistent_workers=False → persistent_workers=True: more throughput",
}
RATHER: dict[str, str] = {
    # Interactions: where B is said to do more (or less) than A rather than where
    "fewer-workers-small-batch": "batch_size=128 rather than batch_size=8",
    "chunking-under-shuffle": "access=sequential rather than access=random",
    "nonblocking-sync-points": "sync_every_step=False rather than sync_every_step=True",
    "slow-dataset-workers": "read_us=2000, decode_us=0 rather than read_us=0, decode_us=2000",
}
BLOCKS = 12
PLANTED = 1.2
"""A ratio that no verdict leaves open."""
SCATTER = (0.01, -0.01)
"""Of the logs of B, one block and the next; it averages out over an even number of blocks."""


def columns(metric: str, value: float) -> dict[str, float]:
    """Records from which a metric is computed to be so much."""
    found = METRICS[metric]
    if len(found.columns) > len(set(found.columns)):  # a share: the first column of the whole is what is left
        return dict.fromkeys(found.columns, 0.0) | {found.columns[0]: 1e9 * value, found.down[0][0]: 1e9 * (1 - value)}
    row = {name: 1e9 if name.endswith("_ns") else 50.0 for name in found.columns}
    rest = found.of(row)
    assert rest is not None
    first = (found.up[0],) if isinstance(found.up[0], str) else found.up[0]
    return row | {name: row[name] * value / rest for name in first}


def sides(effect: Effect, ratio: float, held_back: float = 1.0) -> Iterator[tuple[Mapping[str, Value], float, int]]:
    """Every cell of an effect with the factor that is planted into it, and where its scatter goes.

    Told from cases and sides alone, and from no weight: B, and every doubling of a series, is ``ratio`` times A where
    the claim looks, and ``held_back`` times where it is held against; a level is ``ratio`` itself.
    """
    for held, cases in ((False, effect.cases), (True, effect.against)):
        for case in cases:
            for place, (_, values) in enumerate(effect.sides(case), start=int(effect.level)):
                steps = math.log2(float(values[effect.along])) if effect.along else place
                yield values, (held_back if held else ratio) ** steps, (-1 if held else 1) * min(place, 1)


def as_said(effect: Effect) -> float:
    """A ratio, or level, that an effect is confirmed by; of an interaction one that leaves room for a part of it."""
    clear = PLANTED**2 if effect.against else PLANTED
    return effect.figure or {"more": clear, "less": 1 / clear, "same": 1.0}[effect.says]


def contrary_to(effect: Effect) -> tuple[float, ...]:
    """Ratios, or levels, that an effect is refuted by."""
    if effect.figure:
        return (2 * effect.figure if effect.says == "less" else effect.figure / 2,)
    return (PLANTED, 1 / PLANTED) if effect.says == "same" else (1 / as_said(effect),)


def trials(
    claim: Claim, device: str, ratio: float, scatter: Sequence[float] = SCATTER, blocks: int = BLOCKS
) -> pd.DataFrame:
    """Trials of a claim's cells, in which B is so many times A; every block is faster or slower than the one before.

    What the claim says besides is as it says.
    """
    claim = claim.on(device)
    effect = claim.effect
    assert effect is not None
    # A part may look at the cells that the effect is held against: there is its ratio, and the effect is beyond it.
    besides = [(part.effect, list(sides(part.effect, as_said(part.effect)))) for part in claim.also]
    beyond = math.prod(as_said(part) for part, _ in besides if part.cases == effect.against)
    planted = [(effect, list(sides(effect, ratio * beyond, beyond))), *besides]
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for block in range(blocks):
        for each, factors in planted:
            for values, factor, way in factors:
                cell, _ = cell_on(values, device)
                level = 1.0 if each.level else 1000 * (1 + 0.3 * block)
                value = level * factor * math.exp(way * scatter[block % len(scatter)])
                row = rows.setdefault((cell_id(cell), block), trial(cell, device, block))
                rows[cell_id(cell), block] = {**columns(each.metric, value), **row}
    for row in rows.values():
        if row.get("page_cache") == "cold":  # more was read from storage than the samples take
            row |= {"cached_before_pct": 0.0, "samples": row.get("samples", 1), "stored_bytes": 1, "read_bytes": 10**9}
    return pd.DataFrame(list(rows.values()), columns=[column.name for column in TRIALS])


def trial(cell: Mapping[str, Value], device: str, block: int) -> dict[str, Any]:
    """What every trial says of itself."""
    same = {"run_id": "run", "machine_id": "machine", "protocol_version": 1, "workload_version": 1, "outcome": "ok"}
    return {**cell, **same, "cell_id": cell_id(cell), "device": device, "block": block}


def verdict(name: str, frame: pd.DataFrame) -> str:
    """What the records say of one claim."""
    return str(judged(name, frame)["verdict"])


def judged(name: str, frame: pd.DataFrame) -> Mapping[str, Any]:
    """The row of one claim."""
    asked = {name: ALL[name]}
    (row,) = judge_claims([observe(frame, asked)], asked).claims.to_dict("records")
    assert row["claim"] == name
    return {str(column): value for column, value in row.items()}


@pytest.mark.parametrize("name", EFFECTS)
def test_records_decide(name: str) -> None:
    """An effect as the claim has it confirms it, the contrary refutes it, none is no difference.

    What the claim says besides is as it says. Half of a comparison says nothing.
    """
    claim, device = EFFECTS[name]
    effect = claim.on(device).effect
    assert effect is not None
    assert verdict(claim.id, trials(claim, device, as_said(effect))) == "confirmed"
    for contrary in contrary_to(effect):
        assert verdict(claim.id, trials(claim, device, contrary)) == "refuted"
    if not effect.figure:
        none = "confirmed" if effect.says == "same" else "no difference"
        # Eight workers that do as much for large batches as for small ones, for which they must be slower.
        none = "refuted" if claim.id == "fewer-workers-small-batch" else none
        assert verdict(claim.id, trials(claim, device, 1.0)) == none
    # Scatter that is larger than the effect leaves it open, and says how many blocks it would take.
    edge = least_of(effect.figure, effect.says) if effect.figure else 1.0
    scattered = judged(claim.id, trials(claim, device, 1.02 * edge, (0.5, -0.5)))
    assert scattered["verdict"] == "inconclusive"
    assert scattered["blocks_needed"] > BLOCKS
    half = trials(claim, device, PLANTED)
    half = half[half["cell_id"] != half["cell_id"].iloc[-1]]
    assert half.empty or verdict(claim.id, half) == NOT_TESTABLE


@pytest.mark.parametrize("name", FACTS)
def test_checks_decide(name: str) -> None:
    """A fact is confirmed where the checks saw it and open where they disagree; unseen it is what its claim says."""
    claim = ALL[name][1]
    device = "cpu" if claim.needs == "cpu" else "cuda"
    for saw, wanted in (((True,) * 3, "confirmed"), ((False,) * 3, claim.unseen), ((True, False), "inconclusive")):
        rows = []
        for at, values in enumerate(claim.facts):
            cell, _ = cell_on({"mode": "check", **values}, device)
            for block, fact in enumerate(saw):
                # The first check decides; the others say the opposite here.
                seen = {"fact": fact == (at == 0), "fact_value": 0.5, "evidence": "It was seen."}
                rows.append({**trial(cell, device, block), **seen})
        assert verdict(name, pd.DataFrame(rows, columns=[column.name for column in TRIALS])) == wanted


@pytest.mark.parametrize("name", ["storage-device", "io-scheduler"])
def test_what_one_run_cannot_tell(name: str) -> None:
    """Where machines or disks must be compared, a run says so, and what it would take."""
    frame = trials(ALL["workers-async"][1], "cpu", PLANTED)
    found = judged(name, frame)
    assert found["verdict"] == NOT_TESTABLE
    assert "needs" in found["reason"]


def said(claim: Claim) -> str:
    """The sides of a claim, and what it says of them."""
    if claim.effect is None:
        return shown(claim.facts[0])
    return " and ".join(map(of, (claim.effect, *(part.effect for part in claim.also))))


def of(effect: Effect) -> str:
    """The sides of an effect, and what is said of them."""
    figure = f" by {effect.figure:.3g}" if effect.figure else ""
    if effect.along:
        how = {"more": "rises", "less": "falls", "same": "stays"}[effect.says]
        return f"{effect.along}: {effect.metric} {how}{figure}"
    if effect.level:
        return f"{effect.metric}: {effect.figure:.3g} or {effect.says}"
    (_, a), (_, b) = effect.steps
    return f"{shown(a)} → {shown(b)}: {effect.says} {effect.metric}{figure}"


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
    assert all(claim.id == name and claim.says.endswith(".") for name, (_, claim) in ALL.items())
    assert {name: apart(effect.cases[0], effect.against[0]) for name, effect in deciding() if effect.against} == RATHER
