"""What workers cost, on a page: every number is one of the analysis, and where nothing was measured nothing is said."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pandas as pd
import pytest
from reading import plain, table_rows

from feedrate.analysis import loader as costs
from feedrate.analysis.estimates import rows_of
from feedrate.pages.runs import RunView
from feedrate.pages.verdicts import load_verdicts
from feedrate.plan.suite import Suite
from feedrate.questions.claims import page as claims_page
from feedrate.questions.suites import page as suites_page
from feedrate.questions.workers import page as workers_page
from feedrate.schema import words
from feedrate.schema.axes import Value

Show = Callable[..., RunView]
GIB, MIB = 2**30, 2**20


def tables(body: str) -> dict[str, list[list[str]]]:
    """The section's tables by what they hold."""
    found = re.findall(r"<details[^>]*><summary>([^<]*)</summary>(.*?)</details>", body, re.DOTALL)
    return {unescape(title).partition(",")[0]: table_rows(html) for title, html in found}


def has(trials: pd.DataFrame, axis: str, value: Value) -> pd.Series:
    return trials[axis].eq(value).fillna(False).astype(bool)


def varied(run: RunView, trials: pd.DataFrame, shm_bytes: int | None = 4 * GIB) -> RunView:
    """A run with other trials, or with another size of /dev/shm."""
    view = RunView(run.run)
    view.trials = trials
    machine = run.manifest.machine.model_copy(update={"shared_memory_bytes": shm_bytes})
    view.manifest = run.manifest.model_copy(update={"machine": machine})
    return view


@pytest.fixture(scope="module")
def run(show: Show) -> RunView:
    """A run of the claims about workers, with what made-up runs leave out."""
    made = show(suites=("workers",), claims=("workers",), blocks=3, fails="none")
    trials = made.trials
    steps, epochs = trials["steps"].astype("Float64"), trials["epoch_steps"].astype("Float64")
    checked = has(trials, "check", "termination")
    killed = checked & has(trials, "ends_by", "sigkill") & has(trials, "guarded", False)
    more = trials.assign(
        epochs=(steps / epochs.where(epochs > 0)).clip(lower=1).round().astype("Int64"),
        pss_peak_bytes=400 * MIB + 100 * MIB * has(trials, "index_kind", "list"),
        shm_bytes=(trials["num_workers"].astype("Int64") * MIB),
        batch_bytes=6144 * trials["batch_size"],
        fact=trials["fact"].astype(object).mask(checked, False).mask(killed, True),
        fact_value=trials["fact_value"].astype(float).mask(checked, 0.001).mask(killed, 6.25),
    )
    return varied(made, more)


@pytest.fixture(scope="module")
def body(run: RunView) -> str:
    return workers_page.section(run, "workers")


@pytest.mark.slow
def test_every_way_of_ending_has_its_line(run: RunView, body: str) -> None:
    """A line a way of ending and guard with seconds and evidence; the sentence names those that leave workers."""
    rows = tables(body)["When the training process ends"]
    found = rows_of(costs.terminations(run.trials))
    assert len(rows) == len(found) == 7
    killed = next(row for row in rows if row[:2] == ["SIGKILL", "plain PyTorch"])
    count = next(row["n"] for row in found if row["left"])
    assert killed[2:4] == [f"{count} of {count}", "6.2 s"]
    assert killed[4].startswith("Made up: ")
    said = plain(body)
    assert "With plain PyTorch, workers were left behind after SIGKILL, for up to 6.2 s." in said
    assert "With the guard, none were left behind after SIGTERM and SIGKILL: the last was gone after under" in said


def test_numbers_are_those_of_the_analysis(run: RunView, body: str) -> None:
    """Of starting anew: a line a row of the analysis, with its numbers."""
    found = tables(body)["Starting workers anew every epoch"]
    rows = rows_of(costs.respawn(run.trials))
    assert len(rows) == len(found) > 0
    for row, line in zip(rows, found, strict=True):
        assert line[5].split()[0] == words.number(row["respawn_ms"]).replace("-", "−")
        assert "–" in line[5]
        assert line[-1] == str(row["n"])


@pytest.mark.slow
def test_memory_says_how_it_grew_and_where_that_ends(run: RunView, body: str) -> None:
    """Growth in MiB, an epoch at that pace for forked workers alone, and what copies of the larger index take."""
    rows = tables(body)["Memory that only workers hold"]
    found = rows_of(costs.growth(run.trials))
    assert len(rows) == len(found) > 2
    for row, line in zip(found, rows, strict=True):
        assert line[2].startswith(f"{words.number(row['grew_bytes'] / MIB)} MiB".replace("-", "−"))
        assert (line[4] == "–") == (row["start_method"] != "fork")
        assert line[5] == ("200 MiB 200–200 MiB" if row["index_kind"] == "list" else "–")
        assert line[6].startswith(f"{words.number(row['end_bytes'] / 2 / MIB)} MiB")
    memory = run.trials["pss_peak_bytes"] * (1 + run.trials["block"] % 2)
    scattered = varied(run, run.trials.assign(pss_peak_bytes=memory))
    unsure = tables(workers_page.section(scattered, "workers"))["Memory that only workers hold"]
    assert {line[5] for line in unsure if line[0].startswith("list")} == {"–"}


@pytest.mark.slow
def test_shared_memory_stands_against_its_size(run: RunView, body: str) -> None:
    """The most, with its share of /dev/shm's size and its setting; an older run, which did not record it, says so."""
    said = plain(body)
    assert "All processes used at most 32.0 MiB of /dev/shm when a window ended, of 4.00 GiB (0.8 %)." in said
    assert "The setting: 32 workers" in said
    said = workers_page.section(varied(run, run.trials, shm_bytes=None), "workers")
    assert "its size was not recorded" in plain(said)


@pytest.mark.slow
def test_the_suite_s_page_and_the_claims_page_show_it(run: RunView) -> None:
    """The suite's page and the Claims page show the section once, other suites' pages never."""
    timed = varied(run, run.trials[run.trials["mode"].ne("check")])
    page = suites_page.page("workers", "suites/workers.md", Suite("Which?", ()), [timed])
    assert page.body.count("### What workers cost") == 1
    other = suites_page.page("loader", "suites/loader.md", Suite("Which?", ()), [timed])
    assert "What workers cost" not in other.body
    told = claims_page.page(load_verdicts([run])).body
    assert told.count("### What workers cost") == 1
    assert told.index("{ #suite-workers }") < told.index("### What workers cost")
    assert "Starting workers anew every epoch" in plain(told)
