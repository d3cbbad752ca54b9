"""What only a CUDA device can show: device spans, copies of all kinds, precision, replicas, NVML. Else skipped."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from feedrate.loaders import Batch, Fields
from feedrate.machine.probes import gpu
from feedrate.schema import columns as schema_columns
from feedrate.schema.plugins import ROOT
from feedrate.store import runs
from feedrate.trial import collate, loop, stages, visits
from feedrate.trial import step as steps
from feedrate.trial.job import Job
from feedrate.trial.loop import Limits
from feedrate.trial.stages import Stage
from feedrate.trial.step import Step
from feedrate.workloads import _crops

CHECK = """
from feedrate.trial.checks import run_check
from feedrate.trial.job import Job, Reporter
run_check(Job("trial", device="cuda", cell={"mode": "check", "check": "pin_custom"}), Reporter(1))
"""
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu.device() != "cuda", reason="needs a CUDA device"),
    pytest.mark.timeout(1200),  # the sweeps of both fixtures, which count as time of the first test that asks for them
]
PHASES = [f"host_{phase}_ns" for phase in schema_columns.PHASES]

MATRIX = """
version: 1
protocol: {warmup_s: 0.3, window_s: 3, min_steps: 12, blocks: [1, 1], timeout_s: 120}
suites:
  loader:
    - {mode: train, patch_size: 64, n_samples: 512, storage_format: memmap, batch_size: 64, num_workers: 2,
       pin_memory: [false, true], non_blocking: [false, true], timing: [events, serialized]}
    - {mode: [compute, copy], patch_size: 64, batch_size: 64}
profiles: {quick: {}}
"""
_DATA = {"patch_size": 64, "batch_size": 64}
_LOADS = _DATA | {"mode": "train", "n_samples": 512, "storage_format": "memmap", "num_workers": 2, "pin_memory": True}
_STEPS = _DATA | {"mode": "compute"}
AXES = {
    "version": 1,
    "protocol": {"warmup_s": 0.3, "window_s": 0.6, "min_steps": 12, "blocks": [1, 1], "timeout_s": 120},
    "suites": {
        "loader": [
            _LOADS | {"non_blocking": True, "prefetcher": ["none", "next_batch", "stream"]},
            _LOADS | {"parallel": "ddp", "world_size": [1, 2]},
            _LOADS | {"parallel": "dp", "world_size": 2},
            _STEPS | {"launch_blocking": [False, True]},
            _STEPS | {"create_on": ["host", "device"]},
            _STEPS | {"d2h": ["pageable", "pinned"], "d2h_every": [1, 3]},
            _STEPS | {"amp": "bf16"},
            _STEPS | {"amp": "fp16", "grad_scaler": [False, True]},
            _STEPS | {"cudnn_benchmark": True},
            _STEPS | {"debug": ["nvtx", "profiler"]},
            _STEPS | {"model": "pointwise", "fusion": ["compile", "script", "cuda_graphs"]},
            _STEPS | {"memory_format": "channels_last", "amp": "bf16"},
            _STEPS | {"vary_shapes": True, "cudnn_benchmark": True},
            _STEPS | {"norm": "batch", "sync_every_step": True},
            _LOADS | {"non_blocking": True, "collate": "fast", "normalize_on": "device", "prefetcher": "stream"},
            _LOADS | {"loader": "threads"},
        ]
    },
    "profiles": {"quick": {}},
}


def swept(folder: Path, text: str) -> pd.DataFrame:
    """The trials of a matrix."""
    (folder / "matrix.yaml").write_text(text)
    places = ["--matrix", folder / "matrix.yaml", "--results", folder / "results", "--data-root", folder / "data"]
    command = [sys.executable, "-m", "feedrate", "sweep", *map(str, places)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return runs.runs(folder / "results")[-1].table("trials")


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """One trial of each cell that the matrix asks for, ceilings left out."""
    found = swept(tmp_path_factory.mktemp("cuda"), MATRIX)
    return found[found["role"] == "cell"]


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """One trial of every axis that CUDA has a path of its own for, ceilings left out."""
    found = swept(tmp_path_factory.mktemp("axes"), json.dumps(AXES))
    return found[found["role"] == "cell"]


def test_every_cell_ran(trials: pd.DataFrame) -> None:
    """Pinned and pageable, blocking or not, by events or serialized: each is a cell of its own and runs."""
    assert (trials["outcome"] == "ok").all(), trials["error_message"].dropna().to_list()
    assert trials["cell_id"].nunique() == 10
    assert (trials["device"] == "cuda").all()


def test_device_spans_fill_the_window(trials: pd.DataFrame) -> None:
    """Spans and gaps by events add up to the host's wall clock within 5 %."""
    timed = trials[(trials["mode"] == "train") & (trials["timing"] == "events")]
    spans = [f"device_{span}_ns" for span in ("h2d", "forward", "backward", "optimizer", "idle")]
    share = timed[spans].sum(axis=1) / timed["wall_ns"]
    assert share.between(0.95, 1.01).all(), share.to_list()


