"""Are planted costs read back, planted effects told apart, equal cells called equal, and bottlenecks named?

A planted cost comes on top of what a stage really costs. That is taken off as it was measured where nothing is planted
into the stage, block by block: the mean over cells of the same data that are *bare* (``QUANTITIES``). Of a step nothing
is taken off: an emulated one is a sleep.

``batch`` is the throughput, turned over, less copying and transforming, which are never planted: without workers all
that is planted adds up. Workers that compute share cores and are late in all that they do; where a cell with several
workers plants computing, nothing is read back. What a stage really costs is some microseconds more behind a wait, when
caches have gone cold: plants that are short show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import KEYS, memoized
from feedrate.analysis.ceilings import BALANCED_WITHIN, cells_with_ceilings
from feedrate.analysis.contrasts import contrasts, filled
from feedrate.analysis.estimate import Moments, as_columns
from feedrate.analysis.estimates import AXIS_NAMES, identities
from feedrate.analysis.loader import per_step
from feedrate.schema.axes import AXES
from feedrate.schema.metrics import CONFIRMED_OVER, REFUTED_UNDER, SAME

PLANTS = ("read_us", "decode_us", "collate_us", "payload_bytes", "step_ms")
"""Axes that plant a cost."""
SMALL = 0.1
"""An effect is small where a ratio of throughputs is no further from 1."""
DIFFERENT = ("faster", "slower")
NOT_DIFFERENT = "not different"
_DATA = ["run_id", "device", "storage_format", "patch_size", "n_samples"]
PLANTED_COLUMNS = (
    *(*KEYS, "quantity", "unit", "planted", "measured", "lo", "hi", "error_pct", "n"),
    *(name for name in AXIS_NAMES if name not in _DATA),
)
EFFECT_COLUMNS = (
    *("run_id", "axis", "a_value", "b_value", "cell_a", "cell_b", "planted", "ratio", "lo", "hi", "n"),
    *("error_pct", "inside", "verdict", "expected", "right"),
)
PAIR_COLUMNS = ("run_id", "cell_a", "cell_b", "ratio", "lo", "hi", "n", "different", "verdict", *AXIS_NAMES)
BOTTLENECK_COLUMNS = (*KEYS, "apart", "truth", "bottleneck", "right")


@dataclass(frozen=True, slots=True)
class Quantity:
    """One planted cost and where it is seen, in expressions over the columns of ``_blocks``."""

    name: str
    unit: str
    truth: str
    """What is planted, in ``unit``; 0 where nothing is."""
    seen: str
    """What was measured, in ``unit``."""
    where: str = "True"
    """In which cells it can be read back."""
    bare: str = ""
    """Which cells show what is taken off; empty where nothing is."""
    alike: tuple[str, ...] = ()
    """Axes that these share with the cell, data aside."""


_UNDISTURBED = "decode_us + collate_us == 0 or num_workers <= 1"
_ALONE = "num_workers == 0 and payload_bytes == 0"
_UNPLANTED = f"{_ALONE} and batch_ms == 0"
QUANTITIES = (
    *(
        Quantity(
            stage,
            "us a sample",
            f"{stage}_us",
            f"worker_{stage} / batch_size / 1e3",
            _UNDISTURBED,
            f"{stage}_us == 0 and num_workers <= 1",
        )
        for stage in ("read", "decode")
    ),
    Quantity(
        "collate",
        "us a batch",
        "collate_us",
        "worker_collate / 1e3",
        _UNDISTURBED,
        "collate_us == 0 and payload_bytes == 0",
        ("batch_size", "num_workers"),
    ),
    Quantity("payload", "bytes a sample", "payload_bytes", "batch_bytes / batch_size", bare="payload_bytes == 0"),
    Quantity("step", "ms", "step_ms", "forward / 1e6"),
    Quantity(
        "batch",
        "ms a batch",
        "batch_ms",
        "(wall - h2d.fillna(0) - worker_transform) / 1e6",
        _ALONE,
        _UNPLANTED,
        ("batch_size",),
    ),
)


def _loading_ms(cells: pd.DataFrame) -> pd.Series:
    """What is planted into loading a batch by one process."""
    return (cells["batch_size"] * (cells["read_us"] + cells["decode_us"]) + cells["collate_us"]) / 1000


def _cells(trials: pd.DataFrame) -> pd.DataFrame:
    """Cells whose loader or step can be planted: synthetic samples, the loader alone or before an emulated step.

    ``batch_ms`` is what is planted into a batch that the training process loads; without a step ``step_ms`` is 0.
    """
    cells = identities(trials)
    emulated = (cells["mode"] == "train") & (cells["step"] == "emulated")
    cells = cells[(cells["workload"] == "synthetic") & ((cells["mode"] == "load") | emulated)]
    numbers = {axis.name: filled(cells, axis).astype("float64") for axis in AXES if axis.type in (int, float)}
    numbers["step_ms"] = numbers["step_ms"].where(emulated, 0.0)
    cells = cells.assign(**numbers)
    return cells.assign(batch_ms=_loading_ms(cells) + cells["step_ms"])


def _blocks(trials: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Means a step (ns) of each cell and block, with its axes; ``read_us`` is what reads were dealt, if recorded."""
    more = ["batch_bytes", "planted_read_ns", "samples"]
    single = per_step(trials).join(trials.reindex(columns=more).astype("float64"))
    blocks = cells.merge(single.groupby([*KEYS, "block"]).mean().reset_index(), on=KEYS)
    blocks["read_us"] = (blocks["planted_read_ns"] / blocks["samples"] / 1e3).fillna(blocks["read_us"])
    return blocks.assign(batch_ms=_loading_ms(blocks) + blocks["step_ms"])


