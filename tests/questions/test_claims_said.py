"""What the claims say: each compares what its source compares, in whole sentences, beside what contradicts it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from feedrate.plan import suite
from feedrate.plan.claim import Claim, Effect
from feedrate.schema.axes import BY_NAME, Value

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
