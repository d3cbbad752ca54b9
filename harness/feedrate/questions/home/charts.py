"""Pictures of the front page: speed by workers with every machine in one panel, and what better settings gain on each.

Both take rows of several runs. A machine is a colour; ``machines`` names it and says how many cores it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from feedrate.analysis.estimate import Estimate
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.summary import EMULATED, LOAD, TRAIN
from feedrate.charts.figure import (
    ENDS,
    RATE,
    Figure,
    Key,
    Panel,
    Row,
    Sheet,
    Slice,
    chart,
    data,
    estimate,
    held,
    listed,
    slices,
    table,
    with_ends,
)
from feedrate.charts.marks import (
    BLOCKS,
    HEIGHT,
    Looks,
    dots,
    extent,
    height,
    hover,
    lines,
    logarithmic,
    look,
    names,
    rate,
    ticks,
)
from feedrate.charts.theme import SHAPES, colour
from feedrate.pages import descriptions
from feedrate.pages.tasks import gain_settings
from feedrate.questions.workers.charts import core_marks, scaled_cells, speed_up
from feedrate.schema import words

_KINDS = (EMULATED, TRAIN, LOAD)
_WORKERS = {
    "machine": "machine",
    "workers": "workers",
    **RATE,
    **with_ends("speed-up", "times"),
    "over workers": "base",
    "run": "run_id",
}
_GAINS = {"machine": "machine", "task": "task", "settings": "settings", "times": "value", **ENDS, "run": "run_id"}
_NO_MACHINE = "Every machine was measured with one number of workers only."
_NO_GAIN = "No run compares PyTorch's default with other settings."
Where = tuple[str, str]
"""Machine id and device."""


class Named(NamedTuple):
    """What a picture says of a machine."""

    name: str
    cores: float | None


Machines = Mapping[Where, Named]


def _named(row: Mapping[Any, Any], machines: Machines) -> Named:
    where = str(row["machine_id"]), str(row["device"])
    return machines.get(where, Named(where[0], None))


def _looks(rows: Sequence[Row]) -> Looks:
    """A colour and a shape a machine."""
    every = dict.fromkeys(row["machine"] for row in rows)
    return {name: (colour(f"name-{at % 6}"), SHAPES[at % len(SHAPES)]) for at, name in enumerate(every)}


@chart("Speed by workers", "When do more workers stop helping?")
def machine_workers(sheet: Sheet, trials: pd.DataFrame, machines: Machines | None = None) -> Figure:
    """Draw throughput against workers, a line a machine, of the task that most numbers of workers were measured in."""
    if not len(trials):
        return sheet.figure((), _NO_MACHINE)
    scaled = scaled_cells(trials)
    tasks = [_task(part, machines or {}) for part in slices(scaled[scaled["num_workers"].notna()], _KINDS)]
    part, rows, still = max(tasks, key=lambda task: len(task[1]), default=(None, [], {}))
    if part is None or not rows:
        return sheet.figure((), _NO_MACHINE)
    looks = _looks(rows)
    cores = {row["machine"]: row["cores"] for row in rows}
    panel = Panel.draw(part.title, part.subtitle, _workers_message(rows), _worker_layers(rows, looks, cores), HEIGHT)
    sheet.add(panel, listed(rows, part.row(), _WORKERS), still)
    return sheet.figure([Key(name, *pair) for name, pair in looks.items()], _NO_MACHINE)


def _task(part: Slice, machines: Machines) -> tuple[Slice, list[dict[str, Any]], dict[str, Any]]:
    """A mark a number of workers, of each machine's run that has most of them; none of machines with one number."""
    frame, still = held(part.frame, ("num_workers",))
    rows = []
    for _, of_machine in frame.groupby(["machine_id", "device"], sort=False):
        of_runs = [own.sort_values("num_workers") for _, own in of_machine.groupby("run_id", sort=True)]
        fullest = max(reversed(of_runs), key=lambda own: own["num_workers"].nunique())
        cells = rows_of(fullest.drop_duplicates("num_workers"))
        rows += [_mark(cell, _named(cell, machines)) for cell in cells if len(cells) > 1]
    return part, rows, still


def _mark(cell: Row, machine: Named) -> dict[str, Any]:
    of_cell = {"run_id": str(cell["run_id"]), "workers": int(cell["num_workers"]), **estimate(cell), **speed_up(cell)}
    return {"machine": machine.name, "cores": machine.cores, **of_cell}


