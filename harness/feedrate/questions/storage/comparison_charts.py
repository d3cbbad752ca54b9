"""Charts that compare storage formats: container against content, gain by workers, and where loading goes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.blocks import KEYS
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.storage import scaling
from feedrate.charts.figure import (
    ENDS,
    RATE,
    Figure,
    Key,
    Panel,
    Row,
    Sheet,
    chart,
    data,
    estimate,
    interval,
    listed,
    plain,
    point,
    stacked,
    table,
)
from feedrate.charts.marks import BLOCKS, Fields, dots, extent, height, hover, log_axis, names, rate, tiles, tone
from feedrate.charts.theme import HEAT_STEPS, STAGE_COLOURS, colour
from feedrate.questions.storage.analysis import CONTAINER, GIVEN, PIXELS, effects
from feedrate.questions.storage.charts import Part, by_state, close, loads, parts, state_keys, state_shape
from feedrate.schema import words
from feedrate.schema.columns import WORKER_STAGES

TONES = {CONTAINER: colour("source"), PIXELS: colour("accent")}
LABELS = {CONTAINER: "same bytes, another container", PIXELS: "same container, decoded pixels"}
_EFFECT_COLUMNS = {
    "pair": "pair",
    "effect": "effect",
    "same": "same",
    "lossy": "lossy",
    "page_cache": "state",
    "ratio": "value",
    **ENDS,
    "verdict": "verdict",
}
EDGES = (1.0, 1.5, 2.0, 3.0)
"""Of the steps of colour, times the base."""
_SCALING_COLUMNS = {
    "format": "format",
    "page_cache": "state",
    "num_workers": "workers",
    **RATE,
    "times the fewest workers": "times",
    "times low": "times_lo",
    "times high": "times_hi",
}


@chart("The container, and what is in it", "Is it the container that matters, or what a sample is stored as?")
def storage_effects(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw the paired ratio of two formats a line: other containers first, then decoded pixels."""
    pairs = rows_of(effects(trials)) if len(trials) else []
    shown: list[Row] = []
    for part in loads(trials):
        if rows := _effect_rows(part, pairs):
            shown += rows
            states = len({row["state"] for row in shown})
            size = height(len({row["pair"] for row in rows}), 20 if states > 1 else 17)
            panel = Panel.draw(part.title, part.subtitle, _effect_message(rows), _effect_layers(rows), size)
            sheet.add(panel, listed(rows, part.row(), _EFFECT_COLUMNS), part.held)
    close(sheet, loads(trials))
    sheet.note(
        "Ratios of throughputs, paired repetition by repetition; right of 1 the second of a pair is faster. Of the "
        "formats that store the same bytes a folder of files is the first. Chunks of many samples are part of what "
        "hdf5_chunked stores."
    )
    legend = [Key(LABELS[effect], TONES[effect]) for effect in LABELS] + state_keys(shown)
    return sheet.figure(legend, "Nothing to compare: no two formats share their container or what they store.")


def _effect_rows(part: Part, pairs: Sequence[Row]) -> list[dict[str, Any]]:
    """The pairs of both sides of which the panel has the cells."""
    cells = {state: cells.iloc[0] for state, cells in part.frame.groupby("page_cache")}
    rows = [
        {
            "pair": f"{pair['a_format']} → {pair['b_format']}",
            "effect": pair["effect"],
            "kind": LABELS[pair["effect"]],
            "same": pair["same"],
            "lossy": bool(pair["lossy"]),
            "state": str(pair["page_cache"]),
            **estimate({**pair, "samples_per_s": pair["ratio"]}),
            "verdict": str(pair["verdict"]),
        }
        for pair in pairs
        if (cell := cells.get(pair["page_cache"])) is not None
        and all(plain(cell[name]) == plain(pair[name]) for name in GIVEN)
    ]

    def rank(row: Row) -> tuple[Any, ...]:
        container = row["effect"] == CONTAINER
        return not container, container and row["same"], row["state"] != "warm", -row["value"]

    return sorted((row for row in rows if row["value"]), key=rank)


