"""What a storage format costs: a row a cell that loads, with bytes on disk, packing, start-up and CPU beside its rate.

Cold and warm trials are credible only where the share of the packed set that was counted in the page cache, before
anything was opened, agrees, and cold ones only where they read their samples from storage (``window.READ_LEAST``); all
others are left out and counted. Random and sequential access, cold and warm, loading alone and an emulated step are
different questions: :data:`QUESTION` tells them apart, and nothing is compared across.

This does *not* show a disk alone: below the kernel its own cache, or that of a virtual machine's host, may hold data.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, blocks_of, by_block, memoized, over_blocks, successful
from feedrate.analysis.contrasts import filled, grouping_keys, off_default
from feedrate.analysis.estimate import columns_of
from feedrate.analysis.estimates import cells
from feedrate.analysis.loader import per_step
from feedrate.schema.axes import AXES, BY_NAME, LOADING, TRANSFER
from feedrate.schema.columns import WORKER_STAGES
from feedrate.schema.plugins import traits
from feedrate.schema.window import COLD, READ_LEAST, WARM, needed_bytes

OWN = ("decoder", "readahead", "swmr", "shuffle_buffer")
"""Knobs that only some formats have."""
_CHOSEN = ("storage_format", *OWN, *(axis.name for axis in (*LOADING, *TRANSFER)))
QUESTION = tuple(axis.name for axis in AXES if axis.name not in _CHOSEN)
"""Axes that a reader's images, disk and task give; the others can be chosen."""
_TRAITS = ("container", "stores", "lossy", "streamed")
_BYTES_OF_A_FLOAT = 4
"""A batch holds float32 where a packed sample has a byte of a pixel."""
BUSY_PCT, WAITING_PCT = 80.0, 5.0
"""The disk limits a cold cell whose CPUs are no busier than the first, and in which some task waits for storage for the
second share of the time, at least; else it is slow for another reason, and only its cache is cold."""
_READING = ("read_mb_s", "busy_pct", "io_pressure_pct")
PROVING = ("cached_before_pct", "read_bytes", "stored_bytes", "cache_bytes", "samples", "n_samples")
"""Columns that tell whether the page cache was as a trial's cell says; a cache on disk stands in for the packed set."""


