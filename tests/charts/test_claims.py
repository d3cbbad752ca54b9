"""The forest plot of claims: what is drawn is what was judged, turned into the direction that is claimed."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import pytest

from feedrate.analysis.claim_values import observe
from feedrate.analysis.claims import CLAIM_COLUMNS, judge_claims
from feedrate.charts import render
from feedrate.charts.figure import Figure
from feedrate.pages.runs import RunView
from feedrate.plan import suite
from feedrate.plan.claim import Claim, Effect, pair, slope
from feedrate.questions.claims import charts
from feedrate.schema.columns import PROTOCOL_VERSION

SIDES = ({"num_workers": 0}, {"num_workers": 2})
LOAD = {"mode": "load"}


def claim(name: str, effect: Effect | None) -> Claim:
    facts = () if effect else ({"check": "termination"},)
    return Claim(name, "Says so.", ("BOT",), "Tested so.", "Others.", effect, facts=facts)


ASKED = {
    each.id: ("workers", each)
    for each in (
        claim("more", pair(*SIDES, LOAD)),
        claim("less", pair(*SIDES, LOAD, metric="data_wait", says="less")),
        claim("along", slope("batch_size", (8, 16, 32), LOAD)),
        claim("told", pair(*SIDES, LOAD, figure=3.0)),
        claim("told-less", pair(*SIDES, LOAD, metric="data_wait", says="less", figure=0.1)),
        claim("fact", None),
    )
}


def judgement(name: str, ratio: float, width: float = 1.02, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(CLAIM_COLUMNS)
    ends = {"lo": ratio / width, "hi": ratio * width}
    given = {"claim": name, "suite": "workers", "run_id": "r", "machine_id": "m", "device": "cpu", "n": 9}
    given |= {"run_ids": (more.get("run_id", "r"),), "protocol": PROTOCOL_VERSION, "worst_case": ""}
    return row | given | ends | {"ratio": ratio, "verdict": "confirmed"} | more


def forest(*rows: Mapping[str, Any]) -> Figure:
    return charts.forest(pd.DataFrame(list(rows), columns=list(CLAIM_COLUMNS)), ASKED)


def values(figure: Figure, panel: int = 0) -> dict[str, dict[str, Any]]:
    """What is drawn, by claim."""
    spec = render.specification(figure.panels[panel])
    found = [row for rows in spec["datasets"].values() for row in rows if "claim" in row]
    return {row["claim"]: row for row in found}


def test_right_of_one_is_what_the_claim_says() -> None:
    """Where less is claimed the ratio and its ends are inverted for the picture; the table has them as measured."""
    figure = forest(judgement("more", 1.5), judgement("less", 0.5, 1.1))
    drawn = values(figure)
    assert drawn["more"]["value"] == pytest.approx(1.5)
    assert drawn["less"]["value"] == pytest.approx(2.0)
    assert (drawn["less"]["from"], drawn["less"]["to"]) == pytest.approx((2 / 1.1, 2 * 1.1), rel=1e-4)
    listed = {row["claim"]: row for row in figure.rows}
    assert (listed["less"]["ratio"], listed["less"]["low"], listed["less"]["high"]) == pytest.approx(
        (0.5, 0.5 / 1.1, 0.55)
    )
    assert listed["less"]["claimed"] == "less"
    assert "data wait" in listed["less"]["metric"]


def test_the_worst_case_is_a_tick() -> None:
    """It is turned round with its effect, and lies within the axis; an effect of one case has none."""
    figure = forest(
        judgement("more", 1.5, worst=0.2, worst_case="batch_size=8"),
        judgement("less", 0.5, worst=1.25, worst_case="batch_size=8"),
        judgement("along", 1.1),
    )
    drawn = values(figure)
    assert (drawn["more"]["tick"], drawn["less"]["tick"], drawn["along"]["tick"]) == (0.2, pytest.approx(0.8), None)
    (low, _) = render.specification(figure.panels[0])["layer"][-1]["encoding"]["x"]["scale"]["domain"]
    assert low < 0.2
    assert {row["claim"]: row["its ratio"] for row in figure.rows} == {"more": 0.2, "less": 1.25, "along": None}


def test_a_source_s_figure_is_a_ring() -> None:
    """It is turned round with its effect, and lies within the axis; the clearest refuted is farthest from its own."""
    figure = forest(
        judgement("told", 1.5, verdict="refuted"), judgement("told-less", 0.5, verdict="refuted"), judgement("more", 2)
    )
    drawn = values(figure)
    assert (drawn["told"]["ring"], drawn["told-less"]["ring"], drawn["more"]["ring"]) == (3.0, 10.0, None)
    (_, high) = render.specification(figure.panels[0])["layer"][-1]["encoding"]["x"]["scale"]["domain"]
    assert high > 10
    assert "Clearest of the refuted: told-less" in figure.panels[0].message
    assert figure.panels[0].message.endswith("; its source says 0.10×.")


def test_what_has_no_effect_is_not_drawn() -> None:
    """Facts, claims that were not tested, and ids that this version lacks make no row; nothing at all is said."""
    rows = [
        judgement("more", 1.2),
        judgement("fact", math.nan),
        judgement("along", math.nan, verdict="not testable here"),
        judgement("gone", 1.1),
    ]
    figure = forest(*rows)
    assert [row["claim"] for row in figure.rows] == ["more"]
    none = forest(*rows[1:])
    assert not none.panels
    assert none.missing
    assert not charts.claims.draw(pd.DataFrame(columns=["suite"])).panels


def test_machines_have_panels_in_one_order() -> None:
    """A panel a machine and device; a claim stands in the same place in each, the largest mean effect on top."""
    figure = forest(
        judgement("more", 1.1),
        judgement("along", 1.3),
        judgement("more", 3.0, machine_id="n", run_id="s"),
        judgement("along", 1.2, machine_id="n", run_id="s"),
        judgement("along", 1.2, machine_id="n", device="cuda", run_id="t"),
    )
    assert [panel.subtitle for panel in figure.panels] == ["cpu, run r", "cpu, run s", "cuda, run t"]
    specs = [render.specification(panel) for panel in figure.panels]
    orders = [spec["layer"][-1]["encoding"]["y"]["sort"] for spec in specs]
    assert orders == [["more", "along"], ["more", "along"], ["along"]]
    assert [spec["usermeta"]["machine"] for spec in specs] == ["m", "n", "n"]
    assert specs[0]["height"] - specs[2]["height"] == specs[0]["usermeta"]["row"]


def test_long_intervals_end_at_the_edge_and_one_block_has_none() -> None:
    """An interval beyond the axis is cut in the picture, not in the table; a claim with one block is a point."""
    wide = judgement("more", 1.1, 1000.0, verdict="inconclusive")
    single = judgement("along", 1.2, n=1, verdict="inconclusive") | {"lo": math.nan, "hi": math.nan}
    figure = forest(wide, single)
    drawn = values(figure)
    spec = render.specification(figure.panels[0])
    domain = spec["layer"][-1]["encoding"]["x"]["scale"]["domain"]
    assert (drawn["more"]["from"], drawn["more"]["to"]) == pytest.approx(tuple(domain), rel=1e-4)
    assert drawn["more"]["high"] == pytest.approx(1100.0)
    assert drawn["along"]["from"] is drawn["along"]["to"] is None
    assert "no interval" not in figure.panels[0].message


@pytest.mark.slow
def test_a_run_is_judged_and_drawn(show: Callable[..., RunView]) -> None:
    """From trials: the claims of the suites that they were made for, or of all where the suite asks about all."""
    trials = show(suites=("workers",), claims=("workers", "collate"), blocks=3).trials
    figure = charts.claims.draw(trials)
    asked = suite.claims()
    found = judge_claims([observe(trials, asked)], asked).claims
    effects = found[found["ratio"].notna()]
    asked_here = {row["claim"] for row in figure.rows}
    assert asked_here == set(effects["claim"][effects["suite"].eq("workers")])
    (panel,) = figure.panels
    assert asked_here <= {text.text for text in ET.fromstring(render.svg(panel, "p")).iter() if text.text}
    every = charts.claims.draw(trials.assign(suite="claims"))
    assert {row["claim"] for row in every.rows} == set(effects["claim"])
    assert {row["suite"] for row in every.rows} > {"workers"}
    for row in every.rows:
        judged_row = effects[effects["claim"].eq(row["claim"])].iloc[0]
        assert (row["ratio"], row["verdict"]) == (pytest.approx(judged_row["ratio"]), judged_row["verdict"])
