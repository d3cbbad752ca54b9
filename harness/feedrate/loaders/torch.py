"""PyTorch's own DataLoader: worker processes, or none.

Pitfalls: which start method Python would take depends on its version; a worker that a server forked outlives its
training process for ever, unless it watches it; ``pin_memory`` without an accelerator does nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from functools import partial
from multiprocessing import parent_process
from typing import Any

from torch.utils.data import DataLoader, Dataset

from feedrate.loaders import Fields, LoadOptions, StampedCollate
from feedrate.machine.linux import die_with_parent

REQUIRES: dict[str, str] = {"torch": "torch"}
TRAITS: dict[str, object] = {
    "title": "DataLoader",
    "workers": "processes",
    "knobs": ("start_method", "persistent_workers"),
}


def build(
    dataset: Dataset[Fields],
    collate: StampedCollate,
    batches: Iterable[list[int]] | None,
    options: LoadOptions,
    loader: type[DataLoader[Any]] = DataLoader,
) -> DataLoader[Any]:
    """Assemble a DataLoader, or a subclass; without ``batches`` the dataset is a stream, which has its own order."""
    method = options.start_method
    of_stream = {"batch_size": options.batch_size, "drop_last": True}
    return loader(
        dataset,
        **(of_stream if batches is None else {"batch_sampler": batches}),
        **options.of_processes(),
        collate_fn=collate,
        multiprocessing_context=method if options.num_workers else None,
        worker_init_fn=partial(_bind_worker, os.getpid(), method == "forkserver"),
        persistent_workers=options.persistent_workers,
    )


def _bind_worker(training_pid: int, from_server: bool, _worker: int) -> None:
    """See to it that no worker outlives the training process.

    A worker that a server forked is no child of it, and the server lives as long as its workers do: PyTorch's own
    watch, which looks whether a worker's parent has changed, would let both stay for ever.
    """
    if not from_server:
        die_with_parent(training_pid)
        return
    training: Any = parent_process()

    def leave_with_training() -> None:
        training.join()
        os._exit(1)

    threading.Thread(target=leave_with_training, daemon=True).start()
