"""Tasks in words: the best setting of each, what better loader settings gain; in plain text, for the terminal, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from feedrate.analysis.crossfit import LEAST_BLOCKS
from feedrate.analysis.estimate import RATIO, Estimate
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.summary import EMULATED, LOAD, TRAIN, best_cells, most_gained
from feedrate.pages import descriptions
from feedrate.plan.suite import for_machines
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME, CONDITIONS, EMULATED_STEPS, PHOTOGRAPHS, SCRIPT, SETTINGS

FEW = f"needs {LEAST_BLOCKS} repetitions"
"""What is said of a gain that rests on fewer."""
KINDS = (TRAIN, EMULATED, LOAD)
"""What a task runs, in the order of a table."""
_SPOKEN = {TRAIN: "real training", EMULATED: "an emulated step", LOAD: "loading alone"}
_SPOKEN |= {"copy": "copying alone", "compute": "computing alone"}
_WORDED = ("workload", "script", "mode", "step", "step_ms", "patch_size", "page_cache", "access")
"""Conditions of a task that its name has words for."""
_COMPARED_AT = ("storage_format", "batch_size", "num_workers")
"""Knobs that stand in words wherever a gain does: the first two are the same on both sides of it."""


def headlines(trials: pd.DataFrame, estimates: pd.DataFrame | None = None) -> pd.DataFrame:
    """Take the best cell of each task, and where loader settings gained most over PyTorch's defaults.

    Samples/s are the best cell's own; ``cheapest`` names the first of the set, empty where that is the best. ``gain``
    is the task's row of ``most_gained``, or None. Cells that are timed by anything but events (``timing``) are there to
    check the others and are no task.
    """
    sets = best_cells(trials, estimates)
    tasks = sets["mode"].isin(["train", "load"]) & sets["timing"].eq("events").fillna(True)
    sets = sets[tasks.astype(bool)]
    best, first = (sets[sets[which].eq(value)] for which, value in (("is_best", True), ("place", 0)))
    best = best.reset_index(drop=True)
    if not len(best):
        return best.assign(gain=[], kind=[], bound=[], cheapest=[])
    gained = most_gained(trials, estimates)
    gains, rows = {_key(row): row for row in rows_of(gained[gained["others"] > 0])}, rows_of(best)
    of_task = pd.Series([gains.get(_key(row)) for row in rows], dtype=object)
    best = best.assign(gain=of_task, kind=list(map(kind_of, rows)), bound=best["bottleneck"])
    best["cheapest"] = ["" if row["is_best"] else descriptions.knobs(row) for row in rows_of(first)]
    order = pd.DataFrame(
        {
            "kind": best["kind"].map(KINDS.index),
            "planted": ~best["workload"].isin(PHOTOGRAPHS),
            "patch_size": best["patch_size"],
            "cold": best["page_cache"].eq("cold").fillna(False),
            "sequential": best["access"].eq("sequential").fillna(False),
        }
    )
    return best.loc[order.sort_values(order.columns.to_list(), kind="stable").index]


def of_machines(cells: pd.DataFrame) -> pd.DataFrame:
    """Keep the cells of suites that ask which settings suit a machine."""
    return cells[cells["suite"].astype(str).map(for_machines).astype(bool)]  # without a row it would be no bool


def kind_of(row: Mapping[Any, Any]) -> str:
    """Give what a cell runs: of ``KINDS``, or its mode."""
    return EMULATED if row["mode"] == TRAIN and row["step"] in EMULATED_STEPS else str(row["mode"])


def task_key(row: Mapping[Any, Any]) -> tuple[str, ...]:
    """Name a task by its ``CONDITIONS`` as text, for machines and runs to have it in common.

    What does not apply stands at its default, so that a CPU and a GPU have tasks in common.
    """
    values = (BY_NAME[name].default if pd.isna(row[name]) else row[name] for name in CONDITIONS)
    return tuple(value if isinstance(value, str) else f"{float(value):g}" for value in values)


def _key(row: Mapping[Any, Any]) -> tuple[str, ...]:
    return row["run_id"], row["device"], *task_key(row)


def set_words(row: Mapping[Any, Any]) -> str:
    """Write how many settings tie with the best, and the cheapest of them; nothing where one alone ran."""
    members, compared, every = row["members"], row["compared"], row["candidates"]
    if every == 1:
        return ""
    if not words.is_number(row["lo"]):
        return f"the best of {every} in one repetition"
    seldom = f"; {every - compared} ran too seldom to compare" if compared < every else ""
    if members > 1:
        text = f"ties with {members - 1} of {words.plural(compared - 1, 'other')}"
        text += f"; the cheapest is {row['cheapest']}" if row["cheapest"] else ", and the cheapest of them"
        return text + seldom
    return (f"clearly the best of {compared}" if compared > 1 else f"the best of {every}") + seldom


def what_ran(row: Mapping[Any, Any]) -> str:
    """Write what ran, and under which conditions: ``emulated step, 10 ms a step, cold page cache``."""
    step = [f"{row['step_ms']:g} ms a step"] if row["kind"] == EMULATED else []
    return ", ".join([_SPOKEN[row["kind"]].removeprefix("an "), *step, *conditions(row)])


def task_words(row: Mapping[Any, Any]) -> str:
    """Name a task within a sentence: ``an emulated step of 10 ms on div2k_standin at 64 px, cold page cache``."""
    kind = kind_of(row)
    step = f" of {row['step_ms']:g} ms" if kind == EMULATED else ""
    data = row["script"] if row["workload"] == SCRIPT else words.sized(row["workload"], row["patch_size"], " at ")
    return ", ".join([f"{_SPOKEN[kind]}{step} on {data}", *conditions(row)])


def conditions(row: Mapping[Any, Any]) -> list[str]:
    """What else a task was given, where that is not the default: how samples are read, then axes by name."""
    others = descriptions.changed({name: row.get(name) for name in CONDITIONS if name not in _WORDED})
    return [*descriptions.reading(row), *([others] if others else [])]


def gain_settings(gain: Mapping[Any, Any]) -> str:
    """Write the settings of a gain's better side: its workers, and all other knobs that are not at their default."""
    knobs = descriptions.changed({name: gain.get(name) for name in SETTINGS if name not in _COMPARED_AT})
    return ", ".join(filter(None, (words.plural(int(gain["num_workers"]), "worker"), knobs)))