def _effect_layers(rows: Sequence[Row]) -> list[alt.Chart]:
    lo, hi = extent(rows)
    x = log_axis(min(lo, 0.8), max(hi, 1.25), "times as fast", "~r")
    states = list(by_state(rows))
    base = alt.Chart(data(rows, "pair", "kind", "state", "value", "lo", "hi", "n", "verdict")).encode(
        y=names("pair", list(dict.fromkeys(row["pair"] for row in rows))),
        yOffset=alt.YOffset("state:N", sort=states, scale=alt.Scale(domain=states, paddingOuter=0.5)),
        color=tone("kind", {LABELS[effect]: TONES[effect] for effect in LABELS}),
    )
    tooltip: Fields = {
        "pair:N": "",
        "kind:N": "what differs",
        "state:N": "page cache",
        "value:Q": ("times as fast", ",.3~g"),
        "lo:Q": ("low", ",.3~g"),
        "hi:Q": ("high", ",.3~g"),
        "verdict:N": "",
        "n:Q": "repetitions",
    }
    one = alt.Chart(table([{"one": 1}])).mark_rule(color=colour("muted"), strokeDash=[3, 3])
    marks = dots(base, x, state_shape(), hover(tooltip), size=50, strokeWidth=1.75)
    return [one.encode(x=alt.X("one:Q", **x)), *marks]


def _effect_message(rows: Sequence[Row]) -> str:
    """Name the largest effect of each kind in each state."""
    sentences = []
    for state, own in by_state(rows).items():
        parts = []
        for effect, name in ((PIXELS, "decoded pixels"), (CONTAINER, "another container")):
            if part := [row for row in own if row["effect"] == effect]:
                most = max(part, key=lambda row: max(row["value"], 1 / row["value"]))
                ratio = words.estimate((most["value"], most["lo"], most["hi"]), "ratio", n=most["n"])
                parts.append(f"{name} {ratio}, {most['pair']}")
        sentences.append(words.sentence(f"largest effects, {state}: {words.listed(parts)}"))
    return " ".join(sentences)