def _worker_layers(rows: Sequence[Row], looks: Looks, cores: Mapping[str, float | None]) -> list[alt.Chart]:
    """Lines, PyTorch's default, and where there are as many workers as cores."""
    counts = sorted({row["workers"] for row in rows})
    x = alt.X(
        "at:Q",
        title="workers",
        scale=alt.Scale(type="symlog", constant=1, domain=[min(counts) - 0.15, max(counts) * 1.1 + 0.1], nice=False),
        axis=alt.Axis(values=counts, format="d", grid=False),
    )
    y: dict[str, Any] = {
        "title": "samples per second",
        "scale": alt.Scale(zero=True, nice=5),
        "axis": alt.Axis(format=",.3~s"),
    }
    tone, shape = look("machine", looks, looks)
    drawn = data([{**row, "at": row["workers"]} for row in rows], "machine", "at", "workers", "value", "lo", "hi", "n")
    tooltip = hover({"machine:N": "", "workers:Q": "", **rate("samples per second"), **BLOCKS})
    layers = lines(alt.Chart(drawn).encode(x=x, color=tone), y, shape, tooltip)
    default = [{"at": 0, "value": row["value"], "text": "PyTorch’s default"} for row in rows if row["workers"] == 0][:1]
    marked = alt.Chart(table(default))
    text = marked.mark_text(align="left", baseline="top", dx=7, dy=5, fontSize=11, color=colour("muted"))
    return [
        *core_marks(cores.values(), x, max(counts)),
        *layers,
        text.encode(x=x, y=alt.Y("value:Q", **y), text=alt.Text("text:N")),
    ]


def _workers_message(rows: Sequence[Row]) -> str:
    """Of each machine the fastest number of workers, and what it brings over the fewest."""
    texts = []
    for machine in dict.fromkeys(row["machine"] for row in rows):
        best = max((row for row in rows if row["machine"] == machine), key=lambda row: row["value"])
        fastest = f"{words.plural(best['workers'], 'worker')}, {words.number(best['value'])} samples/s"
        if best["times"] is not None and best["workers"] != best["base"]:
            low, high = (math.nan if best[end] is None else best[end] for end in ("times_lo", "times_hi"))
            times = Estimate(best["times"], low, high, best["n"], "ratio")
            fastest += f", {times.text()} the speed with {best['base'] or 'none'}"
        texts.append(f"Fastest on {machine}: {fastest}.")
    return " ".join(texts)


@chart("From the default to the best", "What do better loader settings gain?", reads="headlines")
def machine_gains(sheet: Sheet, headlines: pd.DataFrame, machines: Machines | None = None) -> Figure:
    """Draw a row a task and machine: its best loader settings' speed over that of PyTorch's defaults."""
    rows = [_gain(row, _named(row, machines or {})) for row in rows_of(headlines) if _gained(row)]
    if not rows:
        return sheet.figure((), _NO_GAIN)
    looks = _looks(rows)
    tone, shape = look("machine", looks, looks)
    order = list(dict.fromkeys(row["task"] for row in rows))
    base = alt.Chart(data(rows, "task", "machine", "settings", "value", "lo", "hi")).encode(
        y=names("task", order, labelLimit=210), yOffset=alt.YOffset("machine:N", sort=list(looks)), color=tone
    )
    ends = [*rows, {"value": 1.0, "lo": 1.0, "hi": 1.0}]
    x = logarithmic(ends, "times the default speed")
    x["axis"] = alt.Axis(values=ticks(*extent(ends)), format="~g", domain=False)
    tooltip = hover({"task:N": "", "machine:N": "", "settings:N": "", **rate("times")})
    default = alt.Chart(table([{"value": 1.0}])).mark_rule(color=colour("muted"), strokeDash=[2, 3])
    layers = [default.encode(x=alt.X("value:Q", **x)), *dots(base, x, shape, tooltip)]
    best = max(rows, key=lambda row: row["value"])
    gain = Estimate(best["value"], best["lo"], best["hi"], best["n"], "ratio")
    message = f"Most gained: {gain.text()} with {best['settings']} ({best['task']})."
    panel = Panel.draw("Best loader settings", "1 is PyTorch’s default", message, layers, height(len(order), 26))
    sheet.add(panel, listed(rows, {}, _GAINS))
    sheet.note("A setting is chosen on one half of the repetitions and measured on the other.")
    return sheet.figure([Key(name, *pair) for name, pair in looks.items()], _NO_GAIN)


def _gained(row: Mapping[Any, Any]) -> bool:
    return row["gain"] is not None and words.known(row["gain"]["lo"])


def _gain(row: Mapping[Any, Any], machine: Named) -> dict[str, Any]:
    gain = row["gain"]
    ran = (
        f"{row['step_ms']:g} ms step" if row["kind"] == EMULATED else {TRAIN: "training", LOAD: "loading"}[row["kind"]]
    )
    task = ", ".join([ran, words.sized(row["workload"], row["patch_size"], " "), *descriptions.reading(row)])
    ratio = {"value": float(gain["ratio"]), "lo": float(gain["lo"]), "hi": float(gain["hi"]), "n": int(gain["n"])}
    return {
        "run_id": str(row["run_id"]),
        "machine": machine.name,
        "task": task,
        "settings": gain_settings(gain),
        **ratio,
    }
