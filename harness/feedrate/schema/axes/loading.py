"""Axes of the DataLoader and of what is put around it."""

from __future__ import annotations

from feedrate.schema.axes._axis import (
    LOADS,
    Axis,
    above,
    all_of,
    any_of,
    loads_one_by_one,
    needs_workers,
    one_of,
    only,
)

LOADING: tuple[Axis, ...] = (
    Axis("batch_size", int, 32, "Samples in a batch.", unit="samples", least=1),
    Axis("num_workers", int, 0, "DataLoader worker processes; 0 loads in the training process.", least=0, idle=LOADS),
    Axis(
        "prefetch_factor",
        int,
        2,
        "Batches that each worker prepares ahead.",
        unit="batches",
        least=1,
        idle=needs_workers,
    ),
    Axis(
        "worker_kind",
        str,
        "process",
        "What a worker is: a process, as PyTorch makes them, or a thread of the training process.",
        choices=one_of("process", "thread"),
        idle=all_of(needs_workers, loads_one_by_one),
    ),
    Axis(
        "start_method",
        str,
        "fork",
        "How worker processes are started.",
        choices=one_of("fork", "spawn", "forkserver"),
        idle=all_of(needs_workers, only("worker_kind", "process")),
    ),
    Axis(
        "epoch_steps",
        int,
        0,
        "Steps of a real epoch, at whose end the iterator is made anew; 0 samples without end, so that no epoch's "
        "border falls inside the window.",
        unit="steps",
        least=0,
        idle=all_of(loads_one_by_one, only("page_cache", "warm")),
    ),
    Axis(
        "persistent_workers",
        bool,
        False,
        "Whether workers live on from epoch to epoch.",
        idle=any_of(
            only("check", "next_epoch"), all_of(needs_workers, above("epoch_steps"), only("worker_kind", "process"))
        ),
    ),
    Axis(
        "collate",
        str,
        "totensor",
        "How samples become a batch: each to float tensors by torchvision's ToTensor and then stacked, or all at once "
        "from uint8 (fast).",
        choices=one_of("totensor", "fast"),
        idle=only("mode", "train", "load", "copy"),
    ),
    Axis(
        "normalize_on",
        str,
        "worker",
        "Where a batch that was collated from uint8 becomes floating-point: in the worker, or after it has reached the "
        "device. On CUDA the latter is no part of loading alone.",
        choices=one_of("worker", "device"),
        idle=only("collate", "fast"),
    ),
    Axis(
        "cache",
        str,
        "none",
        "What was prepared once and is read from disk afterwards: nothing, every transformed sample, or whole batches "
        "(the same ones every epoch, in a new order).",
        choices=one_of("none", "sample", "batch"),
        idle=all_of(loads_one_by_one, only("page_cache", "warm")),
    ),
    Axis(
        "index_kind",
        str,
        "none",
        "What the dataset keeps of every entry in memory: nothing, a list of dictionaries, numpy arrays, or one "
        "serialized buffer.",
        choices=one_of("none", "list", "numpy", "serialized"),
        idle=all_of(loads_one_by_one, only("page_cache", "warm"), only("cache", "none")),
    ),
    Axis(
        "index_entries",
        int,
        1000000,
        "Entries of that index; the packed samples stand for all of them in turn.",
        least=1,
        idle=only("index_kind", "list", "numpy", "serialized"),
    ),
)
