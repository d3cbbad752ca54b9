"""The sentence of a verdict is made from its numbers, for every form that a claim can have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_trials import make_trials

from feedrate.analysis.claim_values import observe
from feedrate.analysis.claims import Findings, judge_claims
from feedrate.analysis.sentences import estimate, origins, power, remarks, sentence
from feedrate.plan.claim import Claim, Effect, Part, pair, slope
from feedrate.schema.axes import Value
from feedrate.schema.columns import PROTOCOL_VERSION

LOAD: dict[str, Value] = {"mode": "load"}
WORKERS = ({"num_workers": 0}, {"num_workers": 2})
SD = 0.01


def claim(effect: Effect | None, facts: Sequence[Mapping[str, Value]] = ()) -> Claim:
    return Claim("x", "Says so.", ("BOT",), "Tested so.", "Others.", effect, (), tuple(facts))


ASKED = claim(pair(*WORKERS, {**LOAD, "batch_size": 32}))
"""Two workers against none, in batches of 32."""


def rates(mean: float, sd: float = SD, blocks: int = 12) -> list[float]:
    """Samples a second whose logs have this mean and spread exactly enough."""
    ends = np.resize([1.0, -1.0], blocks)
    return [float(rate) for rate in mean * np.exp(sd * ends * np.random.default_rng(7).uniform(0.8, 1.2, blocks))]


def told(frame: pd.DataFrame, asked: Claim, **change: Any) -> str:
    found = judged(frame, asked)
    row = {**found.claims.iloc[0].to_dict(), **change}
    return sentence(row, rows(found), asked)


def judged(frame: pd.DataFrame, asked: Claim) -> Findings:
    """What a run of the present protocol says of a claim, which is called x."""
    present = frame.assign(protocol_version=PROTOCOL_VERSION)
    return judge_claims([observe(present, {"x": ("workers", asked)})], {"x": ("workers", asked)})


def rows(found: Findings) -> list[dict[Any, Any]]:
    return found.cases.to_dict("records")


def loading(ratios: Mapping[int, float], sd: float = SD, blocks: int = 12) -> pd.DataFrame:
    """Two workers against none at several batch sizes, with a planted ratio at each."""
    given = []
    for batch, ratio in ratios.items():
        for workers, rate in ((0, 1000.0), (2, 1000.0 * ratio)):
            spread = sd if workers else 1e-4
            given.append(({**LOAD, "batch_size": batch, "num_workers": workers}, rates(rate, spread, blocks)))
    return make_trials(given)


def test_a_pair_of_a_rate() -> None:
    """A rate is told as *as fast as*, with its interval, what is held fixed, and the verdict."""
    frame = loading({32: 1.62})
    low, high = (judged(frame, ASKED).claims[end].iloc[0] for end in ("lo", "hi"))
    assert told(frame, ASKED) == (
        f"With num_workers=2 it is 1.62× ({low:.2f}–{high:.2f}) as fast as with num_workers=0. "
        "Loading alone at batch_size=32."
    )


def test_a_stand_in_is_not_called_photographs() -> None:
    """A sentence does not name div2k, since a stand-in may have been read."""
    held = {**LOAD, "batch_size": 32, "workload": "div2k_standin"}
    frame = make_trials([({**held, "num_workers": workers}, rates(1000.0 + workers)) for workers in (0, 2)])
    said = told(frame, claim(pair(*WORKERS, {**held, "workload": "div2k"})))
    assert "Loading alone at batch_size=32." in said
    assert "div2k" not in said


def test_where_it_holds_and_where_not() -> None:
    """A mean of several settings names the worst, where it holds, and where there is no difference."""
    asked = claim(pair(*WORKERS, *({**LOAD, "batch_size": size} for size in (8, 32, 128))))
    said = told(loading({8: 4.1, 32: 2.0, 128: 1.0}), asked)
    assert " Mean of 3 settings; the worst is 1.00× (batch_size=128). " in said
    assert " Settings contradict each other: batch_size=128 (1.00×) against batch_size=8 (4.10×). " in said
    assert said.endswith("It holds at batch_size=8 (4.10×), 32 (2.00×); not at batch_size=128 (1.00×, no difference).")
    said = told(loading({8: 4.1, 32: 2.0, 128: 1.5}), asked)
    assert said.endswith("; the worst is 1.50× (batch_size=128). It holds in each of them (1.50× to 4.10×).")
    said = told(loading({8: 0.5, 32: 0.5, 128: 0.5}), asked)
    assert said.endswith(" It is refuted in each of them (0.50×).")
    many = claim(pair(*WORKERS, *({**LOAD, "batch_size": size} for size in (4, 8, 16, 32, 128))))
    said = told(loading({4: 3.0, 8: 4.1, 16: 2.5, 32: 2.0, 128: 1.0}), many)
    assert said.endswith("Of 5 settings: confirmed in 4 and contradicted in 1.")
    said = told(loading({8: 1.0, 32: 0.8, 128: 1.0}), asked)
    assert "It does not hold at batch_size=8 (1.00×, no difference), " in said


def test_a_metric_that_is_no_rate() -> None:
    """Another metric is told as what it was with B of what it was with A."""
    asked = claim(pair(*WORKERS, {**LOAD, "batch_size": 32}, metric="data_wait", says="less"))
    frame = loading({32: 2.0})
    wait = np.where(frame["num_workers"].eq(2), 800.0, 1000.0) * frame["samples_per_s"] / 1000
    frame["host_fetch_ns"] = np.where(frame["num_workers"].eq(2), wait / 2, wait)
    said = told(frame, asked)
    assert said.startswith("With num_workers=2 the data wait of a sample is 0.80× (")
    assert " what it is with num_workers=0. Loading alone" in said


def test_a_slope_tells_the_exponent() -> None:
    """A time that falls by a tenth a doubling is told as factor and as power."""
    effect = slope("batch_size", (8, 16, 32), LOAD, metric="data_wait", says="less")
    frame = make_trials([({**LOAD, "batch_size": size}, rates(1000.0)) for size in (8, 16, 32)])
    doublings = np.log2(frame["batch_size"].astype(float))
    frame["host_fetch_ns"] = 1e6 * 0.9**doublings * frame["samples_per_s"] / 1000
    said = told(frame, claim(effect))
    assert said.startswith("The data wait of a sample changes by a factor of 0.90 (")
    assert "with every doubling of batch_size, from 8 to 32. A batch's time grows with its size" in said
    assert f"to the power of {1 + math.log2(0.9):.2f} (" in said
    assert power({"ratio": 2.0, "lo": 1.0, "hi": 4.0}, effect).endswith("to the power of 2.00 (1.00–3.00)")


def test_an_interaction_tells_both_sides() -> None:
    """A change that does more here than there: the ratio of the two factors, and each by itself."""
    effect = pair(*WORKERS, {**LOAD, "batch_size": 8}, against=({**LOAD, "batch_size": 32},))
    said = told(loading({8: 3.0, 32: 1.5}), claim(effect))
    assert ("Going from num_workers=0 to num_workers=2 changes throughput 2.00× (") in said
    assert "as much with batch_size=8 as with batch_size=32. Loading alone." in said
    assert said.endswith("The factor by itself: 3.00 with batch_size=8, 1.50 with batch_size=32.")


def test_what_a_verdict_stands_against_and_beside() -> None:
    """The source's figure; each part with its own verdict, and what follows; why a verdict is withheld."""
    figure = claim(pair(*WORKERS, {**LOAD, "batch_size": 32}, figure=5.0))
    assert told(loading({32: 1.5}), figure).endswith(" The source’s figure is 5.00×.")
    besides = Part("with small batches, too", pair(*WORKERS, {**LOAD, "batch_size": 8}))
    said = told(loading({8: 0.5, 32: 1.5}), replace(ASKED, also=(besides,)))
    assert "Other parts of the claim: with small batches, too: 0.50× (" in said
    assert said.endswith("), refuted. Without these parts the claim would be confirmed.")
    said = told(loading({32: 1.5}), ASKED, own="inconclusive", reason="its measurements have two modes")
    assert said.endswith(" The run’s intervals do not hold: its measurements have two modes.")


