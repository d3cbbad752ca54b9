"""Pictures of the front page: speed by workers with every machine in one panel, and what better settings gain on each.

Both take rows of several runs, one a machine and device. A machine is a colour; ``machines`` names it and says how many
cores it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from feedrate.analysis.crossfit import ABOUT
from feedrate.analysis.estimate import Estimate
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.summary import EMULATED, LOAD, TRAIN
from feedrate.charts.figure import (
    ENDS,
    MOST_PANELS,
    RATE,
    Figure,
    Held,
    Row,
    Sheet,
    Slice,
    chart,
    estimate,
    held,
    listed,
    slices,
    with_ends,
)
from feedrate.charts.plot import (
    Looks,
    Plot,
    amount,
    core_marks,
    counts,
    first,
    keys,
    log_of,
    names,
    rule,
    unlike,
    written,
)
from feedrate.pages import descriptions
from feedrate.pages.tasks import conditions, gain_settings
from feedrate.questions.workers.charts import scaled_cells, speed_up
from feedrate.schema import words

_KINDS = (EMULATED, TRAIN, LOAD)
_WORKERS = {"machine": "machine", "workers": "workers", **RATE, **with_ends("speed-up", "times")}
_WORKERS |= {"over workers": "base", "run": "run_id"}
_GAINS = {"machine": "machine", "task": "task", "settings": "settings", "times": "value", **ENDS, "run": "run_id"}
_MACHINE = ["machine_id", "device"]
_NO_MACHINE = "Every machine was measured with one number of workers only."
_NO_GAIN = "No run compares PyTorch's default with other settings in enough repetitions."
Machines = Mapping[tuple[str, str], tuple[str, float | None]]
"""Machine id and device to the machine's name and its cores."""


def _named(row: Row, machines: Machines | None) -> dict[str, Any]:
    """What a picture says of the machine of a row."""
    where = str(row["machine_id"]), str(row["device"])
    name, cores = (machines or {}).get(where, (where[0], None))
    return {"machine": name, "cores": cores}


def _looks(rows: Sequence[Row], machines: Machines | None) -> Looks:
    """Give each machine the colour that it has in every picture, whichever are drawn."""
    drawn = [str(row["machine"]) for row in rows]
    return unlike(drawn, [*(name for name, _ in (machines or {}).values()), *drawn])


@chart("Speed by workers", "When do more workers stop helping?")
def machine_workers(
    sheet: Sheet, trials: pd.DataFrame, machines: Machines | None = None, most: int = MOST_PANELS
) -> Figure:
    """Draw throughput against workers, a line a machine; tasks of which most numbers of workers were measured first."""
    if not len(trials):
        return sheet.figure((), _NO_MACHINE)
    scaled = scaled_cells(trials)
    tasks = [_task(subset, machines) for subset in slices(scaled[scaled["num_workers"].notna()], _KINDS)]
    tasks = sorted((task for task in tasks if task[1]), key=lambda task: -len(task[1]))[:most]
    looks = _looks([row for _, rows, _ in tasks for row in rows], machines)
    for subset, rows, still in tasks:
        panel = _lines(rows, looks).panel(subset.title, subset.subtitle, _workers_message(rows))
        machines_here = list(dict.fromkeys(row["machine"] for row in rows))
        facets = {"images": subset.title, "step": subset.subtitle, "machine": machines_here}
        sheet.add(replace(panel, wide=True, facets=facets), listed(rows, subset.row(), _WORKERS), still)
        every = (_named(row, machines)["machine"] for row in rows_of(subset.frame.drop_duplicates(_MACHINE)))
        if absent := sorted({*every} - {*machines_here}):
            lacks = "the settings that the others have, with several numbers of workers, were not measured"
            sheet.note(f"{subset.title}, {subset.subtitle}: no line of {words.listed(absent)}; {lacks}.")
    return sheet.figure(keys(looks), _NO_MACHINE)


def _task(subset: Slice, machines: Machines | None) -> tuple[Slice, list[dict[str, Any]], Held]:
    """A mark a number of workers of each machine's run; none of machines with one number."""
    frame, still = held(subset.frame, ("num_workers",), _MACHINE)
    rows = []
    for _, of_machine in frame.groupby(_MACHINE, sort=False):
        cells = rows_of(of_machine.sort_values("num_workers").drop_duplicates("num_workers"))
        for cell in cells if len(cells) > 1 else ():
            of_run = {"run_id": str(cell["run_id"]), "workers": int(cell["num_workers"])}
            of_run["fixed"] = descriptions.fixed(cell)
            rows.append({**_named(cell, machines), **of_run, **estimate(cell), **speed_up(cell)})
    return subset, rows, still


