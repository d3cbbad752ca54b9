"""What loading costs: a sample its worker, a step its waiting, and workers beside time.

A step timer sees only that a batch was late. The workers' stamps say of every batch how long it was read, decoded,
transformed and collated; they are wall clock in the worker, so that a worker that shares its core is slower in all of
them. What a worker does between two batches (queues, pickling) is stamped by nobody.

Start-up and epochs compare cells of one run that differ in nothing but their workers. What memory grows by in
a window does *not* show an epoch that is longer: a page is copied once, so that growth slows down as more of the index
has been read, and ends when every worker holds all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, by_block, over_blocks, successful
from feedrate.analysis.ceilings import ALONE, BOUND, ceiling_ids, cells_with_ceilings
from feedrate.analysis.contrasts import filled
from feedrate.analysis.estimate import as_columns, columns_of, moments
from feedrate.analysis.estimates import AXIS_NAMES, cells, identities, rows_of
from feedrate.schema.axes import AXES, BY_NAME
from feedrate.schema.columns import DEVICE_SPANS, PHASES, WORKER_STAGES
from feedrate.schema.plugins import loader_traits, names

FETCHING = 0.5
"""Share of the workers' stamped time from which on reading is what holds a loader back."""
HOW = ("num_workers", "loader", "start_method")
"""Axes that say which workers there are, and how they begin."""


def per_step(trials: pd.DataFrame) -> pd.DataFrame:
    """Divide what every trial summed up by its steps.

    Returns:
        A row a trial that ended well, its index kept, with ``block`` and per step in ns ``wall``, each host phase by
        its name, ``worker_<stage>`` of each stage, ``device_h2d`` and ``device_h2d_exposed``, ``device_span`` (exposed
        copy, forward, backward and optimizer, which follow each other), and the CPU time ``main_cpu`` and
        ``workers_cpu``. NaN where the column is null.
    """
    ended = successful(trials)
    steps = ended["steps"].astype("float64")
    sums = {
        "wall": "wall_ns",
        **{phase: f"host_{phase}_ns" for phase in PHASES},
        **{f"worker_{stage}": f"worker_{stage}_ns" for stage in WORKER_STAGES},
        **{f"device_{span}": f"device_{span}_ns" for span in DEVICE_SPANS if span != "idle"},
    }
    times = {name: ended[column].astype("float64") / steps for name, column in sums.items()}
    spans = [times.pop(f"device_{phase}") for phase in ("forward", "backward", "optimizer")]
    times["device_span"] = pd.concat([times["device_h2d_exposed"], *spans], axis=1).sum(axis=1, min_count=1)
    for process in ("main", "workers"):
        times[f"{process}_cpu"] = ended[f"{process}_cpu_pct"].astype("float64") / 100 * times["wall"]
    return pd.concat([ended[[*KEYS, "block"]], pd.DataFrame(times, index=ended.index)], axis=1)