def _read_back(quantity: Quantity, blocks: pd.DataFrame) -> pd.DataFrame:
    """One row a cell that plants the quantity."""
    columns: dict[str, Any] = {"planted": blocks.eval(quantity.truth), "value": blocks.eval(quantity.seen)}
    values = blocks.assign(**columns)
    wanted = values.query(f"planted > 0 and ({quantity.where})")
    if quantity.bare:
        keys = [*_DATA, *quantity.alike, "block"]
        bare = values.query(quantity.bare).groupby(keys)["value"].mean().rename("bare").reset_index()
        wanted = wanted.merge(bare, on=keys)
        wanted["value"] -= wanted["bare"]
    wanted = wanted.dropna(subset=["value"]).assign(error=wanted["value"] - wanted["planted"])
    groups = wanted.groupby(KEYS, sort=False)
    sums = groups.agg(
        planted=("planted", "mean"), measured=("value", "mean"), sd=("error", "std"), n=("value", "count")
    )
    return sums.assign(quantity=quantity.name, unit=quantity.unit).reset_index()


@memoized
def planted(trials: pd.DataFrame) -> pd.DataFrame:
    """Read planted costs back: a row a cell and quantity that it plants, ``PLANTED_COLUMNS``, in ``QUANTITIES``' order.

    ``planted`` and ``measured`` are means over blocks; of waits that vary, planted is what the reads were to wait.
    ``lo`` and ``hi`` are the 95 % Student-t interval of their difference, around what was measured (NaN when n < 2);
    ``error_pct`` is measured ÷ planted - 1.
    """
    cells = _cells(trials)
    if not cells[list(PLANTS)].gt(0).any(axis=None):
        return pd.DataFrame(columns=list(PLANTED_COLUMNS))
    blocks = _blocks(trials, cells)
    quantities = pd.concat([_read_back(quantity, blocks) for quantity in QUANTITIES], ignore_index=True)
    spread = Moments(quantities["measured"], quantities["sd"], quantities["n"])
    quantities = quantities.assign(**as_columns(("measured", "lo", "hi", "n"), spread, np.asarray))
    quantities["error_pct"] = 100 * (quantities["measured"] / quantities["planted"] - 1)
    return quantities.merge(identities(trials)[[*KEYS, *AXIS_NAMES]], on=KEYS)[list(PLANTED_COLUMNS)]


def summary(quantities: pd.DataFrame) -> pd.DataFrame:
    """Sum ``planted`` up: a row a quantity with ``cells``, the fewest blocks ``n``, and two errors over cells.

    ``median_pct`` is the median of their sizes, ``worst_pct`` the largest, with its sign.
    """
    return (
        quantities.groupby("quantity", sort=False)
        .agg(
            cells=("error_pct", "size"),
            median_pct=("error_pct", lambda errors: errors.abs().median()),
            worst_pct=("error_pct", lambda errors: max(errors, key=abs)),
            n=("n", "min"),
        )
        .reset_index()
    )