def test_remarks_say_what_a_verdict_rests_on() -> None:
    """Several runs, few blocks, and how many runs do not count; one quiet run needs no remark."""
    assert remarks(judged(loading({32: 1.5}), ASKED).claims.iloc[0].to_dict()) == []
    row = judged(loading({32: 1.5}, blocks=7), ASKED).claims.iloc[0].to_dict()
    assert remarks(row) == ["few repetitions (under 8)"]
    assert remarks({**row, "n": 9, "run_ids": ("a", "b"), "withheld": 1, "withdrawn": 2}) == [
        "2 runs",
        "1 run left out for noise",
        "2 runs withdrawn",
    ]


def test_inconclusive_says_what_it_would_take() -> None:
    """Few blocks more are counted; where a hundred would not do, what else might is named."""
    frame = loading({32: 1.05}, sd=0.08)
    row = judged(frame, ASKED).claims.iloc[0]
    more = math.ceil(row["blocks_needed"] - row["n"])
    assert more > 1
    assert f" About {more} more repetitions would decide it." in told(frame, ASKED)
    assert "About 1 more repetition would decide it" in told(frame, ASKED, blocks_needed=row["n"] + 1)
    assert " A new run would decide more than a longer one." in told(frame, ASKED, run_ids=("a", "b"))
    for needed in (math.inf, row["n"] + 101, math.nan):
        assert " More than 100 more repetitions would be needed: " in told(frame, ASKED, blocks_needed=needed)


