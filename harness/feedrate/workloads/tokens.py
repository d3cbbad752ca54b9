"""Windows of tokens, as a language model is trained on: out of one long array, with nothing to decode.

A sample is 1,025 tokens of 16 bits that follow each other: the model reads 1,024 of them and predicts the next of each.
They are drawn by Zipf's law: of the 50,257 of GPT-2's vocabulary (Radford et al., "Language Models are Unsupervised
Multitask Learners", 2019) the token of rank r comes in proportion to 1 ÷ (r + 2.7) (Mandelbrot's form with exponent 1;
Piantadosi, "Zipf's word frequency law in natural language", 2014). What such a loader costs is a worker's own work: an
index, a copy of 2 kB, a batch handed over.

What it does *not* show: making tokens of text, packing documents of different lengths, an array larger than memory;
nothing can be learnt from tokens that do not depend on each other.

Drawn with integer arithmetic alone, alike on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from feedrate.formats import Sample
from feedrate.workloads import DataSpec, Source

REQUIRES: dict[str, str] = {"numpy": "numpy", "torch": "torch"}
TASK: str = "language"
SAMPLES: str = "tokens"
VERSION: int = 1
VOCABULARY = 50_257
CONTEXT = 1024
"""Tokens that the model reads."""

_SEED = 0x70C3
_SCALE = 10**12


def samples(spec: DataSpec) -> Source:
    """Give windows, uint8, 1 × 1 × 2,050: 1,025 tokens, little-endian."""
    return Source(map(_window, range(spec.n_samples)))


def _window(number: int) -> Sample:
    """Draw the tokens of a window of the endless array."""
    ends = _ends()
    random = np.random.Generator(np.random.PCG64([_SEED, number]))
    drawn = random.integers(0, ends[-1], CONTEXT + 1)
    return (np.searchsorted(ends, drawn, side="right").astype("<u2").view(np.uint8).reshape(1, 1, -1),)


@cache
def _ends() -> NDArray[np.int64]:
    """Up to which number each token is drawn."""
    ranks = np.arange(VOCABULARY, dtype=np.int64)
    return np.cumsum(10 * _SCALE // (10 * ranks + 37))


def transform(sample: Sample) -> tuple[torch.Tensor, ...]:
    """Make of a window what is read and what is to be predicted: int64, 1,024 each."""
    ids = torch.from_numpy(sample[0].reshape(-1).view("<u2").astype(np.int64))
    return ids[:-1].clone(), ids[1:].clone()


def normalize(
    fields: Sequence[torch.Tensor], empty: Callable[..., torch.Tensor] = torch.empty_like
) -> tuple[torch.Tensor, ...]:
    """Do to the windows of a batch (uint8, batch × 2,050 × 1 × 1) the same: int64, batch × 1,024 each."""
    low, high = fields[0].view(-1, CONTEXT + 1, 2).unbind(2)
    ids = low.to(torch.int64) + (high.to(torch.int64) << 8)
    halves = (half.clone(memory_format=torch.contiguous_format) for half in (ids[:, :-1], ids[:, 1:]))
    return tuple(empty(half, dtype=torch.int64).copy_(half) for half in halves)


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Give the cross entropy of scores (batch × 1,024 × 50,257) and tokens (batch × 1,024), as a scalar tensor."""
    return torch.nn.functional.cross_entropy(output.flatten(0, 1), target.flatten())