def gain_words(gain: Mapping[Any, Any] | None) -> tuple[str, str]:
    """Write a gain: the ratio with its interval and n, and where it was found; the latter is empty without a gain."""
    if gain is None:
        return "not measured", ""
    if not words.is_number(gain["lo"]):
        return FEW, ""
    if gain["verdict"] != "faster":
        return "none that is clear", ""
    return (
        Estimate.of_row(gain, RATIO, "ratio").with_n(),
        f"{gain['storage_format']}, batch {gain['batch_size']}: {gain_settings(gain)}",
    )


def answer(rows: pd.DataFrame) -> str:
    """Answer in sentences made from the numbers: what better loader settings gain, per kind of run; else nothing."""
    sentences = []
    measured = [row for row in rows_of(rows) if row["gain"] is not None]
    for row in rows_of(pd.DataFrame(measured, columns=rows.columns).drop_duplicates("kind")):
        gain, text = row["gain"], "no loader setting is clearly faster than PyTorch’s default"
        if not words.is_number(gain["lo"]):
            text = f"a gain {FEW}"
        elif gain["verdict"] == "faster":
            times = Estimate.of_row(gain, RATIO, "ratio").text()
            where = f"{gain['storage_format']}, batch {gain['batch_size']}"
            text = f"{gain_settings(gain)} give {times} the default speed ({where})"
        sentences.append(words.sentence(f"{task_words(row)}: {text}"))
    return " ".join(sentences)
