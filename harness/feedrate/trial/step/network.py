"""The network of a trial: its file's, with the cell's knobs, laid out, replicated and fused as the cell says.

``fusion = compile`` hands the network to ``torch.compile`` with two settings. Shapes are static, so that with
``vary_shapes`` each size has code of its own, made before the window. And it compiles in this process: a pool of
compiling processes would outlive the compilation and burden the window. PyTorch keeps what it compiled among the
temporary files of a block: the first trial of a block that compiles a network pays for those that follow.

What becomes of the images of a batch before the network sees them: their layout, their size.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import cycle
from typing import cast

import torch

from feedrate.schema import plugins
from feedrate.trial.job import Job
from feedrate.trial.loader import Fields
from feedrate.trial.step.plain import Step

Wrap = Callable[[torch.nn.Module], torch.nn.Module]
"""Puts something around a network, such as its replication."""


def bare(job: Job, device: torch.device) -> torch.nn.Module:
    """Make the network of a trial where it runs, with the knobs that its file declares, its weights laid out."""
    file = plugins.load("feedrate.workloads.models", job.value("model"))
    network: torch.nn.Module = file.build(**{knob: job.value(knob) for knob in file.KNOBS}).to(device)
    if job.value("memory_format") == "channels_last":
        network.to(memory_format=torch.channels_last)
    return network


def fused(network: torch.nn.Module, fusion: str, wrap: Wrap) -> torch.nn.Module:
    """Make the network that is called; its parameters stay the bare one's."""
    if fusion == "script":
        return wrap(_scripted(network))
    wrapped = wrap(network)
    return _compiled(wrapped) if fusion == "compile" else wrapped


def _compiled(network: torch.nn.Module) -> torch.nn.Module:
    return cast(torch.nn.Module, torch.compile(network, dynamic=False, options={"compile_threads": 1}))


def _scripted(network: torch.nn.Module) -> torch.nn.Module:
    with warnings.catch_warnings():
        # PyTorch says of TorchScript that it is deprecated: what is asked is whether it helps where it is still there.
        warnings.filterwarnings("ignore", message=".*torch.jit.script.* is deprecated", category=FutureWarning)
        return cast(torch.nn.Module, torch.jit.script(network))


LESS = 8
"""Pixels by which one size is smaller than the one before."""
SIZES = 4
"""Sizes in the cycle, at most."""


def channels_last(step: Step) -> Step:
    """Lay images out with the channel as the fastest dimension; the conversion is part of ``forward``."""

    def forward(fields: Fields) -> torch.Tensor:
        return step.forward(tuple(_laid_out(field) for field in fields[:2]))

    return step._replace(forward=forward)


def varied(step: Step, patch_size: int) -> Step:
    """Cut images to another size from step to step; the cut, a copy, is part of ``forward``."""
    turns = cycle(sizes(patch_size))

    def forward(fields: Fields) -> torch.Tensor:
        size = next(turns)
        return step.forward(tuple(_cut(field, size) for field in fields[:2]))

    return step._replace(forward=forward)


def sizes(patch_size: int) -> list[int]:
    """The sizes that images have in turn: the whole, and up to three that are smaller by ``LESS`` pixels each."""
    return [patch_size - LESS * k for k in range(SIZES) if k == 0 or patch_size - LESS * k >= LESS]


def _laid_out(field: torch.Tensor) -> torch.Tensor:
    return field.contiguous(memory_format=torch.channels_last) if field.dim() == 4 else field


def _cut(field: torch.Tensor, size: int) -> torch.Tensor:
    return field[..., :size, :size].contiguous() if field.dim() == 4 else field
