"""The page "How accurate is feedrate?": its sentence, its figure and its tables are the records' numbers."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from typing import Any

import fake_run
import pytest

from feedrate.analysis import estimators
from feedrate.charts import render
from feedrate.questions.accuracy import page as accuracy_page
from feedrate.store.bench_record import (
    SECTIONS,
    AccountedScript,
    BenchRecord,
    Promise,
    Told,
    TunedWorkload,
    WatchedScript,
)

OTHERS = {"mean_of_rates": 2500.0, "from_iterator": 600.0, "reset_at_epoch_end": 90.0}
HOSTILE = "<script>alert(1)</script> [a](javascript:x) `x` |"


def make(**what: Any) -> BenchRecord:
    """A bench record of two trials, whose other estimators are off."""
    trials = fake_run.witnessed(**OTHERS), fake_run.witnessed(1_002_000_000, "b", **OTHERS)
    return fake_run.bench(**{"witnessed": trials, **what})


def test_without_a_bench_the_page_says_what_to_type() -> None:
    """No record is no error: the page names the command."""
    page = accuracy_page.page([])
    assert "make bench" in page.markdown()
    assert not page.figures


def test_the_answer_is_made_from_the_errors() -> None:
    """Worst and median error of ours, the nearest and the farthest of the others, each held against its own stretch."""
    said = accuracy_page.answer(estimators.summary(estimators.frame(make().witnessed)))
    assert said == (
        "Over 2 measurements of 2 planted settings, the throughput that feedrate reports is within 0.20\u00a0% "
        "of an external "
        "clock (median +0.10\u00a0%). The nearest other way to time the same steps is off by up to −40.0\u00a0% "
        "(no warm-up, from iter()). The farthest is off by up to +150\u00a0% (mean of rates)."
    )
    assert said in accuracy_page.page([make()]).body.replace("&#160;", "\u00a0")


def test_every_estimator_is_in_the_table() -> None:
    """Errors with n, what is wrong, who does so; what was not computed is there too, and says why."""
    body = accuracy_page.page([make()]).body
    for estimator in estimators.ESTIMATORS:
        assert estimator.label in body
        assert estimator.used_by in body
    assert "+50.0\u00a0%" in body
    assert "Not applicable on a CPU" in body


def test_a_missed_target_is_said() -> None:
    """The verdict of each promise stands beside its target and what was measured."""
    promises = [
        Promise(section="speed", what=f"figure {met}", target="≤ 1", measured="2", met=met)
        for met in (True, False, None)
    ]
    body = accuracy_page.page([make(sections=("speed",), promises=promises, witnessed=())]).body
    assert all(f"figure {met}" in body for met in (True, False, None))
    assert body.count("<strong>missed</strong>") == 2  # among the misses, and among all
    assert body.count("cannot be measured here") == 1
    counted = (
        "Of 3 figures, 1 meets its target, 1 misses its target (in bold) and 1 cannot be measured on this machine."
    )
    assert counted in body


def test_every_section_of_bench_is_shown() -> None:
    """What any section measures stands on the page."""
    promises = tuple(
        Promise(section=name, what=f"figure of {name}", target="0", measured="0", met=True) for name in SECTIONS
    )
    body = accuracy_page.page([make(sections=SECTIONS, promises=promises)]).body
    assert [name for name in SECTIONS if f"figure of {name}" not in body] == []


def test_every_script_and_every_prediction_is_shown() -> None:
    """What feedrate said of a script stands beside the script's own clock; a prediction beside what came true."""
    alike = {"start_method": "fork", "steps": 50, "wait_share": 0.5, "script_wait_share": 0.51, "cause": "waiting"}
    alike["predicted"] = {2: 110.0, 3: 1.0}
    hot = {"hot_first": False, "hot_share": 0.7, "script_hot_share": 0.75}
    scripts = [
        WatchedScript(
            costs=HOSTILE, num_workers=workers, steps_per_s=1.01 * rate, script_steps_per_s=rate, **alike, **hot
        )
        for workers, rate in ((1, 50.0), (2, 100.0))
    ]
    scripts += [script.model_copy(update={"costs": "another", "hot_first": True}) for script in scripts]
    page = accuracy_page.page([make(sections=("scripts",), promises=(), witnessed=(), scripts=scripts)])
    said = page.body.replace("&#160;", "\u00a0")
    shares = "50.0\u00a0% (51.0\u00a0%)", "70.0\u00a0% (75.0\u00a0%)"
    for text in ("101.0 (100.0)", *shares, "110.0 (100.0, +10\u00a0%)", "100 (100–100)"):
        assert text in said
    assert said.count("<strong>no</strong>") == 2
    assert "<script>alert" not in said
    (record,) = (json.loads(str(text)) for name, text in page.files.items() if name.endswith(".json"))
    assert BenchRecord.model_validate(record).scripts == tuple(scripts)


