"""Images a second that a core loads, by decoder: read, decode, crop, resize; alone and with other cores busy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import altair as alt
import pandas as pd

from feedrate.charts.figure import ENDS, Figure, Key, Panel, Row, Sheet, chart, data, interval, listed
from feedrate.charts.marks import BLOCKS, dots, height, hover, look, names, rate
from feedrate.charts.theme import SHAPES, colour
from feedrate.questions.cores.analysis import per_core
from feedrate.schema import words

_COLUMNS = {"decoder": "decoder", "workers": "workers", "images per s and vCPU": "value", **ENDS}
_MISSING = "No image files were loaded in this run by as many workers as there are cores, or fewer."


@chart("Images a second, a vCPU", "How many images does a vCPU load, and with which decoder?")
def images_per_core(sheet: Sheet, trials: pd.DataFrame, cores: int) -> Figure:
    """Draw the rate of a core by decoder, a mark for each number of workers."""
    rows = [{**asdict(core), "who": words.plural(core.workers, "worker")} for core in per_core(trials, cores)]
    order = sorted({(row["workers"], row["who"]) for row in rows})
    looks = {who: (colour(f"name-{at % 6}"), SHAPES[at % len(SHAPES)]) for at, (_, who) in enumerate(order)}
    if rows:
        decoders = list(dict.fromkeys(row["decoder"] for row in rows))
        tone, shape = look("who", looks, set(looks))
        base = alt.Chart(data(rows, "decoder", "who", "workers", "value", "lo", "hi", "n"))
        base = base.encode(y=names("decoder", decoders), color=tone)
        tooltip = hover({"decoder:N": "", "who:N": "", **rate("images per second and vCPU"), **BLOCKS})
        x = {"title": "images per second and vCPU", "scale": alt.Scale(zero=True)}
        subtitle = f"{words.plural(cores, 'vCPU')}; decode, random crop, resize to 224 px"
        panel = Panel.draw(
            "What a vCPU loads", subtitle, _message(rows), dots(base, x, shape, tooltip), height(len(decoders))
        )
        sheet.add(panel, listed(rows, {}, _COLUMNS))
    sheet.note(
        "Images a second of the loader ÷ its workers; a vCPU is a hardware thread. Scaled: the JPEG file is decoded at "
        "a half, a quarter or an eighth of its size where the crop keeps enough pixels. "
        "Intervals are Student’s t over blocks, on logs."
    )
    return sheet.figure([Key(who, *pair) for who, pair in looks.items()], _MISSING)


def _message(rows: Sequence[Row]) -> str:
    """The fastest and the slowest decoder with the most workers."""
    most = max(row["workers"] for row in rows)
    busy = [row for row in rows if row["workers"] == most]
    best, worst = busy[0], busy[-1]
    text = f"a vCPU loads {words.number(best['value'])} images a second with {best['decoder']} ({interval(best)})"
    if worst is not best:
        times = words.times(best["value"] / worst["value"])
        text += f", {times} what it does with {worst['decoder']}"
    return words.sentence(f"{text}, {words.plural(most, 'worker')} busy")