def doubtful(trials: pd.DataFrame) -> pd.Series:
    """Trials that load samples and ended well although their page cache was not as their cell says."""
    cached, read, stored, stand_in, samples, n_samples = (
        trials[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in PROVING
    )
    needed = needed_bytes(np.where(np.isnan(stand_in), stored, stand_in), samples, n_samples)
    was_cold = (cached <= 100 * COLD) & (read >= READ_LEAST * needed)
    cold, full = (trials["page_cache"].eq(state).fillna(False).astype(bool) for state in ("cold", "full"))
    loads = trials["storage_format"].notna() & trials["outcome"].eq("ok").fillna(False)
    return loads.astype(bool) & ~full & np.where(cold, ~was_cold, cached < 100 * WARM)


@memoized
def credible(trials: pd.DataFrame) -> pd.DataFrame:
    """Keep the loading trials whose page cache was as their cell says.

    A warm trial that recorded no share (an older run) is kept: a set that is read over and over is warm. A cold one is
    not. Trials that failed are kept, so that a format that always fails is not overlooked.
    """
    return trials[trials["storage_format"].notna() & ~doubtful(trials)]


def believable(trials: pd.DataFrame) -> pd.DataFrame:
    """Take the throughput from loading trials whose page cache was not as their cell says."""
    return _without_doubtful(trials) if doubtful(trials).any() else trials


@memoized
def _without_doubtful(trials: pd.DataFrame) -> pd.DataFrame:
    return trials.assign(samples_per_s=trials["samples_per_s"].mask(doubtful(trials)))


def count_doubtful(trials: pd.DataFrame) -> dict[str, int]:
    """Count trials that ended well and were left out for their page cache: ``cold`` and ``warm`` to a number."""
    counts = trials.loc[doubtful(trials), "page_cache"].value_counts()
    return {str(state): int(count) for state, count in counts.items()}


@memoized
def format_costs(trials: pd.DataFrame) -> pd.DataFrame:
    """Estimate every loading cell of one run with what its format costs, by its credible trials.

    Returns:
        A row a cell: the columns of ``cells`` (``page_cache`` and ``access`` at their default where an older run has
        none), ``container``, ``stores``, ``lossy`` and ``streamed`` (traits of the format), ``sample_bytes`` (on disk,
        medians over trials), ``raw_bytes`` (the pixels of a sample, a byte each) and ``raw_share`` (their quotient),
        ``pack_s`` (one packing: no spread), ``startup_ms`` and ``cpu_us`` (CPU time of main process and workers a
        sample; geometric means over blocks) with their intervals, ``read_us_per_sample`` and so on for every worker
        stage (medians over trials of the workers' wall clock), ``read_mb_s``, ``busy_pct`` and ``io_pressure_pct``
        (medians over trials) and whether the disk is what limits a cold cell (``disk_limits``), ``cached_before_lo``,
        ``cached_before_hi`` and ``cached_after_hi`` (per cent; NaN where nothing was recorded).
    """
    kept = credible(trials)
    table = cells(kept)
    table = table.assign(**{name: filled(table, BY_NAME[name]) for name in ("page_cache", "access")})
    formats = {str(name): traits(str(name)) for name in table["storage_format"].unique()}
    for trait in _TRAITS:
        table[trait] = [getattr(formats[str(name)], trait) for name in table["storage_format"]]
    ended = successful(kept)
    single = _per_trial(ended)
    groups = single.groupby([ended[key] for key in KEYS])
    stages = [f"{stage}_us_per_sample" for stage in WORKER_STAGES]
    costs = pd.concat(
        [
            groups[["sample_bytes", "raw_bytes", "pack_s", *_READING, *stages]].median(),
            groups["cached_before"].agg(["min", "max"]).set_axis(["cached_before_lo", "cached_before_hi"], axis=1),
            groups["cached_after"].max().rename("cached_after_hi"),
            *(
                over_blocks(
                    by_block(ended, np.log(single[name].where(single[name] > 0))), columns_of(name), np.exp
                ).drop(columns="n")
                for name in ("startup_ms", "cpu_us")
            ),
        ],
        axis=1,
    )
    table = table.merge(costs.reset_index(), on=KEYS, how="left")
    waits = (table["busy_pct"] <= BUSY_PCT) & (table["io_pressure_pct"] >= WAITING_PCT)
    return table.assign(
        raw_share=table["sample_bytes"] / table["raw_bytes"], disk_limits=table["page_cache"].eq("cold") & waits
    )


def _per_trial(ended: pd.DataFrame) -> pd.DataFrame:
    """Float columns of every trial, by the index of ``ended``."""

    def floats(column: str) -> pd.Series:
        return ended[column].astype("float64")

    steps, batch = per_step(ended), floats("batch_size")
    alone = floats("num_workers").eq(0)
    workers = steps["workers_cpu"].mask(alone & steps["workers_cpu"].isna(), 0.0)
    columns = {
        "sample_bytes": floats("stored_bytes") / floats("n_samples"),
        "raw_bytes": floats("batch_bytes") / batch / _BYTES_OF_A_FLOAT,
        "pack_s": floats("pack_ns") / 1e9,
        "startup_ms": floats("startup_ns") / 1e6,
        "cpu_us": (steps["main_cpu"] + workers) / batch / 1e3,
        "read_mb_s": floats("read_bytes") / floats("wall_ns") * 1e3,
        "busy_pct": floats("cpu_util_pct"),
        "io_pressure_pct": floats("io_pressure_pct"),
        "cached_before": floats("cached_before_pct"),
        "cached_after": floats("cached_after_pct"),
        **{f"{stage}_us_per_sample": steps[f"worker_{stage}"] / batch / 1e3 for stage in WORKER_STAGES},
    }
    return pd.DataFrame(columns, index=ended.index)


@memoized
def plainest(table: pd.DataFrame) -> pd.DataFrame:
    """Of cells that differ in a format's own knobs alone keep one: with the fewest of them off their default.

    A cell without an estimate yields to one that has one.
    """
    off = off_default(table, (BY_NAME[name] for name in OWN))
    rank = pd.DataFrame({"failed": table["samples_per_s"].isna(), "off": off, "buffer": table["shuffle_buffer"]})
    order = rank.astype("float64").sort_values(["failed", "off", "buffer"], kind="stable").index
    same = ["run_id", *(axis.name for axis in AXES if axis.name not in OWN)]
    return table.loc[table.loc[order].drop_duplicates(same).index.sort_values()]


def scaling(trials: pd.DataFrame, table: pd.DataFrame | None = None) -> pd.DataFrame:
    """Compare every worker count of a format with the fewest that were measured, block by block, in one run.

    Returns:
        The cells of ``table`` (by default ``plainest(format_costs(trials))``) that ended well, with ``base_workers``,
        ``speedup`` (1 for the base) with its interval, and ``pairs`` (blocks).
    """
    table = plainest(format_costs(trials)) if table is None else table
    table = table[table["samples_per_s"].notna() & table["num_workers"].notna()]
    same = ["run_id", *(axis.name for axis in AXES if axis.name not in ("num_workers", "prefetch_factor"))]
    ordered = table.sort_values("num_workers", kind="stable")
    base = ordered.groupby(grouping_keys(ordered, same), dropna=False, sort=False)[["cell_id", "num_workers"]]
    first = base.transform("first").reindex(table.index)
    ratios = blocks_of(credible(trials)).ratios(list(table["run_id"]), list(first["cell_id"]), list(table["cell_id"]))
    ratios = ratios.set_axis(table.index).rename(
        columns={"ratio": "speedup", "lo": "speedup_lo", "hi": "speedup_hi", "n": "pairs"}
    )
    return table.assign(base_workers=first["num_workers"], **ratios[["speedup", "speedup_lo", "speedup_hi", "pairs"]])