def test_phases_close(trials: pd.DataFrame) -> None:
    """Host phases, the copy among them, add up to the wall clock within 1 %."""
    assert ((trials[PHASES].fillna(0).sum(axis=1) / trials["wall_ns"] - 1).abs() <= 0.01).all()
    assert trials.loc[trials["mode"] != "compute", "host_h2d_ns"].notna().all()


def test_nvml_was_heard(trials: pd.DataFrame) -> None:
    """Utilization and power are there, in their ranges, where the driver tells them; the allocator's peak always."""
    computing = trials[trials["mode"] != "copy"]  # windows of copies are too short for NVML
    with gpu.GpuProbe.open() as probe:  # type: ignore[union-attr] # there is a device
        told = probe.sample()
    for column in ("gpu_util_pct", "gpu_power_w"):
        assert computing[column].notna().all() == (told[column] is not None)
        assert computing[column].dropna().between(0, {"gpu_util_pct": 100, "gpu_power_w": 2_000}[column]).all()
    assert (trials["gpu_mem_peak_bytes"] > 0).all()


def test_serialized_has_no_events(trials: pd.DataFrame) -> None:
    """Serialized timing is a cross-check of its own: no device spans, never mixed in."""
    serialized = trials[trials["timing"] == "serialized"]
    assert serialized[["device_forward_ns", "device_idle_ns"]].isna().all(axis=None)


def test_every_axis_ran(others: pd.DataFrame) -> None:
    """Each value is a cell of its own and runs; no process of it is left; samples are those of all replicas."""
    assert (others["outcome"] == "ok").all(), others["error_message"].dropna().to_list()
    assert not others["left_processes"].any()
    replicas = others["world_size"].fillna(1).astype(int)
    assert set(zip(others["parallel"].fillna("none"), replicas, strict=True)) >= {("none", 1), ("ddp", 1)}
    assert (others["samples"] == others["steps"] * others["batch_size"] * replicas).all()
    assert ((others[PHASES].fillna(0).sum(axis=1) / others["wall_ns"] - 1).abs() <= 0.01).all()


def by(frame: pd.DataFrame, axis: str) -> pd.DataFrame:
    """The mean of every number, by the values of an axis, of the cells that have it and no replicas."""
    chosen = frame[frame[axis].notna() & frame["parallel"].fillna("none").eq("none")]
    return chosen.groupby(axis).mean(numeric_only=True)


def test_a_copy_on_its_own_stream_is_hidden(others: pd.DataFrame) -> None:
    """Over the compute stream all of a copy is waited for; over its own, less than it takes."""
    loads = by(others[others["collate"].eq("totensor") & others["loader"].eq("torch")], "prefetcher")
    share = loads["device_h2d_exposed_ns"] / loads["device_h2d_ns"]
    assert share[["none", "next_batch"]].to_list() == [1, 1]
    assert share["stream"] < 0.9
    assert (loads["device_h2d_ns"] > 0).all()


