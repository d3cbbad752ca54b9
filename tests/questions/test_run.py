"""The page of a run shows what its machine did and how far to trust it, and every number is the records'."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from reading import plain, table_rows

from feedrate.analysis import noise
from feedrate.analysis.blocks import successful
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView
from feedrate.questions.runs import facts
from feedrate.questions.runs import page as runs_page
from feedrate.schema.axes import AXES, cell_id

Show = Callable[..., RunView]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def busy(show: Show) -> RunView:
    return show(busy=True)


@pytest.fixture(scope="module")
def page(busy: RunView) -> Page:
    return runs_page.page(busy)


def part(page: Page, title: str) -> str:
    """What stands on the page of a run below a heading, or in a fold; nothing where it has neither of that title."""
    name = re.escape(title)
    below = rf"^#+ {name} \{{ #.*?\n(.*?)(?=^#)", rf"<summary>{name}</summary>(.*?)</details>"
    matches = (re.search(pattern, page.body, re.DOTALL | re.MULTILINE) for pattern in below)
    return next((match[1] for match in matches if match), "")


def test_a_run_has_its_pictures(busy: RunView, page: Page) -> None:
    """Drift and telemetry have a heading, a place in the page, a figure with its table, and files to download."""
    assert list(page.figures) == [f"drift-{busy.slug}", f"telemetry-{busy.slug}"]
    for name, placed in page.figures.items():
        assert f'id="slot-{name}"' in page.body
        assert placed.html.count("<svg") > 1
        assert any(path.endswith(".csv") for path in placed.files)
    assert page.body.index("How far to trust it") < page.body.index("The machine over the run")
    assert page.body.index("The machine over the run") < page.body.index("Why it stopped")


def twice(view: RunView) -> RunView:
    """The run's first training cell once more, serialized: its host phases are twice its device spans."""
    trials = view.trials.astype({f"{side}_forward_ns": "Float64" for side in ("host", "device")})
    first = trials[trials["mode"].eq("train") & trials["outcome"].eq("ok")].iloc[0]
    own = trials[trials["cell_id"].eq(first["cell_id"]) & trials["outcome"].eq("ok")]
    axes = {axis.name: axis.type(first[axis.name]) for axis in AXES if not pd.isna(first[axis.name])}
    events = own.assign(device_forward_ns=own["host_forward_ns"])
    waiting = own.assign(
        timing="serialized",
        cell_id=cell_id({**axes, "timing": "serialized"}),
        host_forward_ns=2 * own["host_forward_ns"],
        wall_ns=2 * own["wall_ns"],
    )
    both = RunView(view.run)
    both.trials = pd.concat([events, waiting], ignore_index=True)
    return both


def test_noise_that_intervals_do_not_hold_for_is_said(show: Show, page: Page) -> None:
    """Where trials resemble those of the block before, that comes first and with what follows; else nothing is said."""
    usual = show(fails="none")
    assert "get no verdicts" not in page.body
    view = RunView(usual.run)
    cells, blocks = (pd.factorize(usual.trials[name], sort=True) for name in ("cell_id", "block"))
    walks = np.random.default_rng(0).normal(0, 0.2, (len(cells[1]), len(blocks[1]))).cumsum(axis=1)
    rates = usual.trials["samples_per_s"].astype("float64") * np.exp(walks[cells[0], blocks[0]])
    view.trials = usual.trials.assign(samples_per_s=rates)
    body = runs_page.page(view).body
    assert "claims get no verdicts: its repetitions depend on one another" in body
    assert body.index("get no verdicts") < body.index("How far to trust it")
    assert view.grade.letter in ("C", "D")


def test_both_clocks_are_compared(show: Show) -> None:
    """The ratio is the device's span ÷ the waiting host's phase."""
    text = part(runs_page.page(twice(show(device="cuda", fails="none"))), "Two clocks")
    assert ">forward<" in text
    assert ">0.50<" in text


def test_the_letter_comes_with_its_reasons(busy: RunView, page: Page, show: Show) -> None:
    """A busy machine gets a worse grade than a quiet one, with a reason for every criterion."""
    assert busy.grade.letter > show().grade.letter
    html = part(page, "How far to trust it")
    text = plain(html)
    assert text.lstrip().startswith(f"Grade {busy.grade.letter} ")
    assert len(busy.grade.reasons) == len(noise.CRITERIA)
    assert all(" ".join(reason.split()) in text for reason in busy.grade.reasons)
    assert 'href="../methodology.html#grade"' in html
    assert facts.badge("index.md", busy) == (
        f'<a class="fr-grade" href="methodology.html#grade">grade {busy.grade.letter}</a>'
    )


def test_disturbed_trials_are_counted(busy: RunView, page: Page) -> None:
    """The table counts flags as the records do, and names what the machine does not tell."""
    flags = successful(busy.trials)["flags"].fillna("").str.split(",")
    html = part(page, "What disturbed measurements")
    counts = {row[0]: row[1] for row in table_rows(html) if row}
    for name in ("foreign_cpu", "steal"):
        assert counts[name] == str(sum(name in names for names in flags))
    assert int(counts["foreign_cpu"]) > int(counts["steal"]) > 0
    assert "pressure" not in counts
    assert "tells nothing of: pressure" in html


def test_one_repetition_is_no_interval(page: Page, show: Show) -> None:
    """It is said of a run of one, though its control setting ran more often, and not where nothing ended well."""
    once = show(blocks=1)
    failed = RunView(once.run)
    failed.trials = once.trials.assign(outcome="error", samples_per_s=None)
    assert "One repetition only" in runs_page.page(once).body
    assert not any("One repetition only" in body for body in (page.body, runs_page.page(failed).body))


def test_a_fact_of_a_stranger_is_written_by_its_type(show: Show) -> None:
    """A unit in a name is that of a number; text stays text, and keeps no site from being built."""
    view = RunView(show().run)
    facts_given = {"pack_s": "quick", "cache_bytes": "2 GB", "load_s": 2.5, "free_bytes": 2 * 2**30}
    view.manifest = view.manifest.model_copy(update={"runtime": facts_given})
    assert "pack quick cache 2 GB load 2.5 s free 2.00 GiB" in plain(part(runs_page.page(view), "Software"))


def test_contrasts_add_up(busy: RunView, page: Page) -> None:
    """It is said how many became narrow enough, and why the run stopped."""
    contrasts = busy.manifest.contrasts
    narrow = sum(one.reason == "target" for one in contrasts)
    html = part(page, "Why it stopped")
    assert f"{narrow} of {len(contrasts)} comparisons became narrow enough" in plain(html)
    assert "its time budget was used up" in html
