"""Which format to use, from the numbers alone: the set that cannot be told from the best, cheapest first.

A question is given by the images, the order in which they are read and the state of the page cache; format, workers,
batch size and a format's own knobs can be chosen. What loses information answers another question than what does not:
lossy formats are never candidates, only named beside them. The best of many is picked by its own estimate, which is
therefore a little too good; that is why the answer is a set.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from harness.analysis.blocks import Blocks, blocks_of
from harness.analysis.contrasts import keys_of
from harness.analysis.storage import QUESTION, believed, stored
from harness.analysis.storage_effects import PIXELS

SPEED, SPACE, LOSSY = "speed", "space", "lossy"
"""The fastest without loss; of those that compress, without loss; and of those with loss."""
ADDED = ("purpose", "place", "is_best", "ratio_to_best", "ratio_lo", "ratio_hi", "pairs", "candidates", "formats")
_JUDGED_BY = ["run_id", "cell_id", "storage_format", "stores", "lossy", "samples_per_s", "num_workers", "sample_bytes"]


def choices(trials: pd.DataFrame) -> pd.DataFrame:
    """Choose formats for every question of a run.

    For each purpose the best has the highest estimate; a cell belongs to its set if the 95 % interval of its throughput
    ÷ the best's, paired by block, does not lie wholly under 1. With fewer than two pairs nothing can be told: such a
    cell is left out. Order within a set: fewest workers, then fewest bytes on disk, then the higher estimate.

    Args:
        trials: rows of ``records.TRIALS`` of one run.

    Returns:
        A row a cell of a set, questions in order of appearance: all columns of ``stored``, then ``purpose`` (``speed``,
        ``space``: the fastest that compress, ``lossy``: the fastest with loss), ``place`` (0 is the cheapest),
        ``is_best``, ``ratio_to_best``, ``ratio_lo``, ``ratio_hi`` and ``pairs`` (against the best of ``speed``, or of
        the purpose where there is none), ``candidates`` (cells) and ``formats`` (distinct ones among them).
    """
    table = stored(trials)
    blocks = blocks_of(believed(trials))
    found = [part for group in _questions(table) for part in _chosen(group, blocks)]
    if not found:
        return table.iloc[:0].reindex(columns=[*table.columns, *ADDED])
    chosen = pd.concat(found, ignore_index=True)
    return pd.concat([table.loc[chosen["at"]].reset_index(drop=True), chosen[list(ADDED)]], axis=1)


def _questions(table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """What the cells of each question are judged by, and ``at``, their places in the table."""
    known = table[table["samples_per_s"].notna() & ~table["replica"].fillna(0).gt(0)]
    judged_by = known[_JUDGED_BY].assign(at=known.index)
    for _, group in judged_by.groupby(keys_of(known, ("run_id", "device", *QUESTION)), dropna=False, sort=False):
        yield group


def _chosen(group: pd.DataFrame, blocks: Blocks) -> Iterator[pd.DataFrame]:
    exact = group[~group["lossy"]]
    for purpose, part in (
        (SPEED, exact),
        (SPACE, exact[exact["stores"].ne(PIXELS)]),
        (LOSSY, group[group["lossy"]]),
    ):
        if len(part):
            yield _set(part.reset_index(drop=True), exact if len(exact) else part, blocks).assign(purpose=purpose)


def _set(part: pd.DataFrame, against: pd.DataFrame, blocks: Blocks) -> pd.DataFrame:
    """The cells of a purpose that cannot be told from its best, cheapest first; ratios against another set's best."""
    runs, ids = list(part["run_id"]), list(part["cell_id"])
    best = int(part["samples_per_s"].to_numpy().argmax())
    overall = str(against["cell_id"].iloc[int(against["samples_per_s"].to_numpy().argmax())])
    own = blocks.ratios(runs, [ids[best]] * len(ids), ids)
    other = blocks.ratios(runs, [overall] * len(ids), ids)
    found = part.copy().assign(
        is_best=np.arange(len(ids)) == best,
        ratio_to_best=other["ratio"],
        ratio_lo=other["lo"],
        ratio_hi=other["hi"],
        pairs=other["n"],
        candidates=len(ids),
        formats=part["storage_format"].nunique(),
    )
    cost = found[["num_workers", "sample_bytes"]].assign(slowness=-found["samples_per_s"].astype("float64"))
    members = cost[(np.arange(len(ids)) == best) | own["hi"].ge(1).to_numpy()]
    order = members.sort_values(list(cost), kind="stable").index
    chosen: pd.DataFrame = found.loc[order].assign(place=range(len(order)))
    return chosen