def stages(trials: pd.DataFrame) -> pd.DataFrame:
    """Say what each cell's loader spends its workers' time on.

    Returns:
        A row a cell whose batches were stamped: ``n`` (trials), medians over trials of ``<stage>_us_per_sample``
        (collating a batch ÷ its samples), ``<stage>_share`` of the workers' own time,
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
    bottlenecks = cells_with_ceilings(trials)[[*KEYS, "batch_size", "num_workers", "bottleneck"]]
    costly = bottlenecks.merge(middle.reset_index(), on=KEYS)
    shares = costly[names].set_axis(WORKER_STAGES, axis=1)
    costs = costly["busy"] / costly["batch_size"].astype("float64") / 1000
    bound = pd.Series(np.where(shares["read"] >= FETCHING, "fetch-bound", "preparation-bound"), costly.index)
    return costly[[*KEYS, "n"]].assign(
        **{f"{stage}_us_per_sample": shares[stage] * costs for stage in WORKER_STAGES},
        **{f"{stage}_share": shares[stage] for stage in WORKER_STAGES},
        dominant=shares.idxmax(axis=1) if len(costly) else [],
        worker_busy_share=costly["busy_share"] / np.maximum(1, costly["num_workers"].astype("float64")),
        bound=bound.where(costly["bottleneck"].isin((BOUND["load"], ALONE["load"])), None),
    )


def overlap(trials: pd.DataFrame) -> pd.DataFrame:
    """Say how much of loading and of copying a training step hides.

    Loading is hidden as far as the training process does not wait for it: 1 - (fetch wait a step ÷ what the loader
    alone takes for a batch), paired by block. What taking a finished batch from a worker costs is waited for too, so
    that 1 is not reached. Copying is hidden as far as the compute stream does not wait for it: 1 - exposed copy ÷ copy.
    Without workers nothing is hidden.

    Returns:
        A row a training cell: ``load_batch_ms`` (of its ceiling of mode load) and ``fetch_wait_ms``, medians over
        blocks; ``fetch_hidden`` and ``copy_hidden`` with their intervals, cut off at 0 and 1, and ``fetch_n`` and
        ``copy_n`` blocks; NaN where the run has no such ceiling or no CUDA.
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
    hidden_parts = []
    for name in ("fetch", "copy"):
        spread = over_blocks(by_block(single, single[f"{name}_hidden"]), columns_of(f"{name}_hidden"))
        hidden_parts.append(spread.drop(columns="n").clip(0, 1).assign(**{f"{name}_n": spread["n"]}))
    numbers = pd.concat([milliseconds, *hidden_parts], axis=1)
    return pairs[KEYS].merge(numbers.reset_index(), on=KEYS)


def terminations(trials: pd.DataFrame) -> pd.DataFrame:
    """Sum up the checks of what becomes of workers when their training process ends.

    Returns:
        A row a way of ending that was checked to the end, by the axes' order, unguarded first: ``ends_by``,
        ``guarded``, ``n`` (checks), ``left`` (those that saw workers left behind), ``gone_s`` (median of the seconds
        from the training process' end until the last worker was gone), ``gone_least_s``, ``gone_most_s``, ``evidence``
        (of the check that took longest).
    """
    by = ["ends_by", "guarded"]
    checks = trials[trials["check"].eq("termination").fillna(False) & trials["outcome"].eq("ok").fillna(False)]
    checks = checks[checks["fact"].notna() & checks["fact_value"].notna()]
    checks = checks[filled(checks, BY_NAME["first_process"]).eq("reaps")]
    checks = checks.assign(**{name: filled(checks, BY_NAME[name]) for name in by})
    checks = checks.assign(fact=checks["fact"].astype(bool), fact_value=checks["fact_value"].astype("float64"))
    groups = checks.sort_values("fact_value", kind="stable").groupby(by, sort=False)
    endings = groups.agg(
        n=("fact", "size"),
        left=("fact", "sum"),
        gone_s=("fact_value", "median"),
        gone_least_s=("fact_value", "min"),
        gone_most_s=("fact_value", "max"),
        evidence=("evidence", "last"),
    ).reset_index()
    ways = BY_NAME["ends_by"].choices
    order = endings["ends_by"].map((list(ways()) if ways else []).index)
    return endings.assign(place=order).sort_values(["place", "guarded"]).drop(columns="place").reset_index(drop=True)


def startup(trials: pd.DataFrame) -> pd.DataFrame:
    """Compare how long loaders take to their first batch, by number, kind and start method of their workers.

    Returns:
        A row a cell that loads alone and that another differs from in its workers only: every axis (those of ``HOW`` at
        their default where they do not apply), ``setting`` (a number that cells which differ in their workers only
        share), ``startup_ms`` (geometric mean over blocks) with its interval, and ``n``.
    """
    ended = _loading(trials)
    logs = np.log(by_block(ended, ended["startup_ns"].astype("float64") / 1e6))
    times = over_blocks(logs, columns_of("startup_ms"), np.exp)
    return _comparable(_cells(ended, times))