def _expected(ratio: float) -> str:
    """What the verdict on a true ratio ought to be; empty between the rule's margins, where either is right."""
    if REFUTED_UNDER <= ratio <= CONFIRMED_OVER:
        return NOT_DIFFERENT
    return "slower" if ratio < SAME[0] else "faster" if ratio > SAME[1] else ""


def _pairs(trials: pd.DataFrame, *axes: str) -> pd.DataFrame:
    """Contrasts in some axes that have an interval: from two blocks on."""
    compared = contrasts(trials)
    return compared[compared["axis"].isin(axes) & (compared["n"] > 1)]


@memoized
def effects(trials: pd.DataFrame) -> pd.DataFrame:
    """Compare small planted effects with the ratios that were measured: a row an effect, ``EFFECT_COLUMNS``.

    An effect is a pair of cells without workers that differ in one planted cost, or in ``replica`` alone (an effect of
    nothing). Its truth, ``planted``, is the ratio of what a batch takes: what is planted, added to what it costs the
    loader alone where nothing is. ``inside`` says whether the interval holds the truth; ``expected`` is the verdict
    that is ``right``: of up to 1 % neither *faster* nor *slower*, beyond 3 % one of them, between the two any.
    """
    cells = _cells(trials)
    data = [*_DATA, "batch_size"]
    bare_ns = _blocks(trials, cells).query(_UNPLANTED).groupby(data)["wall"].mean().reset_index()
    alone = cells.query(_ALONE).merge(bare_ns, on=data)
    takes = alone[KEYS].assign(planted=alone["batch_ms"], takes=alone["wall"] / 1e6 + alone["batch_ms"])
    pairs = _pairs(trials, *PLANTS, "replica")
    for side in ("cell_a", "cell_b"):
        pairs = pairs.merge(takes, left_on=["run_id", side], right_on=KEYS, suffixes=("_a", "_b"))
    pairs["planted"] = pairs["takes_a"] / pairs["takes_b"]
    small = pairs[pairs["planted"].between(1 - SMALL, 1 + SMALL) & (pairs["planted_a"] > 0)]
    small = small.assign(
        error_pct=100 * (small["ratio"] / small["planted"] - 1),
        inside=(small["lo"] <= small["planted"]) & (small["planted"] <= small["hi"]),
        expected=[_expected(ratio) for ratio in small["planted"]],
    )
    called = small["verdict"].where(small["verdict"].isin(DIFFERENT), NOT_DIFFERENT)
    small["right"] = (called == small["expected"]) | (small["expected"] == "")
    return small[list(EFFECT_COLUMNS)].reset_index(drop=True)


@memoized
def same_pairs(trials: pd.DataFrame) -> pd.DataFrame:
    """Compare cells that differ in nothing but ``replica``: a row a pair, ``PAIR_COLUMNS``.

    ``different`` says whether the interval leaves out 1, which happens to one pair in twenty by chance; ``verdict`` is
    of the stricter rule that feedrate judges by.
    """
    pairs = _pairs(trials, "replica")
    return pairs.assign(different=(pairs["lo"] > 1) | (pairs["hi"] < 1))[list(PAIR_COLUMNS)].reset_index(drop=True)


def bottlenecks(trials: pd.DataFrame) -> pd.DataFrame:
    """Compare what holds a cell back with what was planted to do so: ``BOTTLENECK_COLUMNS``.

    A row is a training cell before an emulated step whose planted times are ``BALANCED_WITHIN`` times ``apart`` or
    more: those of the step, and of loading a batch by all workers, no core being short.
    """
    cells = _cells(trials)
    judged = cells[cells["step_ms"] > 0].merge(cells_with_ceilings(trials)[[*KEYS, "bottleneck"]], on=KEYS)
    ratio = _loading_ms(judged) / judged["num_workers"].clip(lower=1) / judged["step_ms"]
    judged["apart"] = np.maximum(ratio, 1 / ratio)
    judged["truth"] = np.where(ratio > 1, "loader-bound", "emulated-step-bound")
    judged["right"] = judged["truth"] == judged["bottleneck"]
    told = judged["bottleneck"].ne("unknown") & (judged["apart"] >= BALANCED_WITHIN)
    return judged.loc[told, list(BOTTLENECK_COLUMNS)].reset_index(drop=True)
