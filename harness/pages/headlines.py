"""The numbers that come first: the best setting of each task, what limits it, what better loader settings gain."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd

from harness.analysis.summary import CONDITIONS, best_cells, default_vs_best
from harness.charts import _words as words
from harness.charts._slices import EMULATED, LOAD, PHOTOGRAPHS, TRAIN
from harness.pages import described, markup

_COLUMNS = (
    "What ran",
    "Best setting",
    "Samples/s",
    "95 % interval",
    "n",
    "Held back by",
    "Most gained over PyTorch’s defaults",
)
_TASK = ("run_id", "device", *CONDITIONS)
_GAIN = (
    "ratio",
    "lo",
    "hi",
    "n",
    "storage_format",
    "batch_size",
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "non_blocking",
    "verdict",
)
_SPOKEN = {TRAIN: "real training", EMULATED: "an emulated step", LOAD: "loading alone"}
_KINDS = {TRAIN: "real training", EMULATED: "emulated step", LOAD: "loading alone"}


def headlines(trials: pd.DataFrame, estimates: pd.DataFrame | None = None) -> pd.DataFrame:
    """Take the best cell of each task, and where better loader settings gained most over PyTorch's defaults.

    A gain compares two loaders at the same storage format and batch size, paired by block; of all formats and batch
    sizes of a task the one with the highest lower end is taken.

    Args:
        trials: rows of ``records.TRIALS`` of one run.
        estimates: the rows of ``judged(trials)`` that are asked about; by default all of them.

    Returns:
        A row a task: the columns of ``best_cells``, ``kind``, ``bound``, and ``gain`` (a row of ``default_vs_best``, or
        None where no default cell ended well). Real training first, photographs before synthetic data.
    """
    best = best_cells(trials, estimates)
    best = best[best["is_best"].astype(bool) & best["mode"].isin(["train", "load"])].reset_index(drop=True)
    if not len(best):
        return best.assign(gain=[], kind=[], bound=[])
    gains = _gains(trials, estimates)
    kinds = [
        "load" if mode == "load" else "emulated" if step == "emulated" else "train"
        for mode, step in zip(best["mode"], best["step"], strict=True)
    ]
    best = best.assign(
        gain=pd.Series([gains.get(_key(row)) for row in best.to_dict("records")], dtype=object),
        kind=kinds,
        bound=best["bottleneck"],
    )
    order = (
        pd.DataFrame(
            {
                "a": best["kind"].map(list(_KINDS).index),
                "b": ~best["workload"].isin(PHOTOGRAPHS),
                "c": best["patch_size"],
                "d": best["page_cache"].eq("cold").fillna(False),
                "e": best["access"].eq("sequential").fillna(False),
            }
        )
        .sort_values(["a", "b", "c", "d", "e"], kind="stable")
        .index
    )
    return best.loc[order]


def _key(row: Mapping[Any, Any]) -> tuple[str, ...]:
    return tuple(_comparable(row[name]) for name in _TASK)


def _gains(trials: pd.DataFrame, estimates: pd.DataFrame | None) -> dict[tuple[str, ...], dict[Any, Any]]:
    """Task to its row of ``default_vs_best`` with the highest lower end; without intervals, the highest ratio."""
    found: dict[tuple[str, ...], dict[Any, Any]] = {}
    for row in default_vs_best(trials, estimates).sort_values(["lo", "ratio"], ascending=False).to_dict("records"):
        found.setdefault(_key(row), row)
    return found


def _comparable(value: Any) -> str:
    if pd.isna(value):
        return ""
    return value if isinstance(value, str) else f"{float(value):g}"


def headline_table(rows: pd.DataFrame) -> str:
    """Write headlines as a table; nothing when there are none."""
    if not len(rows):
        return ""
    lines = [
        (
            task_cell(row),
            escape(described.knobs(row)),
            words.number(float(row["samples_per_s"])),
            described.spread(float(row["lo"]), float(row["hi"])),
            str(row["n"]),
            _held_back(row),
            _gain(row["gain"]),
        )
        for row in rows.to_dict("records")
    ]
    return markup.table(
        "The best setting of each task", _COLUMNS, lines, ("Samples/s", "95 % interval", "n"), stack=True
    )


def _held_back(row: Mapping[Any, Any]) -> str:
    """What holds it back, and how much of its slowest stage and of its compute stage it reaches."""
    if row["kind"] == LOAD:
        return "the loader itself"
    reached = [f"{name}\u00a0{words.percent(value)}" for name, value in _reached(row)]
    return escape(str(row["bound"])) + (f'<br><span class="fr-kind">{", ".join(reached)}</span>' if reached else "")


def _reached(row: Mapping[Any, Any]) -> list[tuple[str, float]]:
    given = (("efficiency", row["efficiency"]), ("AU", row["au"]))
    return [(name, float(value)) for name, value in given if words.known(value)]


def task_cell(row: Mapping[Any, Any]) -> str:
    """Write a task as the first cell of its row: workload, patch size, what ran."""
    detail = f", {row['step_ms']:g} ms a step" if row["kind"] == EMULATED else ""
    detail += "".join(f", {said}" for said in described.reading(row))
    return (
        f"<strong>{escape(str(row['workload']))}</strong>, {row['patch_size']}\u00a0px<br>"
        f'<span class="fr-kind fr-kind-{row["kind"]}">{_KINDS[row["kind"]]}{detail}</span>'
    )


def gain_words(gain: Mapping[Any, Any] | None) -> tuple[str, str]:
    """Write a gain: the ratio with its interval, and where it was found; the second is empty where there is none."""
    if gain is None:
        return "not measured", ""
    if not words.known(gain["lo"]):
        return "one block: not known", ""
    if gain["verdict"] != "faster":
        return "none that is clear", ""
    knobs = described.changed({name: gain[name] for name in ("prefetch_factor", "pin_memory", "non_blocking")})
    settings = ", ".join(filter(None, (words.plural(int(gain["num_workers"]), "worker"), knobs)))
    return (
        f"× {gain['ratio']:.2f} ({_range(gain)})",
        f"{gain['storage_format']}, batch {gain['batch_size']}: {settings}",
    )


def _range(gain: Mapping[Any, Any]) -> str:
    return f"{gain['lo']:.2f} – {gain['hi']:.2f}"


def _gain(gain: Mapping[Any, Any] | None) -> str:
    ratio, where = gain_words(gain)
    return f'{ratio}<br><span class="fr-kind">{escape(where)}</span>' if where else ratio


def answer(rows: pd.DataFrame) -> str:
    """Answer in sentences made from the numbers: what better loader settings gain, per kind of run; else nothing."""
    said = []
    measured = [row for row in rows.to_dict("records") if row["gain"] is not None]
    for row in pd.DataFrame(measured, columns=rows.columns).drop_duplicates("kind").to_dict("records"):
        how = "".join(f", {part}" for part in described.reading(row))
        at, gain = f"{_SPOKEN[row['kind']]} on {row['workload']} at {row['patch_size']} px{how}", row["gain"]
        if not words.known(gain["lo"]):
            said.append(f"For {at}{',' if how else ''} there is one block, which says nothing about its spread.")
        elif gain["verdict"] == "faster":
            said.append(
                f"For {at}, {gain_words(gain)[1].split(': ')[1]} feed{'s' if gain['num_workers'] == 1 else ''} "
                f"{gain['ratio']:.2f} times as many samples as "
                f"PyTorch’s default loader (95\u00a0% interval {_range(gain)}), from {gain['storage_format']} at batch "
                f"{gain['batch_size']}."
            )
        else:
            said.append(
                f"For {at}, no loader setting is clearly faster than PyTorch’s default at the same format and batch."
            )
    return " ".join(said)
