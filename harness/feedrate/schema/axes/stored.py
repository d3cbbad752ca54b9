"""Axes of the packed samples: how they lie on disk and in which order they are read."""

from __future__ import annotations

from feedrate.schema.axes._axis import LOADS, PHOTOS, Axis, format_has, one_of, only, streams
from feedrate.schema.plugins import names

STORED: tuple[Axis, ...] = (
    Axis(
        "storage_format", str, "png", "How samples lie on disk.", choices=lambda: names("feedrate.formats"), idle=LOADS
    ),
    Axis(
        "page_cache",
        str,
        "warm",
        "Whether the packed samples lie in the system's page cache when a trial begins: all of them, or none. A cold "
        "trial reads every sample once at most.",
        choices=one_of("warm", "cold"),
        idle=LOADS,
    ),
    Axis(
        "access",
        str,
        "random",
        "Order of the samples: a new permutation each epoch, or as they lie on disk.",
        choices=one_of("random", "sequential"),
        idle=LOADS,
    ),
    Axis(
        "shuffle_buffer",
        int,
        0,
        "Where samples are streamed from shards: how many each worker holds to draw the next one from; 0 keeps the "
        "order of the shard. The order of the shards is shuffled every epoch.",
        unit="samples",
        least=0,
        idle=streams,
    ),
    Axis(
        "decoder",
        str,
        "pil",
        "The library that decodes stored image files.",
        choices=lambda: names("feedrate.formats.decoders"),
        idle=format_has("decoder"),
    ),
    Axis(
        "readahead",
        bool,
        True,
        "LMDB: whether the kernel may read ahead of what is asked for.",
        idle=format_has("readahead"),
    ),
    Axis(
        "swmr",
        bool,
        False,
        "HDF5: whether the file is opened for reading while another process may write it.",
        idle=format_has("swmr"),
    ),
    Axis("n_samples", int, 1024, "Samples in the set.", unit="samples", least=1, idle=LOADS),
    Axis("patch_size", int, 64, "Height and width of a sample.", unit="pixels", least=4),
    Axis(
        "scale",
        int,
        2,
        "Super-resolution factor: the input is downsampled and upsampled (bicubic) by it.",
        least=2,
        idle=only("workload", *PHOTOS),
    ),
)
