"""The network of a trial: its file's, with the cell's knobs, laid out, replicated and fused as the cell says.

``fusion = compile`` hands the network to ``torch.compile`` with two settings. Shapes are static, so that with
``vary_shapes`` each size has code of its own, made before the window. And it compiles in this process: a pool of
compiling processes would outlive the compilation and burden the window. PyTorch keeps what it compiled among the
temporary files of a block: the first trial of a block that compiles a network pays for those that follow.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import cast

import torch

from harness import registry
from harness.trial.job import Job

Wrap = Callable[[torch.nn.Module], torch.nn.Module]
"""Puts something around a network, such as its replication."""


def bare(job: Job, device: torch.device) -> torch.nn.Module:
    """Make the network of a trial where it runs, with the knobs that its file declares, its weights laid out.

    Args:
        job: the trial; its cell names model, knobs and memory_format.
        device: where the step runs.
    """
    file = registry.load("harness.workloads.models", job.value("model"))
    network: torch.nn.Module = file.build(**{knob: job.value(knob) for knob in file.KNOBS}).to(device)
    if job.value("memory_format") == "channels_last":
        network.to(memory_format=torch.channels_last)
    return network


def fused(network: torch.nn.Module, fusion: str, wrap: Wrap) -> torch.nn.Module:
    """Make the network that is called; its parameters stay the bare one's.

    Args:
        network: the bare one.
        fusion: value of the axis.
        wrap: goes around a network that has become a script, and before it is compiled, as PyTorch advises for
            DistributedDataParallel.
    """
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
