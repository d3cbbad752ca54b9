"""Compute every number on the page Claims anew from the runs' own files, without feedrate.

Type ``python recompute.py numbers.json results``. It needs NumPy, pandas and SciPy. Taken on trust: which cells make up
a claim and with which weights, which runs count, and which trials had another page cache than their cell says.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

# Of the methodology page.
ASSUMED, MOST, BELIEF, VAGUE, SPREAD_BELIEF = 0.0125, 0.03, 3, 1.75, 6


def logs_of(trials: pd.DataFrame, number: Any) -> pd.DataFrame:
    """Give the log of a metric, a row a block and a column a cell; a cell's trials of one block are averaged."""
    mine = trials[trials["cell_id"].isin(number["weights"]) & trials["outcome"].eq("ok")]
    logs = pd.Series(0.0, mine.index)
    for sign, factors, least in ((1, number["up"], number["least"]), (-1, number["down"], 0.0)):
        for columns in factors:
            total = mine[columns].astype("float64").sum(axis=1, skipna=False).clip(lower=least)
            logs += sign * np.log(total.where(total > 0) / (1e9 if columns[0].endswith("_ns") else 1))
    return logs.groupby([mine["block"], mine["cell_id"]]).mean().unstack().reindex(columns=list(number["weights"]))


def moments(runs: Any) -> Any:
    """Mean, variance of the mean and blocks of each run, and whether it is precise enough to count."""
    mean, sd, count = np.array([(values.mean(), values.std(ddof=1), len(values)) for values in runs]).T
    variance, counts = sd**2, np.ones(len(runs), dtype=bool)
    for _ in range(2):
        usual = ((count - 1) * sd**2)[counts].sum() / (count - 1)[counts].sum()
        variance = (SPREAD_BELIEF * usual + (count - 1) * sd**2) / (SPREAD_BELIEF + count - 1) / count
        counts = variance <= VAGUE**2 * variance.min()
    return mean, variance, count, counts


def between_runs(effects: Any) -> tuple[float, float]:
    """Variance of effects between runs, and its degrees of freedom, from all effects that several runs measured."""
    squares, freedom = BELIEF * ASSUMED**2, float(BELIEF)
    for mean, variance, _, counts in (moments(runs) for runs in effects if len(runs) > 1):
        used = counts if counts.sum() > 1 else np.ones_like(counts)
        weight = (used.sum() - 1) / (1 + variance[used].mean() / MOST**2) ** 2
        squares += weight * (mean[used].var(ddof=1) - variance[used].mean())
        freedom += weight
    return max(0.0, squares / freedom), freedom


def pooled(runs: Any, between: tuple[float, float]) -> dict[str, float]:
    """Ratio, interval and blocks over runs."""
    if len(runs) == 1:
        mean, error, n, freedom = runs[0].mean(), runs[0].sem(), len(runs[0]), len(runs[0]) - 1.0
    else:
        means, variances, blocks, counts = moments(runs)
        share = counts / np.maximum(between[0] + variances, np.finfo(float).tiny)
        share = share / share.sum()
        of_runs, of_blocks = (share**2).sum() * between[0], (share**2 * variances).sum()
        doubt = of_runs**2 / between[1] + of_blocks**2 / (blocks[counts] - 1).sum()
        mean, n, error = share @ means, blocks[counts].sum(), np.sqrt(of_runs + of_blocks)
        freedom = (of_runs + of_blocks) ** 2 / doubt if doubt else between[1]
    half = stats.t.ppf(0.975, freedom) * error
    return {"ratio": np.exp(mean), "lo": np.exp(mean - half), "hi": np.exp(mean + half), "n": n}


def compare(platform: Any, results: Path) -> list[tuple[str, Any, Any]]:
    """Compute the numbers of one machine: where each stands, what numbers.json has and what the runs give."""
    trials, effects = {}, platform["effects"]
    for run, left_out in platform["left_out"].items():
        table = pd.read_parquet(next(results.glob(f"*/{run}/trials.parquet")))
        trials[run] = table.set_index("trial_id").drop(left_out)
    tables = [[logs_of(trials[run], number) for run in number["runs"]] for number in effects]
    values = []
    for number, tables_of_runs in zip(effects, tables, strict=True):
        weights = np.array([*number["weights"].values()])
        sums = [(table @ weights - np.log(number["figure"] or 1)).dropna() for table in tables_of_runs]
        values.append([run_sums for run_sums in sums if len(run_sums) > 1] or [max(sums, key=len)])
    decide = [sums for number, sums in zip(effects, values, strict=True) if number["role"] in ("effect", "also")]
    between, numbers = between_runs(decide), []
    for number, sums, tables_of_runs in zip(effects, values, tables, strict=True):
        sides = np.exp(pd.concat(tables_of_runs).iloc[:, [0, -1]].mean())
        again = pooled(sums, between) | {"a_value": sides.iloc[0], "b_value": sides.iloc[1]}
        numbers += [(f"{number['name']}: {key}", number[key], again[key]) for key in again if key in number]
    for fact in platform["facts"]:
        rows = pd.concat([trials[run][trials[run]["cell_id"].eq(fact["cell"])] for run in fact["runs"]])
        seen = rows[rows["outcome"].eq("ok") & rows["fact"].notna()]["fact_value"]
        again = {"n": len(seen), "value": seen.median()}
        numbers += [(f"{fact['name']}: {key}", fact[key], again[key]) for key in again]
    return numbers


if __name__ == "__main__":
    platforms = json.loads(Path(sys.argv[1]).read_text())
    numbers = [row for platform in platforms for row in compare(platform, Path(sys.argv[2]))]
    differ = [row for row in numbers if not np.isclose(row[1], row[2], rtol=1e-9, equal_nan=True)]
    print(f"{len(numbers)} numbers compared, {len(differ)} differ", *differ, sep="\n")  # noqa: T201
    sys.exit(bool(differ) or not numbers)
