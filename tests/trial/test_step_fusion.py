"""Networks that are compiled: the same function, all of it made before the warm-up, nothing left of the rehearsal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch._dynamo

from feedrate.loaders import Batch
from feedrate.trial import stages
from feedrate.trial.job import Job
from feedrate.trial.run import rehearse
from feedrate.trial.step import CUDA_REHEARSALS

if TYPE_CHECKING:
    from warm import Runner

CPU = torch.device("cpu")
CELL = {"workload": "synthetic", "n_samples": 32, "patch_size": 16, "batch_size": 4}
"""Of trials in processes of their own."""
COMPILE = torch.compile


def trial(**cell: object) -> Job:
    return Job("trial", cell={"workload": "synthetic", "mode": "train", "patch_size": 16, **cell})


def batches(count: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(7)
    return [Batch(tuple(torch.rand(2, 2, 3, 16, 16, generator=generator)), b"") for _ in range(count)]


def rehearsed_weights(count: int, **cell: object) -> torch.Tensor:
    """The weights after some steps behind a rehearsal; whatever would be compiled in them is an error."""
    torch.manual_seed(1)
    row, training = stages.assemble(trial(**cell), CPU)
    assert training
    source, _ = rehearse(trial(**cell), training, row, iter(batches(count)), lambda: None)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for batch in source:
            state: Any = batch
            for stage in row:
                state = stage.run(state)
    return torch.cat([weights.detach().flatten() for weights in training.network.parameters()])


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Compile in milliseconds: capture as ever, but let PyTorch's own kernels run what was captured."""
    options: list[dict[str, Any]] = []

    def compiled(model: torch.nn.Module, **given: Any) -> Any:
        options.append(given)
        return COMPILE(model, backend="aot_eager", dynamic=given["dynamic"])

    monkeypatch.setattr(torch, "compile", compiled)
    yield options
    torch._dynamo.reset()


@pytest.mark.slow
def test_all_is_compiled_before_the_warm_up(quick: list[dict[str, Any]]) -> None:
    """After the rehearsal no step compiles anything, of whatever size; the weights become the eager ones."""
    cell = {"vary_shapes": True, "amp": "bf16", "norm": "batch"}
    expected = rehearsed_weights(5, **cell)
    assert not quick
    assert torch.allclose(rehearsed_weights(5, fusion="compile", **cell), expected, atol=1e-6)
    assert len(quick) == 1


def test_compilers_start_no_pool_and_shapes_are_static(quick: list[dict[str, Any]]) -> None:
    """torch.compile is asked for static shapes, and to compile in the trial's own process."""
    for fusion in ("compile", "cuda_graphs"):
        stages.assemble(trial(model="pointwise", fusion=fusion), CPU)
    plain = {"compile_threads": 1}
    graphs = torch._inductor.list_mode_options()["reduce-overhead"]
    assert quick == [{"dynamic": False, "options": options} for options in (plain, plain | graphs)]


def test_a_device_is_rehearsed_before_its_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step loads libraries and chooses algorithms: two are run and waited for, and the memory given back."""
    row, training = stages.assemble(trial(), CPU)
    assert training
    ran: list[Batch] = []
    calls: list[str] = []
    row = [row[0]._replace(run=ran.append)]
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("empty"))
    on_device = replace(training, rehearsals=CUDA_REHEARSALS)
    given, job = batches(2), replace(trial(), device="cuda")
    source, took = rehearse(job, on_device, row, iter(given), lambda: calls.append("wait"))
    assert (ran, calls) == ([given[0]] * 2, ["wait", "wait", "wait", "empty"])
    assert list(source) == given
    assert list(took) == ["first_step_ns"]


@pytest.mark.slow
def test_a_forked_trial_compiles_for_itself_and_reports_the_cost(runner: Runner) -> None:
    """PyTorch's compiler works in a fork of the template; its time has a column of its own, and no process is left."""
    plain = runner.run(mode="train", amp="bf16").result["row"]
    assert plain["nonfinite_steps"] == 0
    assert plain.keys().isdisjoint(("compile_ns", "first_step_ns"))
    answer = runner.run(mode="train", model="pointwise", fusion="compile", timeout_s=200)
    assert answer.outcome == "ok", answer.message
    row = answer.result["row"]
    assert row["compile_ns"] >= row["first_step_ns"] > 10_000_000
    assert row["nonfinite_steps"] is None
    assert "host_drain_ns" not in row, "there is no device that the host could run ahead of"
    assert (answer.left_processes, answer.left_shm_segments) == (0, 0)