def respawn(trials: pd.DataFrame) -> pd.DataFrame:
    """Say what starting workers anew adds to an epoch, against workers that live on.

    Returns:
        A row a pair of cells that differ in ``persistent_workers`` only, short epochs first: every axis (null in that
        one), ``anew_ms`` and ``kept_ms`` (wall clock ÷ epochs of the window, means over the blocks in which both ended
        well), ``respawn_ms`` (mean of their differences) with its interval, and ``n``.
    """
    ended = successful(trials)
    ended = ended[ended["persistent_workers"].notna() & ended["epochs"].astype("float64").gt(0).fillna(False)]
    table = by_block(ended, ended["wall_ns"].astype("float64") / ended["epochs"].astype("float64") / 1e6).unstack(
        "block"
    )
    cells = identities(ended).sort_values("epoch_steps", kind="stable")
    cells = cells.assign(setting=_setting(cells, ("persistent_workers",)))
    lives_on = cells["persistent_workers"].astype(bool)
    pairs = cells[~lives_on].merge(cells[lives_on], on=["run_id", "setting"], suffixes=("", "_kept"))
    pairs = pairs.sort_values("setting", kind="stable")
    anew, kept = (
        table.reindex(pd.MultiIndex.from_frame(pairs[["run_id", name]])).to_numpy(dtype=np.float64)
        for name in ("cell_id", "cell_id_kept")
    )
    longer = moments(anew - kept)
    epochs = pairs[list(AXIS_NAMES)].assign(
        persistent_workers=None,
        anew_ms=moments(np.where(np.isfinite(kept), anew, np.nan)).mean,
        kept_ms=moments(np.where(np.isfinite(anew), kept, np.nan)).mean,
        **as_columns(columns_of("respawn_ms"), longer, np.asarray),
    )
    both: pd.DataFrame = epochs[longer.n > 0]
    return both.reset_index(drop=True)


def growth(trials: pd.DataFrame) -> pd.DataFrame:
    """Say how the memory of workers grows while they read through an index.

    Returns:
        A row a cell whose dataset keeps an index: every axis, ``setting`` (a number that cells which differ in kind of
        index and start method only share), and means over ``n`` blocks with their intervals: ``end_bytes`` (the
        workers' own memory after the window), ``grew_bytes`` (since the first batch; null where the warm-up was over
        before that could be read), ``epoch_bytes`` (as if an epoch went on at that pace: growth ÷ samples read ×
        ``index_entries``; forked workers only, as others get their copy at the start and may still be unpacking it),
        ``rest_bytes`` (of everything else: training process, and what is shared), ``index_bytes`` (by which
        ``rest_bytes`` exceeds the leanest of its setting and start method, paired by block; null for that one);
        ``samples`` (read since the first batch, give or take what workers had prefetched then).
    """
    memory = ("workers_uss_start_bytes", "workers_uss_end_bytes", "pss_peak_bytes")
    ended = successful(trials)
    ended = ended[ended["index_entries"].notna() & ended["workers_uss_end_bytes"].notna()]
    start, end, everything = (ended[name].astype("float64") for name in memory)
    steps = ended["warmup_steps"].astype("float64") + ended["steps"].astype("float64")
    read = steps * ended["batch_size"].astype("float64")
    forked = ended["start_method"].eq("fork").fillna(False)
    rest = everything - end
    parts = {
        "grew_bytes": end - start,
        "epoch_bytes": ((end - start) / read * ended["index_entries"].astype("float64")).where(forked),
        "rest_bytes": rest,
        "samples": read,
    }
    others = [
        over_blocks(by_block(ended, values), columns_of(name)).drop(columns="n") for name, values in parts.items()
    ]
    numbers = pd.concat([*others, over_blocks(by_block(ended, end), columns_of("end_bytes"))], axis=1)
    cells = _cells(ended, numbers.drop(columns=["samples_lo", "samples_hi"]))
    cells = cells.assign(setting=_setting(cells, ("index_kind", "start_method")))
    cells = cells.sort_values(["setting", "start_method", "index_kind"], kind="stable").reset_index(drop=True)
    groups = cells["rest_bytes"].fillna(np.inf).groupby([cells["setting"], filled(cells, BY_NAME["start_method"])])
    leanest = groups.transform("idxmin").to_numpy(dtype=np.intp)
    table = by_block(ended, rest).unstack("block")
    blocks = table.reindex(pd.MultiIndex.from_frame(cells[KEYS])).to_numpy(dtype=np.float64)
    more = np.where((leanest == np.arange(len(cells)))[:, None], np.nan, blocks - blocks[leanest])
    mine = as_columns(columns_of("index_bytes"), moments(more), np.asarray)
    return cells.assign(**{name: values for name, values in mine.items() if name != "n"})