@chart("Scaling with workers, by format", "Which formats gain from more workers, and by how much?")
def storage_scaling(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw a tile a format and worker count, warm and cold in panels of their own."""
    added = [*KEYS, "base_workers", "speedup", "speedup_lo", "speedup_hi"]
    speedups = scaling(trials)[added] if len(trials) else pd.DataFrame()
    panels = parts(trials, free=("num_workers", "prefetch_factor"))
    for part in panels:
        frame = part.frame.merge(speedups, on=list(KEYS), how="left")
        for state in part.states:
            rows = _scaling_rows(frame[frame["page_cache"].eq(state)])
            if len({row["workers"] for row in rows}) > 1:
                subtitle, size = f"{part.subtitle}, {state}", height(len({row["format"] for row in rows}), 27)
                panel = Panel.draw(part.title, subtitle, _scaling_message(rows), _scaling_layers(rows), size)
                sheet.add(panel, listed(rows, part.row(), _SCALING_COLUMNS), part.held)
    close(sheet, panels)
    sheet.note(
        "Large: samples per second. Small: times the fewest workers of the same format, paired repetition by "
        "repetition, with half of its 95 % interval."
    )
    steps = [f"under {EDGES[0]:g}", *(f"{a:g} to {b:g}" for a, b in pairwise(EDGES)), f"over {EDGES[-1]:g}"]
    legend = [Key(f"{text} times", colour(f"heat-{step}")) for step, text in enumerate(steps)]
    return sheet.figure(legend, "Every format was measured with one number of workers only.")


def _scaling_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A row a format and worker count, with the smallest prefetch_factor that was measured."""
    rows = []
    ordered = frame.sort_values(["num_workers", "prefetch_factor"])
    for cell in rows_of(ordered.drop_duplicates(["storage_format", "num_workers"])):
        times, lo, hi = (plain(cell[name]) for name in ("speedup", "speedup_lo", "speedup_hi"))
        first = cell["num_workers"] == cell["base_workers"]
        rows.append(
            {
                "format": str(cell["storage_format"]),
                "state": str(cell["page_cache"]),
                **point(cell),
                "times": times,
                "times_lo": lo,
                "times_hi": hi,
                "base": plain(cell["base_workers"]),
                "step": min(HEAT_STEPS - 1, sum((times or 0.0) >= edge for edge in EDGES)),
                "text": words.number(float(cell["samples_per_s"])),
                "small": "" if times is None or first else f"{times:.2f}× {words.margin(lo, hi, '{:.2f}'.format)}",
            }
        )
    return rows


def _scaling_layers(rows: Sequence[Row]) -> list[alt.Chart]:
    fastest = {row["format"]: row["value"] for row in sorted(rows, key=lambda row: float(row["value"]))}
    order = sorted(fastest, key=lambda name: (-fastest[name], name))
    fields = ("format", "workers", "value", "lo", "hi", "times", "n", "step", "text", "small")
    tooltip: Fields = {"format:N": "", "workers:O": "", **rate("samples per second")}
    base = alt.Chart(data(rows, *fields)).encode(
        y=names("format", order),
        tooltip=hover({**tooltip, "times:Q": ("times the fewest", ".3~g"), **BLOCKS}),
    )
    wide = len({row["workers"] for row in rows}) <= 4
    return tiles(base, "small", 1.5, (11, 8.5) if wide else (9, 7), (-5, 7))


def _scaling_message(rows: Sequence[Row]) -> str:
    """Name the formats that gain most and least at the largest number of workers."""
    workers, fewest = max(row["workers"] for row in rows), min(row["workers"] for row in rows)
    end = [row for row in rows if (row["workers"], row["base"]) == (workers, fewest) and row["times"] is not None]
    if not end:
        return words.sentence(f"no format was measured in the same repetitions with fewer workers and with {workers}")
    most, least = (pick(end, key=lambda row: row["times"]) for pick in (max, min))
    text = (
        f"with {words.plural(workers, 'worker')}, {most['format']} does {words.times(most['times'])} what it does with "
        f"{fewest} ({interval(most, 'times_lo', 'times_hi')})"
    )
    if least["format"] != most["format"]:
        spread = interval(least, "times_lo", "times_hi")
        text += f"; {least['format']}, which gains least, {words.times(least['times'])} ({spread})"
    return words.sentence(text)


@chart("Where a sample’s loading goes", "What does the loader spend its time on, and how much of it?")
def storage_work(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw a bar a format, the time of a sample beside it."""
    columns = {"format": "format", "page_cache": "state", "total (us)": "total", "n": "n"}
    for part in loads(trials):
        for state in part.states:
            if rows := _work_rows(part, state):
                subtitle, size = f"{part.subtitle}, {state}", height(len(rows) // len(WORKER_STAGES), 17)
                panel = Panel.draw(part.title, subtitle, _work_message(rows), _work_layers(rows), size)
                sheet.add(panel, stacked(rows, "format", "stage", part.row(), columns), part.held)
    close(sheet, loads(trials))
    sheet.note("Medians over measurements of the loader’s own wall clock, its queues left out.")
    legend = [Key(stage, STAGE_COLOURS[stage]) for stage in WORKER_STAGES]
    return sheet.figure(legend, "No loader’s stages were stamped here.")


def _work_rows(part: Part, state: str) -> list[dict[str, Any]]:
    """One row a stage of a format, those with the least total first."""
    bars = []
    for cell in rows_of(part.frame[part.frame["page_cache"].eq(state)]):
        costs = [plain(cell[f"{stage}_us_per_sample"]) for stage in WORKER_STAGES]
        if all(cost is not None for cost in costs) and sum(costs):
            bars.append((sum(costs), str(cell["storage_format"]), costs, int(cell["n"])))
    return [
        {
            "format": name,
            "state": state,
            "order": place,
            "stage": stage,
            "us": float(costs[place]),
            "share": costs[place] / total,
            "total": float(total),
            "text": f"{words.number(total)} µs" if total < 1000 else f"{words.number(total / 1000)} ms",
            "n": n,
        }
        for total, name, costs, n in sorted(bars)
        for place, stage in enumerate(WORKER_STAGES)
    ]


def _work_layers(rows: Sequence[Row]) -> list[alt.Chart]:
    y = names("format", list(dict.fromkeys(row["format"] for row in rows)))
    base = alt.Chart(data(rows, "format", "order", "stage", "us", "share", "text", "n")).encode(y=y)
    tooltip: Fields = {"format:N": "", "stage:N": "", "us:Q": ("µs per sample", ",.3~g"), "share:Q": ("", ".1%")}
    bars = base.mark_bar(stroke=colour("paper"), strokeWidth=0.5).encode(
        x=alt.X(
            "share:Q",
            stack="zero",
            title="share of a sample’s loading, and its time",
            axis=alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], format=".0%", grid=False),
            scale=alt.Scale(domain=[0, 1.27], nice=False),
        ),
        color=tone("stage", STAGE_COLOURS),
        order=alt.Order("order:Q"),
        tooltip=hover({**tooltip, **BLOCKS}),
    )
    totals = (
        base.transform_filter("datum.order === 0")
        .mark_text(align="right", fontSize=10, color=colour("ink"))
        .encode(x=alt.XDatum(1.265, type="quantitative"), text=alt.Text("text:N"))
    )
    return [bars, totals]


def _work_message(rows: Sequence[Row]) -> str:
    """Set the format with the cheapest samples against the one with the dearest."""
    parts = []
    for word, name in {"least": rows[0]["format"], "most": rows[-1]["format"]}.items():
        own = [row for row in rows if row["format"] == name]
        most = max(own, key=lambda row: row["share"])
        share = words.percent(most["share"])
        parts.append(f"{word}: {name}, {own[0]['text']} a sample, of which {share} is {most['stage']}")
    return words.sentence("; ".join(parts if rows[0]["format"] != rows[-1]["format"] else parts[:1]))
