"""Inside the loader: what a sample costs its worker, and how much of loading and copying the step hides.

A step timer sees only that a batch was late. The workers' stamps say of every batch how long it was read, decoded,
transformed and collated; they are wall clock in the worker, so that a worker that shares its core is slower in all of
them. What a worker does between two batches (queues, pickling) is stamped by nobody.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, half_width, successful
from feedrate.analysis.ceilings import ALONE, BOUND, ceiling_ids, cells_with_ceilings
from feedrate.analysis.estimates import cells, rows_of
from feedrate.schema.columns import DEVICE_SPANS, PHASES, WORKER_STAGES

FETCHING = 0.5
"""Share of the workers' stamped time from which on reading is what holds a loader back."""


def per_step(trials: pd.DataFrame) -> pd.DataFrame:
    """Divide what every trial summed up by its steps.

    Returns:
        A row a trial that ended well, its index kept: ``run_id``, ``cell_id``, ``block``, then per step in ns ``wall``,
        each host phase by its name, ``worker_<stage>`` of each stage, ``device_h2d`` and ``device_h2d_exposed``,
        ``device_span`` (exposed copy, forward, backward and optimizer, which follow each other); and the CPU time of
        ``main`` and ``workers`` as ``main_cpu`` and ``workers_cpu``. NaN where the column is null.
    """
    ended = successful(trials)
    steps = ended["steps"].astype("float64")
    sums = {
        "wall": "wall_ns",
        **{phase: f"host_{phase}_ns" for phase in PHASES},
        **{f"worker_{stage}": f"worker_{stage}_ns" for stage in WORKER_STAGES},
        **{f"device_{span}": f"device_{span}_ns" for span in DEVICE_SPANS if span != "idle"},
    }
    columns = {name: ended[column].astype("float64") / steps for name, column in sums.items()}
    spans = [columns.pop(f"device_{phase}") for phase in ("forward", "backward", "optimizer")]
    columns["device_span"] = pd.concat([columns["device_h2d_exposed"], *spans], axis=1).sum(axis=1, min_count=1)
    for process in ("main", "workers"):
        columns[f"{process}_cpu"] = ended[f"{process}_cpu_pct"].astype("float64") / 100 * columns["wall"]
    return pd.concat([ended[[*KEYS, "block"]], pd.DataFrame(columns, index=ended.index)], axis=1)


def stages(trials: pd.DataFrame) -> pd.DataFrame:
    """Say what each cell's loader spends its workers' time on.

    Returns:
        A row a cell whose batches were stamped: ``run_id``, ``cell_id``, ``n`` (trials), medians over trials of
        ``<stage>_us_per_sample`` (collating a batch ÷ its samples), ``<stage>_share`` of the workers' own time,
        ``dominant`` (the stage with the largest share), ``worker_busy_share`` (the workers' stamped time ÷ (workers ×
        wall clock); of the training process where there are no workers), and ``bound``: where the cell is loader-bound
        or loads alone, ``fetch-bound`` if reading has half of the workers' time or more, else ``preparation-bound``
        (decoding, transforming, collating); null where something else holds the cell back. The stamps cannot tell
        reading a disk from reading the page cache.
    """
    single = per_step(trials)
    names = [f"worker_{stage}" for stage in WORKER_STAGES]
    single["busy"] = single[names].sum(axis=1, skipna=False)
    single[names] = single[names].div(single["busy"], axis=0)
    single["busy_share"] = single["busy"] / single["wall"]
    groups = single.dropna(subset=names).groupby(KEYS, sort=False)
    middle = groups[[*names, "busy", "busy_share"]].median().assign(n=groups.size())
    known = cells_with_ceilings(trials)[[*KEYS, "batch_size", "num_workers", "bottleneck"]]
    found = known.merge(middle.reset_index(), on=KEYS)
    shares = found[names].set_axis(WORKER_STAGES, axis=1)
    costs = found["busy"] / found["batch_size"].astype("float64") / 1000
    bound = pd.Series(np.where(shares["read"] >= FETCHING, "fetch-bound", "preparation-bound"), found.index)
    return found[[*KEYS, "n"]].assign(
        **{f"{stage}_us_per_sample": shares[stage] * costs for stage in WORKER_STAGES},
        **{f"{stage}_share": shares[stage] for stage in WORKER_STAGES},
        dominant=shares.idxmax(axis=1) if len(found) else [],
        worker_busy_share=found["busy_share"] / np.maximum(1, found["num_workers"].astype("float64")),
        bound=bound.where(found["bottleneck"].isin((BOUND["load"], ALONE["load"])), None),
    )