def shared_memory(trials: pd.DataFrame, limit_bytes: int | None = None) -> pd.DataFrame:
    """Say how much of /dev/shm is in use when a window ends, most first.

    What is in use belongs to everything that runs on the machine; trials follow each other, so that a trial's own share
    is what exceeds the others'. ``limit_bytes`` is the size of /dev/shm, None where it was not recorded.

    Returns:
        A row a cell with worker processes: every axis, ``batch_bytes``, ``ahead_bytes`` (workers × prefetch_factor ×
        batch_bytes: what may lie ready at once), ``shm_bytes`` (median over trials), ``shm_most_bytes``, ``shm_share``
        (of ``limit_bytes``) and ``n`` (trials).
    """
    ended = successful(trials)
    workers = ended["num_workers"].astype("float64").gt(0).fillna(False)
    threads = [name for name in names("feedrate.loaders") if loader_traits(name).workers == "threads"]
    processes = workers & ~ended["loader"].isin(threads)
    ended = ended[processes & ended["shm_bytes"].notna()]
    measured = ended.astype({"batch_bytes": "float64", "shm_bytes": "float64"}).groupby(KEYS)
    numbers = measured[["batch_bytes", "shm_bytes"]].median()
    numbers = numbers.assign(shm_most_bytes=measured["shm_bytes"].max(), n=measured.size())
    cells = _cells(ended, numbers)
    ahead = cells["num_workers"].astype("float64") * filled(cells, BY_NAME["prefetch_factor"]).astype("float64")
    limit = np.nan if limit_bytes is None else float(limit_bytes)
    cells = cells.assign(ahead_bytes=ahead * cells["batch_bytes"], shm_share=cells["shm_most_bytes"] / limit)
    return cells.sort_values("shm_most_bytes", ascending=False, kind="stable").reset_index(drop=True)


def _loading(trials: pd.DataFrame) -> pd.DataFrame:
    """Trials of the loader alone that ended well."""
    ended = successful(trials)
    return ended[ended["mode"].eq("load").fillna(False) & ended["num_workers"].notna()]


def _cells(ended: pd.DataFrame, numbers: pd.DataFrame) -> pd.DataFrame:
    """Add numbers to the cells that have them."""
    cells = identities(ended)[[*KEYS, *AXIS_NAMES]]
    return cells.merge(numbers[numbers["n"] > 0].reset_index(), on=KEYS)


def _setting(cells: pd.DataFrame, free: Sequence[str]) -> pd.Series:
    """Number the cells by what they share: every axis but the free ones, at its default where it does not apply."""
    fixed = [filled(cells, axis).rename(axis.name) for axis in AXES if axis.name not in free]
    return cells.groupby([cells["run_id"], *fixed], sort=False).ngroup()


def _comparable(cells: pd.DataFrame) -> pd.DataFrame:
    """Keep the cells that another differs from in its workers only; the settings with most of them come first."""
    cells = cells.assign(**{name: filled(cells, BY_NAME[name]) for name in HOW}, setting=_setting(cells, HOW))
    several = -cells.groupby("setting")["cell_id"].transform("nunique")
    ordered = cells.assign(several=several)[several < -1].sort_values(["several", "setting", *HOW], kind="stable")
    return ordered.drop(columns="several").reset_index(drop=True)
