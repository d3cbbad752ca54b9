"""What workers cost beside time: starting them, memory, shared memory, switches; what is left of them at the end.

Every function takes the trials of one run. Start-up, switches and epochs compare cells that differ in nothing but
their workers; checks of how a training process ends need no comparison. Intervals are Student's t over blocks, single
ones without any correction for their number.

This does *not* show what an epoch longer than the window costs in memory: a page is copied once, so that growth slows
down as more of the index has been read, and ends when every worker holds all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, Floats, half_width, moments, successful
from feedrate.analysis.contrasts import filled
from feedrate.analysis.estimates import AXIS_NAMES, identities
from feedrate.schema.axes import AXES, BY_NAME

HOW = ("num_workers", "worker_kind", "start_method")
"""Axes that say which workers there are, and how they begin."""


def terminations(trials: pd.DataFrame) -> pd.DataFrame:
    """Sum up the checks of what becomes of workers when their training process ends.

    Returns:
        A row a way of ending, by the axes' order, unguarded first: ``ends_by``, ``guarded``, ``n`` (checks that ended
        well), ``left`` (those that saw workers left behind), ``gone_s`` (median of the seconds from the training
        process' end until the last worker was gone), ``gone_least_s``, ``gone_most_s``, ``evidence`` (of the check that
        took longest). Ways that were never checked to the end have no row.
    """
    by = ["ends_by", "guarded"]
    checks = trials[trials["check"].eq("termination").fillna(False) & trials["outcome"].eq("ok").fillna(False)]
    checks = checks[checks["fact"].notna() & checks["fact_value"].notna()]
    checks = checks.assign(**{name: filled(checks, BY_NAME[name]) for name in by})
    checks = checks.assign(fact=checks["fact"].astype(bool), fact_value=checks["fact_value"].astype("float64"))
    groups = checks.sort_values("fact_value", kind="stable").groupby(by, sort=False)
    found = groups.agg(
        n=("fact", "size"),
        left=("fact", "sum"),
        gone_s=("fact_value", "median"),
        gone_least_s=("fact_value", "min"),
        gone_most_s=("fact_value", "max"),
        evidence=("evidence", "last"),
    ).reset_index()
    ways = BY_NAME["ends_by"].choices
    place = found["ends_by"].map((list(ways()) if ways else []).index)
    return found.assign(place=place).sort_values(["place", "guarded"]).drop(columns="place").reset_index(drop=True)


def startup(trials: pd.DataFrame) -> pd.DataFrame:
    """Compare how long loaders take to their first batch, by number, kind and start method of their workers.

    Returns:
        A row a cell that loads alone and that another differs from in its workers only: ``run_id``, ``cell_id``, every
        axis (those of ``HOW`` at their default where they do not apply), ``setting`` (a number that cells which differ
        in their workers only share), ``startup_ms`` (geometric mean over blocks) with ``_lo`` and ``_hi``, and ``n``.
    """
    ended = _loading(trials)
    found = _over_blocks(ended, ended["startup_ns"].astype("float64") / 1e6, "startup_ms", np.log, np.exp)
    return _comparable(_cells(ended, found))


def switches(trials: pd.DataFrame) -> pd.DataFrame:
    """Compare how often the scheduler takes a core away from training process and workers, for a sample.

    Returns:
        A row a cell as :func:`startup` gives them, with ``involuntary_per_sample`` and ``voluntary_per_sample``
        (means over blocks), each with ``_lo`` and ``_hi``, and ``n``.
    """
    ended = _loading(trials)
    samples = ended["samples"].astype("float64")
    voluntary, involuntary = (
        _over_blocks(ended, ended[f"{name}_switches"].astype("float64") / samples, f"{name}_per_sample")
        for name in ("voluntary", "involuntary")
    )
    return _comparable(_cells(ended, pd.concat([voluntary.drop(columns="n"), involuntary], axis=1)))


def respawn(trials: pd.DataFrame) -> pd.DataFrame:
    """Say what starting workers anew adds to an epoch, against workers that live on.

    Returns:
        A row a pair of cells that differ in ``persistent_workers`` only, short epochs first: every axis (null in that
        one), ``anew_ms`` and ``kept_ms`` (wall clock ÷ epochs of the window, means over the blocks in which both ended
        well), ``respawn_ms`` (mean of their differences) with ``_lo`` and ``_hi``, and ``n``.
    """
    ended = successful(trials)
    ended = ended[ended["persistent_workers"].notna() & ended["epochs"].astype("float64").gt(0).fillna(False)]
    table = _blocks(ended, ended["wall_ns"].astype("float64") / ended["epochs"].astype("float64") / 1e6)
    cells = identities(ended).sort_values("epoch_steps", kind="stable")
    rows = []
    for _, part in cells.groupby(_setting(cells, ("persistent_workers",)), sort=False):
        sides = {bool(kept): key for kept, *key in part[["persistent_workers", *KEYS]].itertuples(index=False)}
        if len(sides) < 2:
            continue
        anew, kept = (table.loc[tuple(sides[side])].to_numpy(dtype=np.float64) for side in (False, True))
        both = np.isfinite(anew) & np.isfinite(kept)
        mean, sd, n = (each[0] for each in moments((anew - kept)[None, :]))
        half = float(half_width(sd, n))
        if both.any():
            numbers = {
                "anew_ms": anew[both].mean(),
                "kept_ms": kept[both].mean(),
                "respawn_ms": mean,
                "respawn_ms_lo": mean - half,
                "respawn_ms_hi": mean + half,
                "n": int(n),
            }
            rows.append({**part.iloc[0][list(AXIS_NAMES)], "persistent_workers": None, **numbers})
    columns = ("anew_ms", "kept_ms", "respawn_ms", "respawn_ms_lo", "respawn_ms_hi", "n")
    return pd.DataFrame(rows, columns=[*AXIS_NAMES, *columns])


def growth(trials: pd.DataFrame) -> pd.DataFrame:
    """Say how the memory of workers grows while they read through an index.

    Returns:
        A row a cell whose dataset keeps an index: ``run_id``, ``cell_id``, every axis, ``setting`` (a number that cells
        which differ in kind of index and start method only share), and means over blocks, each with ``_lo`` and
        ``_hi``: ``end_bytes`` (the workers' own memory after the window), ``grew_bytes`` (since the first batch; null
        where the warm-up was over before that could be read), ``epoch_bytes`` (as if an epoch went on at that pace:
        growth ÷ samples read × ``index_entries``; forked workers only, as others get their copy at the start and may
        still be unpacking it), ``rest_bytes`` (of everything else: training process, and what is shared); ``samples``
        (read since the first batch, give or take what workers had prefetched then), ``n``; and
        ``index_bytes`` with ``_lo`` and ``_hi`` (by which ``rest_bytes`` exceeds the least of its setting and start
        method, paired by block: by how much the index itself is larger than the leanest that was measured, whose own
        is null).
    """
    columns = ("workers_uss_start_bytes", "workers_uss_end_bytes", "pss_peak_bytes")
    ended = successful(trials)
    ended = ended[ended["index_entries"].notna() & ended["workers_uss_end_bytes"].notna()]
    start, end, everything = (ended[name].astype("float64") for name in columns)
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
    others = [_over_blocks(ended, values, name).drop(columns="n") for name, values in parts.items()]
    numbers = pd.concat([*others, _over_blocks(ended, end, "end_bytes")], axis=1)
    cells = _cells(ended, numbers.drop(columns=["samples_lo", "samples_hi"]))
    cells = cells.assign(setting=_setting(cells, ("index_kind", "start_method")))
    cells = cells.sort_values(["setting", "start_method", "index_kind"], kind="stable").reset_index(drop=True)
    groups = cells["rest_bytes"].fillna(np.inf).groupby([cells["setting"], filled(cells, BY_NAME["start_method"])])
    leanest = groups.transform("idxmin").to_numpy(dtype=np.intp)
    blocks = _blocks(ended, rest).reindex(pd.MultiIndex.from_frame(cells[KEYS])).to_numpy(dtype=np.float64)
    more = np.where((leanest == np.arange(len(cells)))[:, None], np.nan, blocks - blocks[leanest])
    mean, sd, n = moments(more)
    half = half_width(sd, n)
    return cells.assign(index_bytes=mean, index_bytes_lo=mean - half, index_bytes_hi=mean + half)


def shared_memory(trials: pd.DataFrame, limit_bytes: int | None = None) -> pd.DataFrame:
    """Say how much of /dev/shm is in use when a window ends, most first.

    What is in use belongs to everything that runs on the machine; trials follow each other, so that a trial's own share
    is what exceeds the others'.

    Args:
        trials: rows of ``records.TRIALS`` of one run.
        limit_bytes: size of /dev/shm; None where it was not recorded.

    Returns:
        A row a cell with worker processes: ``run_id``, ``cell_id``, every axis, ``batch_bytes``, ``ahead_bytes``
        (workers × prefetch_factor × batch_bytes: what may lie ready at once), ``shm_bytes`` (median over
        trials), ``shm_most_bytes``, ``shm_share`` (of ``limit_bytes``; NaN where that is not known) and ``n`` (trials).
    """
    ended = successful(trials)
    workers = ended["num_workers"].astype("float64").gt(0).fillna(False)
    processes = workers & ~ended["worker_kind"].eq("thread").fillna(False)
    ended = ended[processes & ended["shm_bytes"].notna()]
    numbers = (
        ended[[*KEYS, "batch_bytes", "shm_bytes"]]
        .astype({"batch_bytes": "float64", "shm_bytes": "float64"})
        .groupby(KEYS)
        .agg(
            batch_bytes=("batch_bytes", "median"),
            shm_bytes=("shm_bytes", "median"),
            shm_most_bytes=("shm_bytes", "max"),
            n=("shm_bytes", "size"),
        )
    )
    cells = _cells(ended, numbers)
    ahead = cells["num_workers"].astype("float64") * filled(cells, BY_NAME["prefetch_factor"]).astype("float64")
    limit = np.nan if limit_bytes is None else float(limit_bytes)
    cells = cells.assign(ahead_bytes=ahead * cells["batch_bytes"], shm_share=cells["shm_most_bytes"] / limit)
    return cells.sort_values("shm_most_bytes", ascending=False, kind="stable").reset_index(drop=True)


def _loading(trials: pd.DataFrame) -> pd.DataFrame:
    """Trials of the loader alone that ended well."""
    ended = successful(trials)
    return ended[ended["mode"].eq("load").fillna(False) & ended["num_workers"].notna()]


def _blocks(ended: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    """Values by cell and block, trials of one block averaged; NaN where there is none."""
    return values.groupby([ended[key] for key in (*KEYS, "block")]).mean().unstack("block")


def _over_blocks(
    ended: pd.DataFrame,
    values: pd.Series,
    name: str,
    scale: Callable[[Floats], Floats] = np.asarray,
    back: Callable[[Floats], Floats] = np.asarray,
) -> pd.DataFrame:
    """Mean over blocks with its 95 % interval, on a scale and back, and the number of blocks; a row a cell."""
    table = _blocks(ended, values)
    mean, sd, n = moments(scale(table.to_numpy(dtype=np.float64)))
    half = half_width(sd, n)
    ends = {name: back(mean), f"{name}_lo": back(mean - half), f"{name}_hi": back(mean + half), "n": n}
    return pd.DataFrame(ends, index=table.index)


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
