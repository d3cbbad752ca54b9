"""Numbers of README and home page, computed anew from the raw records with numpy, pandas and scipy alone.

What a cell is is taken from the words of the pages themselves.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from feedrate.pages.runs import RunView
from feedrate.schema.axes import AXES, BY_NAME, Value
from feedrate.schema.metrics import METRICS
from feedrate.schema.plugins import ROOT
from feedrate.store import runs

RESULTS = ROOT / "results"
NUMBER = r"([\d,]*\.?\d+)"
SPREAD = rf"95\s% interval {NUMBER} to {NUMBER}, n = (\d+)"


def number(text: str) -> float:
    return float(text.replace(",", ""))


def digits(value: float, count: int = 3) -> float:
    """A number as it is printed: with so many significant digits."""
    return float(f"{value:.{count}g}")


def axes(parts: Sequence[str]) -> dict[str, Value]:
    """The axes that words of the README name: ``batch 32``, ``2 workers``, ``cold page cache``, ``pin_memory true``."""
    spoken: dict[str, dict[str, Value]] = {
        "real training": {"mode": "train"},
        "emulated step": {"mode": "train", "step": "emulated"},
        "loading alone": {"mode": "load"},
        "cold page cache": {"page_cache": "cold"},
        "in stored order": {"access": "sequential"},
    }
    found: dict[str, Value] = {}
    for part in filter(None, parts):
        first, _, rest = part.partition(" ")
        if part in spoken:
            found |= spoken[part]
        elif rest in ("worker", "workers"):
            found["num_workers"] = int(first)
        elif rest == "ms a step":
            found["step_ms"] = float(first)
        elif first == "batch":
            found["batch_size"] = int(rest)
        elif not rest:
            found["storage_format"] = part
        else:
            found[first] = rest == "true" if BY_NAME[first].type is bool else BY_NAME[first].type(rest)
    return found


def matching(trials: pd.DataFrame, values: Mapping[str, Value], among: Sequence[str]) -> pd.DataFrame:
    """Trials that ended well with some values, and every other of the axes at its default or without meaning."""
    chosen = trials["outcome"].eq("ok")
    for name in among:
        default = BY_NAME[name].default
        wanted = values.get(name, default)
        chosen &= trials[name].eq(wanted).fillna(wanted == default)
    return trials[chosen]


def logs(trials: pd.DataFrame, values: Mapping[str, Value], metric: str = "throughput") -> pd.Series:
    """Mean log of a metric by block, of the one cell that has some values and else the defaults."""
    rows = matching(trials, values, [axis.name for axis in AXES])
    assert rows["cell_id"].nunique() == 1, (values, rows["cell_id"].unique())
    if metric == "throughput":
        up, down = ("samples",), ("wall_ns",)
    else:
        up, down = METRICS[metric].up, METRICS[metric].down
    each = sum(np.log(rows[name].astype(float)) for name in up) - sum(np.log(rows[name].astype(float)) for name in down)
    return each.groupby(rows["block"]).mean()


def interval(values: pd.Series) -> list[float]:
    """Geometric mean and 95 % Student-t interval of logs by block, three digits each, and the number of blocks."""
    known = values.dropna()
    half = stats.t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known))
    return [*(digits(np.exp(known.mean() + shift)) for shift in (0.0, -half, half)), len(known)]


def committed() -> list[RunView]:
    """Runs that git knows, newest first: what somebody measured besides is not published. Without git, all of them."""
    asked = ["git", "ls-files", "results/*/*/run.json"]
    listed = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    folders = [(ROOT / name).parent for name in listed] or None
    return [RunView(run) for run in reversed(runs.runs(RESULTS, folders))]