def test_blocking_launches_leave_nothing_to_wait_for(others: pd.DataFrame) -> None:
    """Where every launch waits for its kernel the host is never ahead of the device."""
    steps = others[(others["mode"] == "compute") & others["create_on"].eq("none") & others["d2h"].eq("none")]
    plain = steps[steps["amp"].eq("off") & steps["debug"].eq("off") & steps["model"].eq("srcnn")]
    plain = plain[~plain[["cudnn_benchmark", "sync_every_step", "vary_shapes"]].astype(bool).any(axis=1)]
    drained = plain.groupby(plain["launch_blocking"].astype(bool))["host_drain_ns"].mean()
    assert drained[True] < drained[False]


def test_overflows_are_counted_where_precision_is_mixed(others: pd.DataFrame) -> None:
    """bfloat16 does not overflow here; without mixed precision nobody counts."""
    mixed = others["amp"].isin(["bf16", "fp16"])
    assert others.loc[mixed, "nonfinite_steps"].notna().all()
    assert others.loc[~mixed, "nonfinite_steps"].isna().all()
    assert (others.loc[others["amp"] == "bf16", "nonfinite_steps"] == 0).all()


STEPS, SIZE = 60, 1 << 20


def numbered() -> Iterator[Batch]:
    """Batches in pinned memory, each full of its number; their memory is given back at once."""
    return (Batch((torch.full((SIZE,), float(k)).pin_memory(),), b"") for k in range(STEPS + 10))


@pytest.mark.parametrize("prefetcher", ["none", "next_batch", "stream"])
def test_batches_arrive_whole_and_in_order(prefetcher: str) -> None:
    """Copies ahead of a busy device neither overwrite a batch that is in use nor mix two of them up."""
    seen: list[torch.Tensor] = []
    heavy = torch.rand(2048, 2048, device="cuda")

    def copy(batch: Batch) -> Fields:
        return tuple(field.to("cuda", non_blocking=True) for field in batch.fields)

    def forward(fields: Fields) -> None:
        (field,) = fields
        torch.mm(heavy, heavy)  # the device is behind: what is overwritten too soon would be seen
        seen.append(torch.stack([field.min(), field.max()]))

    source = numbered()
    row = [Stage("h2d", copy), Stage("forward", forward), Stage("backward", lambda _: None)]
    ahead = stages.prefetch(Job("trial", cell={"prefetcher": prefetcher}), row, source)
    loop.measure(source, ahead.row, Limits(0, STEPS, 1, STEPS), torch.cuda.synchronize)
    assert [pair.tolist() for pair in seen] == [[k, k] for k in range(STEPS)]


def test_issuing_a_copy_is_not_waited_for() -> None:
    """Where the host copies by itself and the device has nothing to do, none of that is exposed: the device is idle."""
    row = [stages.copy_stage(torch.device("cuda"), False, None), Stage("forward", lambda fields: fields[0].sum())]
    source = repeat(Batch((torch.rand(1 << 24),), b""))
    job = Job("trial", device="cuda", cell={"prefetcher": "stream"})
    timed, timeline = stages.instrument(job, stages.prefetch(job, row, source), torch.cuda.synchronize)
    timeline.reset(STEPS)
    loop.measure(source, timed, Limits(0, STEPS, 1, STEPS), torch.cuda.synchronize)
    spans = timeline.spans()
    assert sum(spans["h2d_exposed"]) < 0.1 * sum(spans["h2d"]) < sum(spans["idle"])


def test_a_spinning_step_is_not_waited_for_and_lasts_as_long_as_it_was_told() -> None:
    """By the device's events within 5 %, its clock being its own; the host only launches it."""
    source = repeat(Batch((torch.rand(1 << 10),), b""))
    job = Job("trial", device="cuda", cell={"mode": "train", "step": "spin", "step_ms": 5.0})
    row, _ = stages.assemble(job, torch.device("cuda"))
    timed, timeline = stages.instrument(job, stages.prefetch(job, row, source), torch.cuda.synchronize)
    timeline.reset(STEPS)
    window = loop.measure(source, timed, Limits(0, STEPS, 1, STEPS), torch.cuda.synchronize)
    assert sum(timeline.spans()["forward"]) == pytest.approx(5e6 * STEPS, rel=0.05)
    assert sum(window.durations()["forward"]) < 0.1 * window.wall_ns


