"""The container's effect and the effect of storing decoded pixels, apart: paired log ratios by block.

Formats differ in two ways at once: what a sample is on disk (pixels, compressed pixels, an image file) and what holds
it. The *container's* effect compares formats that store the same; the effect of *pixels* compares formats with the same
container. Everything else is the same on both sides of a pair: images, order, page cache, batch size and workers; of a
format's own knobs the default.

It does *not* show why: a container also brings its library, and chunks that hold many samples (``hdf5_chunked``) are
part of what is stored.

Which format to use, from the numbers alone: the set that cannot be told from the best, cheapest first.

A question is given by the images, the order in which they are read and the state of the page cache; format, workers,
batch size and a format's own knobs can be chosen. What loses information answers another question than what does not:
lossy formats are never candidates, only named beside them. The best of many is picked by its own estimate, which is
therefore a little too good; that is why the answer is a set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import Blocks, Floats, blocks_of, half_width, moments
from feedrate.analysis.contrasts import grouping_keys, verdicts
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.storage import OWN, QUESTION, credible, format_costs, plainest
from feedrate.schema.axes import AXES

CONTAINER, PIXELS, NEITHER = "container", "pixels", "neither"
REFERENCE = "files"
"""Other containers are compared with a folder of files, where the same is stored in one."""
GIVEN = tuple(axis.name for axis in AXES if axis.name not in ("storage_format", *OWN))
_RATIO = ("ratio", "lo", "hi", "n")
EFFECT_COLUMNS = ("run_id", *GIVEN, "effect", "a_format", "b_format", "same", "lossy", *_RATIO, "verdict")
LARGER_COLUMNS = (
    "run_id",
    *GIVEN,
    *(f"pixels_{name}" for name in _RATIO),
    "pixels_pairs",
    *(f"container_{name}" for name in _RATIO),
    "container_a",
    "container_b",
    "container_same",
    "times",
    "times_lo",
    "times_hi",
    "n",
    "larger",
)


Row = dict[str, Any]


class _Pair(NamedTuple):
    effect: str
    a: Row
    b: Row
    same: str
    """What both sides share: what is stored, or the container."""


def _groups(table: pd.DataFrame) -> Iterator[list[Row]]:
    """Cells with an estimate that differ in their format alone, by its name."""
    known = table[table["samples_per_s"].notna()]
    for _, group in known.groupby(grouping_keys(known, ("run_id", *GIVEN)), dropna=False, sort=False):
        yield rows_of(group.sort_values("storage_format"))


def _given(group: list[Row]) -> Row:
    return {name: group[0][name] for name in ("run_id", *GIVEN)}


def _by(group: list[Row], trait: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in group:
        found.setdefault(str(row[trait]), []).append(row)
    return dict(sorted(found.items()))


def _pairs(group: list[Row]) -> Iterator[_Pair]:
    """A: the reference, or what is encoded; B: another container, or the pixels."""
    for stores, part in _by(group, "stores").items():
        reference = next((row for row in part if row["container"] == REFERENCE), part[0])
        for row in part:
            if row["container"] != reference["container"]:
                yield _Pair(CONTAINER, reference, row, stores)
    for container, part in _by(group, "container").items():
        for pixels in (row for row in part if row["stores"] == PIXELS):
            for row in (row for row in part if row["stores"] != PIXELS):
                yield _Pair(PIXELS, row, pixels, container)


def effects(trials: pd.DataFrame) -> pd.DataFrame:
    """Compare formats that differ in one of the two ways."""
    rows = [
        {
            **_given(group),
            "effect": pair.effect,
            "same": pair.same,
            "lossy": bool(pair.a["lossy"] or pair.b["lossy"]),
            **{f"{side}_format": row["storage_format"] for side, row in (("a", pair.a), ("b", pair.b))},
            **{f"cell_{side}": row["cell_id"] for side, row in (("a", pair.a), ("b", pair.b))},
        }
        for group in _groups(plainest(format_costs(trials)))
        for pair in _pairs(group)
    ]
    if not rows:
        return pd.DataFrame(columns=list(EFFECT_COLUMNS))
    found = pd.DataFrame(rows)
    ratios = blocks_of(credible(trials)).ratios(list(found["run_id"]), list(found["cell_a"]), list(found["cell_b"]))
    found = pd.concat([found, ratios], axis=1)
    found["verdict"] = verdicts(found["ratio"], found["lo"], found["hi"])
    return found[list(EFFECT_COLUMNS)]


def larger(trials: pd.DataFrame) -> pd.DataFrame:
    """Say which of the two effects is larger and by how much, where both can be had.

    The effect of pixels is the mean over the containers that hold both an image file without loss and pixels; where
    none does, over those that hold compressed pixels. The container's is the largest: the fastest against the slowest
    that store the same, picked by their estimates, which makes it look a little larger than it is. Sizes are compared
    as logs, so that 4 times faster and 4 times slower are as large.
    """
    blocks = blocks_of(credible(trials))
    rows = [row for group in _groups(plainest(format_costs(trials))) if (row := _larger(group, blocks))]
    return pd.DataFrame(rows, columns=list(LARGER_COLUMNS))


def _larger(group: list[Row], blocks: Blocks) -> Row | None:
    logs = dict(zip((row["cell_id"] for row in group), blocks.logs(*_ids(group)), strict=True))
    exact = [pair for pair in _pairs(group) if pair.effect == PIXELS and not pair.a["lossy"]]
    exact = [pair for pair in exact if pair.a["stores"] == "png"] or exact
    widest = _widest(group)
    if not exact or widest is None:
        return None
    slow, fast = widest
    pixels = np.mean([logs[pair.b["cell_id"]] - logs[pair.a["cell_id"]] for pair in exact], axis=0)
    container = logs[fast["cell_id"]] - logs[slow["cell_id"]]
    sign = -1.0 if moments(pixels).mean < 0 else 1.0
    times, lo, hi, n = _interval(sign * pixels - container)
    return {
        **_given(group),
        **dict(zip((f"pixels_{name}" for name in _RATIO), _interval(pixels), strict=True)),
        "pixels_pairs": ", ".join(f"{pair.a['storage_format']} → {pair.b['storage_format']}" for pair in exact),
        **dict(zip((f"container_{name}" for name in _RATIO), _interval(container), strict=True)),
        "container_a": slow["storage_format"],
        "container_b": fast["storage_format"],
        "container_same": slow["stores"],
        "times": times,
        "times_lo": lo,
        "times_hi": hi,
        "n": n,
        "larger": PIXELS if lo > 1 else CONTAINER if hi < 1 else NEITHER,
    }


def _ids(group: list[Row]) -> tuple[list[str], list[str]]:
    return [str(row["run_id"]) for row in group], [str(row["cell_id"]) for row in group]


def _widest(group: list[Row]) -> tuple[Row, Row] | None:
    """(slowest, fastest) of the formats that store the same in different containers, where they are furthest apart."""
    ends = [
        (min(part, key=lambda row: float(row["samples_per_s"])), max(part, key=lambda row: float(row["samples_per_s"])))
        for part in _by(group, "stores").values()
    ]
    apart = [(slow, fast) for slow, fast in ends if slow["container"] != fast["container"]]
    return max(apart, key=lambda pair: float(pair[1]["samples_per_s"]) / float(pair[0]["samples_per_s"]), default=None)


def _interval(logs: Floats) -> tuple[float, float, float, int]:
    """A ratio with its interval from log ratios by block."""
    mean, sd, n = moments(logs)
    half = half_width(sd, n)
    return float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half)), int(n)


SPEED, SPACE, LOSSY = "speed", "space", "lossy"
"""The fastest without loss; of those that compress, without loss; and of those with loss."""
ADDED = ("purpose", "place", "is_best", "ratio_to_best", "ratio_lo", "ratio_hi", "pairs", "candidates", "formats")
_JUDGED_BY = ["run_id", "cell_id", "storage_format", "stores", "lossy", "samples_per_s", "num_workers", "sample_bytes"]


def choices(trials: pd.DataFrame) -> pd.DataFrame:
    """Choose formats for every question of a run.

    For each purpose the best has the highest estimate; a cell belongs to its set if the 95 % interval of its throughput
    ÷ the best's, paired by block, does not lie wholly under 1. With fewer than two pairs nothing can be told: such a
    cell is left out. Order within a set: fewest workers, then fewest bytes on disk, then the higher estimate.
    """
    table = format_costs(trials)
    blocks = blocks_of(credible(trials))
    found = [part for group in _questions(table) for part in _chosen(group, blocks)]
    if not found:
        return table.iloc[:0].reindex(columns=[*table.columns, *ADDED])
    chosen = pd.concat(found, ignore_index=True)
    return pd.concat([table.loc[chosen["at"]].reset_index(drop=True), chosen[list(ADDED)]], axis=1)


def _questions(table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """What the cells of each question are judged by, and ``at``, their places in the table."""
    known = table[table["samples_per_s"].notna() & ~table["replica"].fillna(0).gt(0)]
    judged_by = known[_JUDGED_BY].assign(at=known.index)
    for _, group in judged_by.groupby(grouping_keys(known, ("run_id", "device", *QUESTION)), dropna=False, sort=False):
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
