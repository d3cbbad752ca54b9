"""What the probes saw over a run, thinned to what a picture can show.

The probes look ten times a second, a run lasts minutes to hours. Its time is cut into equal bins; of every quantity a
bin keeps the mean, the least and the most of its samples, so that no peak is lost. The same samples always give the
same bins. What is seen is described, not estimated: neighbouring samples depend on one another, and a mean of theirs
has no interval.

Samples are taken while a trial runs; between trials, while a fresh process gets ready, nobody looks, and bins without a
sample stay empty.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

BINS = 120
"""Points of a line; a wide picture gives each of them five pixels."""
LEAST_BIN_S = 0.5
"""In which five samples lie."""
GIB = 2**30
DIRECT = {
    "load": ("load_1m", 1.0),
    "steal": ("steal_pct", 1.0),
    "memory": ("mem_available_bytes", 1.0 / GIB),
    "gpu_util": ("gpu_util_pct", 1.0),
    "gpu_power": ("gpu_power_w", 1.0),
    "gpu_memory": ("gpu_mem_bytes", 1.0 / GIB),
}
"""Quantity to its column of ``columns.TELEMETRY``, and what that is multiplied by."""
CPU = ("main", "workers", "others")
"""Who uses the cores: the training process, its workers, everything else; in cores."""
QUANTITIES = (*CPU, *DIRECT)


def in_order(samples: pd.DataFrame) -> pd.DataFrame:
    """Put samples on one clock that never goes back, in seconds.

    A run that was resumed counts its time on from the trials that it had, without the pauses between them: its first
    samples can then lie before the last of the run that was interrupted, and are moved behind them.
    """
    timed = samples.assign(t_s=samples["t_ns"].to_numpy(dtype=np.float64) / 1e9)
    ends = timed.groupby(["block", "position", "trial_id"], sort=True)["t_s"].agg(["min", "max"])
    overlaps = (ends["max"].shift(1) - ends["min"]).clip(lower=0.0).fillna(0.0)
    moved = overlaps.cumsum().droplevel(["block", "position"])
    timed["t_s"] += timed["trial_id"].map(moved).astype("float64")
    return timed.assign(t_s=timed["t_s"] - timed["t_s"].min()).sort_values("t_s", kind="stable").reset_index(drop=True)


def quantities(samples: pd.DataFrame, cores: float | None = None) -> pd.DataFrame:
    """Turn samples into ``QUANTITIES``; what others used is not known without the number of cores."""
    main, workers, every = (
        samples[f"{name}_pct"].astype("float64") / 100 for name in ("main_cpu", "workers_cpu", "cpu_util")
    )
    rest = every * (cores if cores else np.nan) - main.fillna(0.0) - workers.fillna(0.0)
    columns = {"main": main, "workers": workers, "others": rest.clip(lower=0.0)}
    columns |= {name: samples[column].astype("float64") * scale for name, (column, scale) in DIRECT.items()}
    return pd.DataFrame(columns, index=samples.index)


def binned(samples: pd.DataFrame, cores: float | None = None) -> pd.DataFrame:
    """Cut a run's time into equal bins and sum up each: mean, ``_least`` and ``_most`` of ``QUANTITIES``, and ``n``."""
    whole = float(samples["t_s"].max()) if len(samples) else 0.0
    count = max(1, min(BINS, int(whole / LEAST_BIN_S)))
    width = whole / count if whole else 1.0
    bin_index = np.minimum((samples["t_s"].to_numpy(dtype=np.float64) / width).astype(np.int64), count - 1)
    groups = quantities(samples, cores).groupby(bin_index)
    ends = [groups.min().add_suffix("_least"), groups.max().add_suffix("_most")]
    every = pd.RangeIndex(count)
    bins = pd.concat([groups.mean(), *ends, groups.size().rename("n")], axis=1).reindex(every)
    bins["n"] = bins["n"].fillna(0).astype("int64")
    return bins.assign(from_s=width * every.to_numpy(), to_s=width * (every.to_numpy() + 1))