def _lines(rows: Sequence[Row], looks: Looks) -> Plot:
    """Lines, PyTorch's default, and where there are as many workers as cores."""
    numbers = [row["workers"] for row in rows]
    x, y = counts("workers", "workers", numbers), amount("value", "samples per second")
    default = [{**row, "text": "PyTorch’s default"} for row in rows if row["workers"] == 0]
    behind = core_marks(((row["machine"], row["cores"]) for row in rows), x, max(numbers))
    default_name = written(default, x, y, "text", "machine", right=True, dy=12)
    before = [first(default_name) if len(default) > 1 else default_name] if default else []
    return Plot(rows, x, y, "machine", looks, joined=True, behind=behind, before=before)


def _workers_message(rows: Sequence[Row]) -> str:
    """Of each machine the fastest number of workers, and the fewest that reach about as much."""
    texts = []
    for machine in dict.fromkeys(row["machine"] for row in rows):
        of_machine = [row for row in rows if row["machine"] == machine]
        best = max(of_machine, key=lambda row: row["value"])
        enough = (row for row in of_machine if row["value"] >= ABOUT * best["value"])
        fewest = min(enough, key=lambda row: row["workers"])
        fastest = f"{words.plural(best['workers'], 'worker')}, {words.number(best['value'])} samples/s"
        share = words.percent(fewest["value"] / best["value"])
        reach = "reaches" if fewest["workers"] == 1 else "reach"
        tie = f"; {words.plural(fewest['workers'], 'worker')} {reach} {share} of that" if fewest is not best else ""
        texts.append(f"Fastest on {machine} with {best['fixed']}: {fastest}{tie}.")
    return " ".join(texts)


@chart("Gain from loader settings alone", "What do better loader settings gain?", reads="headlines")
def machine_gains(sheet: Sheet, headlines: pd.DataFrame, machines: Machines | None = None) -> Figure:
    """Draw a row a task and machine: the speed of better loader settings over that of PyTorch's defaults."""
    gained = [row for row in rows_of(headlines) if row["gain"] is not None and words.is_number(row["gain"]["lo"])]
    rows = [{**_named(row, machines), **_gain(row)} for row in gained]
    if not rows:
        return sheet.figure((), _NO_GAIN)
    looks = _looks(rows, machines)
    y = names("task", (row["task"] for row in rows), labelLimit=210)
    x = log_of([*rows, {"value": 1.0}], "times the default speed", form="~g", grid=True)
    beside, also = ("machine", list(looks)), {"settings:N": ""}
    behind = [rule(x, "x", 1.0)]
    plot = Plot(rows, x, y, "machine", looks, beside=beside, also=also, row=26, behind=behind)
    message = "No setting is clearly faster than PyTorch’s default."
    if clear := [row for row in rows if row["verdict"] == "faster"]:
        best = max(clear, key=lambda row: row["value"])
        gain = Estimate(best["value"], best["lo"], best["hi"], best["n"], "ratio")
        message = f"Most gained: {gain.text()} with {best['settings']} ({best['task']})."
    panel = plot.panel("Best loader settings", "1 is PyTorch’s default", message)
    sheet.add(panel, listed(rows, {}, _GAINS))
    sheet.note(
        "Half of the repetitions choose the setting, the other half measure it. So these gains differ a little from "
        "those above, which use all repetitions."
    )
    return sheet.figure(keys(looks), _NO_GAIN)


def _gain(row: Mapping[Any, Any]) -> dict[str, Any]:
    gain, kind = row["gain"], row["kind"]
    ran = f"{row['step_ms']:g} ms step" if kind == EMULATED else {TRAIN: "training", LOAD: "loading"}[kind]
    return {
        "run_id": str(row["run_id"]),
        "task": ", ".join([ran, words.sized(row["workload"], row["patch_size"], " "), *conditions(row)]),
        "settings": gain_settings(gain),
        "verdict": gain["verdict"],
        "value": float(gain["ratio"]),
        "lo": float(gain["lo"]),
        "hi": float(gain["hi"]),
        "n": int(gain["n"]),
    }
