"""torchdata's StatefulDataLoader: PyTorch's DataLoader whose position in an epoch can be saved and restored.

Its workers send their state with every batch (``snapshot_every_n_steps=1``, its default), which costs.
https://docs.pytorch.org/data/main/stateful_dataloader_tutorial.html
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from torch.utils.data import DataLoader, Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

from feedrate.loaders import Fields, LoadOptions, StampedCollate
from feedrate.loaders.torch import build as assemble

REQUIRES: dict[str, str] = {"torch": "torch", "torchdata": "torchdata"}
TRAITS: dict[str, object] = {
    "title": "StatefulDataLoader",
    "workers": "processes",
    "knobs": ("start_method", "persistent_workers"),
    "resumes": True,
}


def build(
    dataset: Dataset[Fields], collate: StampedCollate, batches: Iterable[list[int]] | None, options: LoadOptions
) -> DataLoader[Any]:
    """Assemble a StatefulDataLoader as PyTorch's own is."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "'set_vital' is deprecated")  # by torch 2.15; torchdata 0.11 calls it
        return assemble(dataset, collate, batches, options, StatefulDataLoader)