def test_pinned_outputs_are_whole_before_they_are_overwritten() -> None:
    """Whoever reads a buffer when its copy is done finds one output in it."""
    pinned = steps.PinnedBuffers()
    for k in range(STEPS):
        pinned.copy(torch.full((SIZE,), float(k), device="cuda"))
    torch.cuda.synchronize()
    (turns,) = pinned._turns.values()
    held = [next(turns)[0] for _ in range(steps.PinnedBuffers.BUFFERS)]
    assert all(buffer.is_pinned() for buffer in held)
    assert sorted([buffer.min().item(), buffer.max().item()] for buffer in held) == [[STEPS - 2] * 2, [STEPS - 1] * 2]


@pytest.mark.parametrize("where", ["host", "device"])
def test_a_made_tensor_leaves_the_input_as_it_was(where: str) -> None:
    """On the device too what is added changes no bit."""
    seen: list[Fields] = []
    step = Step(lambda fields: seen.append(fields) or fields[0].sum(), lambda _: None, lambda _: None)
    image = torch.rand(4, 3, 16, 16, device="cuda")
    steps.with_random_tensor(step, torch.device("cuda"), where).forward((image, image))
    assert seen[0][0].is_cuda
    assert torch.equal(seen[0][0], image)


def test_custom_batches_are_pinned_by_their_own_method_alone() -> None:
    """On a real device PyTorch pins tensors, containers and a class with pin_memory(), and no other class."""
    done = subprocess.run([sys.executable, "-c", CHECK], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)["row"]
    assert row["fact"], row["evidence"]
    assert row["fact_value"] == 1


def test_the_device_decodes_and_crops_as_the_host_does(tmp_path: Path) -> None:
    """Bytes that the device resizes differ from the host's by a level at most, what nvJPEG decodes by one or so."""
    image = Image.effect_noise((50, 40), 60).resize((500, 375)).convert("RGB")
    image.save(tmp_path / "image.jpg", quality=95, subsampling=0)
    file = (tmp_path / "image.jpg").read_bytes()
    crop = _crops.Crop(20, 30, 200, 300, True)
    shipped = [_crops.Decoded(visits.ship(file, 375, 500, 1), 1, crop, np.zeros((1, 1, 2), np.uint8))] * 3
    fields = visits.collate_files(shipped, torch.empty)
    images, _ = visits.DeviceDecoder("nvjpeg", 224, lambda fields: fields)(fields, torch.device("cuda"))
    decoded = _crops.Decoded(np.asarray(Image.open(tmp_path / "image.jpg")), *shipped[0][1:])
    expected = torch.from_numpy(_crops.augment(decoded, 224)[0]).permute(2, 0, 1)
    assert images.dtype == torch.uint8
    assert (images.cpu().float() - expected.float()).abs().mean() <= 1
    bytes_ = torch.randint(0, 256, (3, 300, 200), dtype=torch.uint8)
    on_device, on_host = (_crops.resized(image, 224, False).cpu().int() for image in (bytes_.cuda(), bytes_))
    assert (on_device - on_host).abs().max() <= 1


@pytest.mark.parametrize("workload", ["synthetic", "pets"])
def test_bytes_are_normalised_on_the_device(workload: str) -> None:
    """A batch of bytes becomes on the device what the worker would have made of it, to 1e-6 an element."""
    images = torch.randint(0, 256, (4, 3, 33, 17), dtype=torch.uint8)
    labels = torch.randint(0, 37, (4, 1, 1, 1), dtype=torch.uint8)
    fields = (images, labels if workload == "pets" else images.flip(0))
    cell = {"mode": "train", "workload": workload, "collate": "fast", "normalize_on": "device"}
    on_host, on_device = (Job("trial", device, cell) for device in ("cpu", "cuda"))
    moved = stages.copy_stage(torch.device("cuda"), False, collate.normalizer(on_device, "cuda")).run(
        Batch(fields, b"")
    )
    for found, expected in zip(moved, collate.normalizer(on_host, "host")(fields), strict=True):
        assert found.is_cuda
        assert found.is_contiguous()
        torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1e-6)