def test_every_tuned_workload_is_shown() -> None:
    """Each tuner's setting stands beside the best one's gain; a tuner that was missing leaves empty cells."""
    alike = {"settings": 49, "trials": 21, "bound_pct": 2.0, "present": "num_workers=0", "blocks": 8}
    paces = {f"num_workers={workers}": (pace,) * 8 for workers, pace in ((0, 50.0), (2, 100.0), (4, 102.0))}
    ours, theirs = ({"setting": f"num_workers={workers}", "took_s": took} for workers, took in ((2, 31.4), (0, 47.0)))
    tuned = [
        TunedWorkload(costs=costs, steps_per_s=paces, feedrate=ours, loadtune=other, **alike)
        for costs, other in ((HOSTILE, theirs), ("alone", None))
    ]
    page = accuracy_page.page([make(sections=("tuning",), promises=(), witnessed=(), tuned=tuned)])
    said = page.body.replace("&#160;", "\u00a0")
    for text in ("num_workers=4: 102.0", "2.0\u00a0%", "31\u00a0s", "104.0\u00a0%", "47\u00a0s", ">–<"):
        assert text in said
    assert "<script>alert" not in said
    (record,) = (json.loads(str(text)) for name, text in page.files.items() if name.endswith(".json"))
    assert BenchRecord.model_validate(record).tuned == tuple(tuned)


def test_the_newest_record_with_a_section_counts() -> None:
    """A later bench of one section replaces that section and leaves the others as they were, each with its date."""

    def promise(section: str, measured: str) -> Promise:
        return Promise(section=section, what="what", target="target", measured=measured, met=True)

    whole = make(day=2, sections=("speed", "accuracy"), promises=(promise("speed", "one"), promise("accuracy", "two")))
    later = make(day=5, sections=("speed",), promises=(promise("speed", "three"),), witnessed=())
    page = accuracy_page.page([whole, later])
    assert ">three<" in page.body
    assert ">one<" not in page.body
    assert ">two<" in page.body
    assert "5\u00a0January\u00a02026" in page.body
    assert "2 January 2026" in page.body
    assert len(page.figures) == 1


def test_the_figure_shows_and_says_the_errors() -> None:
    """One panel with every estimator that was computed; message, marks and table hold the same numbers."""
    found = accuracy_page.draw(estimators.summary(estimators.frame(make().witnessed)))
    (panel,) = found.panels
    assert panel.message.startswith("Worst errors: feedrate: wall clock +0.20")
    worst = {"feedrate: wall clock": 0.2, "mean of rates": 150.5, "clock reset each epoch": 50.0}
    worst["no warm-up, from iter()"] = -40.0
    assert {row["estimator"]: row["worst error (%)"] for row in found.rows} == pytest.approx(worst)
    picture = ET.fromstring(render.svg(panel, "p"))
    assert picture.get("width") == "320"
    words = "".join(picture.itertext())
    assert "no warm-up, from iter()" in words
    assert "−10" in words


def test_planted_rows_stand_beside_the_scripts_clock() -> None:
    """Each script's rows and lines stand beside its own clock, also a line that is not first."""
    rows = {"sampler": Told(said=0.31, truth=0.3), "forward": Told(said=0.52, truth=0.5)}
    lines = {"sampler": Told(said=0.97, truth=0.99), "forward": Told(said=0.0, truth=0.9)}
    alike = {"computes": True, "num_workers": 2, "rest_share": 0, "largest": "forward", "cause": "sampler"}
    script = AccountedScript(planted={"sampler": 6, "forward": 9}, rows=rows, lines=lines, **alike)
    page = accuracy_page.page([make(sections=("account",), promises=(), witnessed=(), accounted=[script])])
    text = page.body.replace("\u00a0", " ")
    assert "drawing indices (sampler) + forward pass" in text
    assert "31 % (30 %), 52 % (50 %)" in text
    assert "97 % (99 %)<" in text.replace("\n", "")
