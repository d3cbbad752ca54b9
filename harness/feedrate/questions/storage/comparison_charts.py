"""Charts that compare storage formats: container against content, and where loading goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import ENDS, Figure, Key, Row, Sheet, Slice, chart, estimate, listed, plain, stacked
from feedrate.charts.plot import BLOCKS, Bars, Looks, Plot, Side, extent, keys, limit_panels, log, names, rule
from feedrate.charts.theme import STAGE_COLOURS, colour
from feedrate.questions.storage.analysis import CONTAINER, GIVEN, PIXELS, effects
from feedrate.questions.storage.charts import MARKS, by_state, keys_of_states, loads, note_states, shared
from feedrate.schema import words
from feedrate.schema.columns import WORKER_STAGES

LABELS = {CONTAINER: "same bytes, another container", PIXELS: "same container, plain pixels"}
LOOKS: Looks = {LABELS[CONTAINER]: (colour("source"), "bar"), LABELS[PIXELS]: (colour("accent"), "bar")}
CHUNKED = "hdf5_chunked"
"""A format whose samples share chunks: what that costs is no effect of its encoding alone."""
_EFFECT_COLUMNS = {name: name for name in ("pair", "effect", "same", "lossy")}
_EFFECT_COLUMNS |= {"page_cache": "state", "ratio": "value", **ENDS, "verdict": "verdict"}


@chart("The container, and what is in it", "Which matters more, a format’s container or its encoding?")
def storage_effects(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw the paired ratio of two formats a line: other containers first, then decoded pixels."""
    pairs = rows_of(effects(trials))
    shown: list[Row] = []
    for subset, still in loads(trials):
        if rows := _effect_rows(subset, pairs):
            shown += rows
            panel = _effect_plot(rows).panel(subset.title, subset.subtitle, _effect_message(rows))
            sheet.add(panel, listed(rows, shared(subset), _EFFECT_COLUMNS), still)
    limit_panels(sheet)
    note_states(sheet)
    sheet.note(
        "Ratios of throughputs, paired repetition by repetition: right of 1 the second format is faster. An effect is "
        "clear if its interval lies beyond 1 % and not wholly within 3 %. Containers compare with a folder of files."
    )
    if any(row["pair"].startswith(CHUNKED) for row in sheet.rows):
        sheet.note(f"{CHUNKED} also packs many samples into a chunk, and a random read unpacks all of it.")
    missing = "Nothing to compare: no two formats share their container or their encoding."
    return sheet.figure([*keys(LOOKS), *keys_of_states(shown)], missing)


def _effect_rows(subset: Slice, pairs: Sequence[Row]) -> list[dict[str, Any]]:
    """The pairs of both sides of which the panel has the cells."""
    cells = {state: cells.iloc[0] for state, cells in subset.frame.groupby("page_cache")}
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

    return sorted((row for row in rows if row["value"]), key=_rank)


def _rank(row: Row) -> tuple[Any, ...]:
    """Containers by what they hold, then pixels; warm first, and the fastest."""
    container = row["effect"] == CONTAINER
    return not container, container and row["same"], row["state"] != "warm", -row["value"]


def _effect_plot(rows: Sequence[Row]) -> Plot:
    lo, hi = extent(rows)
    x = log("value", "times as fast", (min(lo, 0.8), max(hi, 1.25)), "~r")
    states, y = list(by_state(rows)), names("pair", (row["pair"] for row in rows))
    high, behind = 20 if len(states) > 1 else 17, [rule(x, "x", 1.0)]
    also, beside = {"verdict:N": ""}, ("state", states)
    return Plot(rows, x, y, "kind", LOOKS, shaped=("state", MARKS), beside=beside, also=also, row=high, behind=behind)


def _effect_message(rows: Sequence[Row]) -> str:
    """Name the largest effect of each kind, of clear ones where there are, warm where that was measured."""
    state, of_state = next(iter(by_state(rows).items()))
    parts = []
    for effect, name in ((PIXELS, "plain pixels"), (CONTAINER, "another container")):
        of_effect = [row for row in of_state if row["effect"] == effect]
        if of_effect := [row for row in of_effect if not row["pair"].startswith(CHUNKED)] or of_effect:
            clear = [row for row in of_effect if row["verdict"] in ("faster", "slower")]
            most = max(clear or of_effect, key=lambda row: max(row["value"], 1 / row["value"]))
            ratio = words.estimate((most["value"], most["lo"], most["hi"]), "ratio", n=most["n"])
            parts.append(f"{name} {ratio}, {most['pair']}{'' if clear else ', not clear'}")
    return f"Largest effects, {state}: {'; '.join(parts)}."


@chart("Where a sample’s loading goes", "What does the loader spend its time on, and how much of it?")
def storage_work(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw a bar a format, named with the time of a sample."""
    columns = {"format": "format", "page_cache": "state", "total (us)": "total", "n": "n"}
    axis = {"values": [0, 0.25, 0.5, 0.75, 1], "format": ".0%", "grid": False}
    x, also = Side("share", "share of a sample’s loading", axis=axis), {"us:Q": ("µs per sample", ",.3~g"), **BLOCKS}
    for subset, still in loads(trials):
        for state in MARKS:
            if rows := _work_rows(subset, state):
                y = names("bar", (row["bar"] for row in rows))
                bars = Bars(rows, x, y, "stage", STAGE_COLOURS, also=also, row=17)
                panel = bars.panel(subset.title, f"{subset.subtitle}, {state}", _work_message(rows))
                sheet.add(panel, stacked(rows, "format", "stage", shared(subset), columns), still)
    limit_panels(sheet)
    note_states(sheet)
    sheet.note("Medians over measurements of the loader’s own wall clock, without its queues.")
    legend = [Key(stage, STAGE_COLOURS[stage]) for stage in WORKER_STAGES]
    return sheet.figure(legend, "No loader’s stages were stamped here.")


def _work_rows(subset: Slice, state: str) -> list[dict[str, Any]]:
    """One row a stage of a format, those with the least total first."""
    stages = [f"{stage}_us_per_sample" for stage in WORKER_STAGES]
    stamped = subset.frame[subset.frame["page_cache"].eq(state)].dropna(subset=stages)
    stamped = stamped.assign(total=stamped[stages].sum(axis=1)).sort_values(["total", "storage_format"])
    rows = []
    for cell in rows_of(stamped[stamped["total"] > 0]):
        total, name = float(cell["total"]), str(cell["storage_format"])
        took = f"{words.number(total)} µs" if total < 1000 else f"{words.number(total / 1000)} ms"
        of_bar = {"bar": f"{name}, {took}", "format": name, "state": state, "total": total, "n": int(cell["n"])}
        for order, (stage, column) in enumerate(zip(WORKER_STAGES, stages, strict=True)):
            us = float(cell[column])
            rows.append({**of_bar, "order": order, "stage": stage, "us": us, "share": us / total})
    return rows


def _work_message(rows: Sequence[Row]) -> str:
    """Set the format with the cheapest samples against the one with the dearest."""
    parts = []
    for bar, word in {rows[-1]["bar"]: "most", rows[0]["bar"]: "least"}.items():
        most = max((row for row in rows if row["bar"] == bar), key=lambda row: row["share"])
        parts.append(f"{word}: {bar} a sample, of which {words.percent(most['share'])} is {most['stage']}")
    return words.sentence("; ".join(parts))