def test_one_block_and_none() -> None:
    """One block gives no interval, and trials that all failed give no effect; both are said."""
    said = told(loading({32: 1.5}, sd=0.0, blocks=1), ASKED)
    assert "1.50× (no interval)" in said
    assert " Nothing is decided from fewer than 6 repetitions." in said
    cells = [({**LOAD, "batch_size": 32, "num_workers": workers}, [None, None]) for workers in (0, 2)]
    assert told(make_trials(cells), ASKED).endswith("every side that ended well.")


def test_a_fact_shows_its_evidence() -> None:
    """A check's own sentence and its verdict; the other checks say where else."""
    asked = claim(None, ({"check": "termination"},))
    row = {"verdict": "confirmed", "n": 3.0, "ratio": math.nan, "protocol": PROTOCOL_VERSION}
    checks = [
        {"case": "ends_by=sigkill", "evidence": "2 workers lived for 6.1 s.", "verdict": "confirmed"},
        {"case": "ends_by=sigterm", "evidence": "They lived.", "verdict": "confirmed"},
        {"case": "ends_by=return", "evidence": "They went.", "verdict": "refuted"},
    ]
    assert sentence(row, checks, asked) == (
        "Seen in 3 checks with ends_by=sigkill: 2 workers lived for 6.1 s. "
        "It holds with ends_by=sigterm. It does not hold with ends_by=return."
    )
    alone = [{"case": "", "evidence": "Stale.", "verdict": "inconclusive"}]
    for fact, why in ((None, "The checks do not agree."), (False, "No error occurred; that decides nothing.")):
        said = sentence({**row, "n": 1, "verdict": "inconclusive", "fact": fact}, alone, asked)
        assert said == f"Seen in 1 check: Stale. {why}"


def test_what_holds_by_construction_is_said_to() -> None:
    """Beside a verdict that could hardly be another, and in the tally of what holds, by who says it."""
    built = replace(ASKED, by_construction=True)
    for ratio, asked, said in ((1.62, built, True), (1.62, ASKED, False), (0.5, built, False)):
        assert ("It holds by construction" in told(loading({32: ratio}), asked)) == said
    advice = replace(ASKED, sources=("field",))
    assert origins([ASKED, advice]) == "Of the confirmed, documents say 1 and common advice says 1."
    assert origins([built]).endswith("; 1 of them holds by construction.")
    assert origins([]) == ""


@pytest.mark.parametrize(
    ("ratio", "shown"), [(1.618, "1.62×"), (0.0421, "0.0421×"), (31.44, "31.4×"), (1234.5, "1,234×"), (2e5, "2.0e+05×")]
)
def test_ratios_are_short(ratio: float, shown: str) -> None:
    """A ratio has about three digits wherever it lies."""
    assert estimate({"ratio": ratio, "lo": ratio, "hi": ratio}).startswith(shown)
