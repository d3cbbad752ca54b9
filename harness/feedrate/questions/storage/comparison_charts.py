"""Charts that compare storage formats: container against content, and where loading goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import ENDS, Figure, Key, Row, Sheet, chart, data, estimate, listed, plain, stacked
from feedrate.charts.plot import BLOCKS, Bars, Fields, Looks, Plot, Side, extent, log, names, rule
from feedrate.charts.theme import STAGE_COLOURS, colour
from feedrate.questions.storage.analysis import CONTAINER, GIVEN, PIXELS, effects
from feedrate.questions.storage.charts import MARKS, Part, by_state, close, keys_of_states, loads
from feedrate.schema import words
from feedrate.schema.columns import WORKER_STAGES

LABELS = {CONTAINER: "same bytes, another container", PIXELS: "same container, decoded pixels"}
LOOKS: Looks = {LABELS[CONTAINER]: (colour("source"), "bar"), LABELS[PIXELS]: (colour("accent"), "bar")}
_EFFECT_COLUMNS = {name: name for name in ("pair", "effect", "same", "lossy")}
_EFFECT_COLUMNS |= {"page_cache": "state", "ratio": "value", **ENDS, "verdict": "verdict"}


@chart("The container, and what is in it", "Which matters more, a format’s container or its encoding?")
def storage_effects(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw the paired ratio of two formats a line: other containers first, then decoded pixels."""
    pairs = rows_of(effects(trials)) if len(trials) else []
    shown: list[Row] = []
    for subset in loads(trials):
        if rows := _effect_rows(subset, pairs):
            shown += rows
            panel = _effect_plot(rows).panel(subset.title, subset.subtitle, _effect_message(rows))
            sheet.add(panel, listed(rows, subset.row(), _EFFECT_COLUMNS), subset.held)
    close(sheet, loads(trials))
    sheet.note(
        "Ratios of throughputs, paired repetition by repetition: right of 1 the second format is faster. Containers "
        "compare with a folder of files. For hdf5_chunked, chunks of many samples count as encoding."
    )
    legend = [Key(name, tint) for name, (tint, _) in LOOKS.items()]
    missing = "Nothing to compare: no two formats share their container or their encoding."
    return sheet.figure([*legend, *keys_of_states(shown)], missing)


def _effect_rows(subset: Part, pairs: Sequence[Row]) -> list[dict[str, Any]]:
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

    def rank(row: Row) -> tuple[Any, ...]:
        container = row["effect"] == CONTAINER
        return not container, container and row["same"], row["state"] != "warm", -row["value"]

    return sorted((row for row in rows if row["value"]), key=rank)


def _effect_plot(rows: Sequence[Row]) -> Plot:
    lo, hi = extent(rows)
    x = log("value", "times as fast", (min(lo, 0.8), max(hi, 1.25)), "~r")
    states, y = list(by_state(rows)), names("pair", (row["pair"] for row in rows))
    high, behind = 20 if len(states) > 1 else 17, [rule(x, "x", 1.0)]
    also, beside = {"verdict:N": ""}, ("state", states)
    return Plot(rows, x, y, "kind", LOOKS, shaped=("state", MARKS), beside=beside, also=also, row=high, behind=behind)


def _effect_message(rows: Sequence[Row]) -> str:
    """Name the largest effect of each kind in each state."""
    sentences = []
    for state, of_state in by_state(rows).items():
        parts = []
        for effect, name in ((PIXELS, "decoded pixels"), (CONTAINER, "another container")):
            if of_effect := [row for row in of_state if row["effect"] == effect]:
                most = max(of_effect, key=lambda row: max(row["value"], 1 / row["value"]))
                ratio = words.estimate((most["value"], most["lo"], most["hi"]), "ratio", n=most["n"])
                parts.append(f"{name} {ratio}, {most['pair']}")
        sentences.append(words.sentence(f"largest effects, {state}: {words.listed(parts)}"))
    return " ".join(sentences)


@chart("Where a sample’s loading goes", "What does the loader spend its time on, and how much of it?")
def storage_work(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw a bar a format, the time of a sample beside it."""
    columns = {"format": "format", "page_cache": "state", "total (us)": "total", "n": "n"}
    for subset in loads(trials):
        for state in subset.states:
            if rows := _work_rows(subset, state):
                panel = _work_bars(rows).panel(subset.title, f"{subset.subtitle}, {state}", _work_message(rows))
                sheet.add(panel, stacked(rows, "format", "stage", subset.row(), columns), subset.held)
    close(sheet, loads(trials))
    sheet.note("Medians over measurements of the loader’s own wall clock, without its queues.")
    legend = [Key(stage, STAGE_COLOURS[stage]) for stage in WORKER_STAGES]
    return sheet.figure(legend, "No loader’s stages were stamped here.")


def _work_rows(subset: Part, state: str) -> list[dict[str, Any]]:
    """One row a stage of a format, those with the least total first."""
    bars = []
    for cell in rows_of(subset.frame[subset.frame["page_cache"].eq(state)]):
        costs = [plain(cell[f"{stage}_us_per_sample"]) for stage in WORKER_STAGES]
        if all(cost is not None for cost in costs) and sum(costs):
            bars.append((sum(costs), str(cell["storage_format"]), costs, int(cell["n"])))
    return [
        {
            "format": name,
            "state": state,
            "order": index,
            "stage": stage,
            "us": float(costs[index]),
            "share": costs[index] / total,
            "total": float(total),
            "text": f"{words.number(total)} µs" if total < 1000 else f"{words.number(total / 1000)} ms",
            "n": n,
        }
        for total, name, costs, n in sorted(bars)
        for index, stage in enumerate(WORKER_STAGES)
    ]


def _work_bars(rows: Sequence[Row]) -> Bars:
    """Bars of shares, the time of a sample at their right."""
    axis = {"values": [0, 0.25, 0.5, 0.75, 1], "format": ".0%", "grid": False}
    y = names("format", (row["format"] for row in rows))
    totals = alt.Chart(data([row for row in rows if not row["order"]], "format", "text"))
    totals = totals.mark_text(align="right", fontSize=12, color=colour("ink"))
    x = Side("share", "share of a sample’s loading, and its time", {"domain": [0, 1.27], "nice": False}, axis)
    also: Fields = {"us:Q": ("µs per sample", ",.3~g"), **BLOCKS}
    before = [totals.encode(**y.along("y"), x=alt.XDatum(1.265, type="quantitative"), text=alt.Text("text:N"))]
    return Bars(rows, x, y, "stage", STAGE_COLOURS, also=also, row=17, before=before)


def _work_message(rows: Sequence[Row]) -> str:
    """Set the format with the cheapest samples against the one with the dearest."""
    parts = []
    for word, name in {"least": rows[0]["format"], "most": rows[-1]["format"]}.items():
        segments = [row for row in rows if row["format"] == name]
        most = max(segments, key=lambda row: row["share"])
        share = words.percent(most["share"])
        parts.append(f"{word}: {name}, {segments[0]['text']} a sample, of which {share} is {most['stage']}")
    return words.sentence("; ".join(parts if rows[0]["format"] != rows[-1]["format"] else parts[:1]))