def _hidden(shares: pd.DataFrame, name: str) -> pd.DataFrame:
    """Mean over blocks with its 95 % Student-t interval, all clipped to [0, 1]."""
    groups = shares.groupby(KEYS)[f"{name}_hidden"]
    mean, n = groups.mean(), groups.count()
    half = half_width(groups.std(), n)
    ends = {f"{name}_hidden": mean, f"{name}_hidden_lo": mean - half, f"{name}_hidden_hi": mean + half}
    return pd.DataFrame({column: values.clip(0, 1) for column, values in ends.items()}).assign(**{f"{name}_n": n})


def overlap(trials: pd.DataFrame) -> pd.DataFrame:
    """Say how much of loading and of copying a training step hides.

    Loading is hidden as far as the training process does not wait for it: 1 - (fetch wait a step ÷ what the loader
    alone takes for a batch), paired by block. What taking a finished batch from a worker costs is waited for too, so
    that 1 is not reached. Copying is hidden as far as the compute stream does not wait for it: 1 - exposed copy ÷ copy.

    Args:
        trials: rows of ``records.TRIALS`` of any number of runs; the loader alone is the cell of mode load that is the
            training cell's ceiling.

    Returns:
        A row a training cell: ``run_id``, ``cell_id``, ``load_batch_ms`` (median over the paired blocks),
        ``fetch_wait_ms`` (median), ``fetch_hidden`` with its 95 % interval over blocks ``fetch_hidden_lo``,
        ``fetch_hidden_hi`` and ``fetch_n``; ``copy_hidden``, ``copy_hidden_lo``, ``copy_hidden_hi``, ``copy_n``; shares
        lie in [0, 1], NaN where the run has no such ceiling, no CUDA, or (intervals) fewer than two
        blocks. Without workers nothing is hidden.
    """
    estimates = cells(trials)
    training = estimates[estimates["mode"].eq("train").fillna(False) & estimates["num_workers"].notna()]
    load_ids = pd.Series([ceiling_ids(row).get("load") for row in rows_of(training)], training.index, dtype=object)
    pairs = training[[*KEYS, "num_workers"]].assign(load_id=load_ids).dropna(subset=["load_id"])
    blocks = per_step(trials).groupby([*KEYS, "block"]).mean().reset_index()
    alone = blocks[["run_id", "cell_id", "block", "wall"]].rename(columns={"cell_id": "load_id", "wall": "load"})
    single = pairs.merge(blocks, on=KEYS).merge(alone, on=["run_id", "load_id", "block"], how="left")
    hidden = 1 - single["fetch"] / single["load"]
    single["fetch_hidden"] = hidden.mask(single["num_workers"].eq(0) & hidden.notna(), 0.0)
    single["copy_hidden"] = 1 - single["device_h2d_exposed"] / single["device_h2d"]
    milliseconds = single.groupby(KEYS)[["load", "fetch"]].median() / 1e6
    milliseconds = milliseconds.set_axis(["load_batch_ms", "fetch_wait_ms"], axis=1)
    found = pd.concat([milliseconds, _hidden(single, "fetch"), _hidden(single, "copy")], axis=1)
    return pairs[KEYS].merge(found.reset_index(), on=KEYS)
