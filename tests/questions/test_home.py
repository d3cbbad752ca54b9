"""The front page: one number, one chart, the setting to copy; which run speaks, and what there is without any."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pandas as pd
import pytest

from feedrate.analysis.estimates import rows_of
from feedrate.charts import render
from feedrate.pages.runs import RunView, leading
from feedrate.pages.tasks import gain_settings
from feedrate.pages.verdicts import load_verdicts
from feedrate.questions.home import page as home_page
from feedrate.questions.home.charts import machine_gains, machine_workers
from feedrate.questions.suites import page as suites_page
from feedrate.schema import words
from feedrate.store import marks

WORDS = 350
"""Of the page with its folds shut."""


def body(*runs: RunView) -> str:
    return re.sub(r"[ \n]+", " ", home_page.page(runs, suites_page.found(runs), load_verdicts(runs)).body)


@pytest.mark.slow
def test_the_main_suite_speaks_for_its_machine(show: Callable[..., RunView]) -> None:
    """A later run of another suite does not replace the main suite's; without one, it is shown."""
    main, later = show(suites=("loader",)), show(suites=("storage",), run_id="20270102T030405Z-fake")
    other = show(suites=("storage",), run_id="20270102T030406Z-fake", cores=8)
    assert main.machine_id == later.machine_id != other.machine_id
    assert leading([other, later, main]) == [main, other]


@pytest.mark.slow
def test_a_quick_run_never_takes_a_reference_run_s_place(show: Callable[..., RunView]) -> None:
    """Tier, profile, repetitions enough for a gain and grade decide which run speaks, and only then which is newer."""
    old, new = show(batches=(8, 16)), show(batches=(8, 16), run_id="20270102T030405Z-newer")
    assert leading([new, old]) == [new]
    noisy, short = show(batches=(8,), busy=True, run_id="noisy"), show(batches=(8,), run_id="short", blocks=3)
    assert noisy.grade.letter == short.grade.letter
    assert leading([short, noisy]) == [noisy]
    marks.set_tier(old.run.folder, marks.REFERENCE)
    assert leading([new, RunView(old.run)])[0].manifest.run_id == old.manifest.run_id


@pytest.mark.slow
def test_headline_and_charts_are_of_one_run(show: Callable[..., RunView]) -> None:
    """A newer run with fewer repetitions than a gain takes draws none of them."""
    whole = show(fails="none", blocks=8)
    short = show(fails="none", blocks=2, run_id="20270102T030405Z-short")
    runs = [short, whole]
    (_, of_workers), (_, of_gains) = (home_page.drawn(chart, runs) for chart in (machine_workers, machine_gains))
    first = home_page.headline(home_page.speaking(runs))
    assert first is not None
    assert [first["view"]] == of_workers == of_gains == [whole]
    assert home_page.drawn(machine_gains, [short])[0].missing.endswith("other settings in enough repetitions.")


@pytest.mark.slow
def test_each_device_of_a_machine_speaks(show: Callable[..., RunView]) -> None:
    """A newer run on the CPU hides none on the GPU, whatever its suite."""
    cpu = show(gpu_idle=True, run_id="cpu", batches=(8,), workers=(0,), blocks=2)
    stored = show(device="cuda", run_id="stored", suites=("storage",), batches=(8,), workers=(0,), blocks=2)
    assert leading([cpu, stored]) == [cpu, stored]


@pytest.mark.slow
def test_the_first_number_is_the_best_gain_of_a_task(show: Callable[..., RunView]) -> None:
    """The best gain comes with its interval, its run, and the DataLoader call to copy."""
    view = show(fails="none", blocks=8)
    first = home_page.headline([view])
    assert first is not None
    gains = [row["gain"] for row in rows_of(view.headlines) if row["gain"] is not None]
    assert first["gain"]["ratio"] in [gain["ratio"] for gain in gains]
    text = unescape(body(view))
    assert f"{first['gained']}: <strong>{first['times']}</strong> the default speed" in text
    assert f"num_workers={first['gain']['num_workers']}" in first["call"]
    assert f"<code>{first['call']}</code>" in text
    assert view.manifest.run_id in text
    assert "storage_format" not in first["call"]


def test_the_call_to_copy_has_arguments_of_the_dataloader_alone() -> None:
    """What is set elsewhere in a script stands beside it as a remark."""
    gain = {"storage_format": "lmdb", "batch_size": 8, "num_workers": 2, "start_method": "spawn", "decoder": "cv2"}
    call = "DataLoader(dataset, batch_size=8, num_workers=2, multiprocessing_context='spawn')  # and decoder cv2"
    assert home_page.call(gain) == call
    assert gain_settings(gain) == "2 workers, decoder cv2, start_method spawn"
    assert home_page.call({**gain, "loader": "spdl"}).endswith("loader spdl, start_method spawn, batch 8")
    assert "DataLoader" not in home_page.call({**gain, "loader": "spdl"})


@pytest.mark.slow
def test_machines_lie_over_one_another(show: Callable[..., RunView]) -> None:
    """A line and a colour a machine; the message says who is fastest; a panel a task to choose from.

    All that is drawn has its machine, so that one can be chosen: its line of cores, and its mark of PyTorch's default.
    """
    few = {"workers": (0, 1, 2), "fails": "none", "batches": (8,)}
    one, other = show(cores=2, **few), show(cores=8, run_id="20270102T030405Z-else", **few)
    figure = home_page.drawn(machine_workers, [one, other])[0]
    assert [key.label for key in figure.keys] == [one.name, other.name]
    assert len({key.colour for key in figure.keys}) == 2
    tasks = [(panel.facets["images"], panel.facets["step"]) for panel in figure.panels]
    assert len(set(tasks)) == len(tasks) > 1
    assert {(row["machine"], row["workers"]) for row in figure.rows} == {
        (view.name, count) for view in (one, other) for count in (0, 1, 2)
    }
    assert figure.panels[0].message.count("Fastest on ") == 2
    assert {row["run"] for row in figure.rows} == {view.manifest.run_id for view in (one, other)}
    drawn = figure.panels[0].chart.to_dict()
    assert "2 cores" in str(drawn)
    assert all(row["machine"] in (one.name, other.name) for rows in drawn["datasets"].values() for row in rows)
    assert render.picture(figure, "caption").count("PyTorch’s default") == len(figure.panels)
    assert len({row["machine"] for row in home_page.drawn(machine_gains, [one, other])[0].rows}) == 2


def test_machines_of_one_name_are_told_apart(show: Callable[..., RunView]) -> None:
    """Their ids differ where their memory does: no line runs through the marks of both."""
    few = {"workers": (0, 1), "fails": "none", "batches": (8,), "blocks": 2}
    one, other = show(**few), show(run_id="20270102T030405Z-else", **few)
    machine = other.manifest.machine.model_copy(update={"memory_bytes": 2**40})
    other.manifest = other.manifest.model_copy(update={"machine": machine})
    other.trials = other.trials.assign(machine_id=other.machine_id)
    assert one.name == other.name
    named = [key.label for key in home_page.drawn(machine_workers, [one, other])[0].keys]
    assert named == [f"{view.name} ({view.machine_id[-4:]})" for view in (one, other)]


def test_more_workers_than_tie_are_not_advised(show: Callable[..., RunView]) -> None:
    """The caption says from how many workers on nothing clear is gained: the intervals overlap."""
    figure = home_page.drawn(machine_workers, [show(fails="none", batches=(8,), workers=(0, 1, 2, 4))])[0]
    panel, rows = figure.panels[0], figure.rows[:4]
    assert [row["workers"] for row in rows] == [0, 1, 2, 4]
    best = max(rows, key=lambda row: row["samples per s"])
    ties = [row["workers"] for row in rows if best["low"] <= row["high"] and row["workers"] < best["workers"]]
    assert (
        f"{words.plural(best['workers'], 'worker')}, {words.number(best['samples per s'])} samples/s" in panel.message
    )
    assert panel.message.endswith(f"; more than {min(ties)} gain nothing clear." if ties else " samples/s.")


def test_a_machine_without_the_settings_of_the_others_is_named(show: Callable[..., RunView]) -> None:
    """Each line is of the same batch size; whose machine was measured with another one has none."""
    few = {"workers": (0, 1), "fails": "none", "blocks": 2}
    one, other = show(cores=2, batches=(8,), **few), show(cores=8, batches=(32,), run_id="else", **few)
    figure = home_page.drawn(machine_workers, [one, other])[0]
    lacking = [panel for panel in figure.panels if len(panel.facets["machine"]) == 1]
    assert lacking
    for panel, note in zip(lacking, figure.notes[1:], strict=True):
        (absent,) = {one.name, other.name} - {*panel.facets["machine"]}
        assert note.startswith(f"{panel.facets['images']}, {panel.facets['step']}: no line of {absent}; ")


def test_tasks_of_other_models_have_rows_of_their_own(show: Callable[..., RunView]) -> None:
    """Two trainings that differ in model or number of samples are two tasks, and their marks two rows."""
    headlines = show(fails="none", blocks=8, batches=(8,), workers=(0, 1)).headlines
    task = headlines[headlines["kind"] == "train"].head(1)
    other = task.assign(model="resnet50", n_samples=65_536)
    figure = machine_gains.draw(pd.concat([task, other]))
    assert len({row["task"] for row in figure.rows}) == len(figure.rows) == 2
    assert "model resnet50" in figure.rows[1]["task"]


def test_a_gpu_that_was_not_used_is_no_gpu_that_is_not_there(show: Callable[..., RunView]) -> None:
    """Of a machine that was measured on its CPU the page does not say that it has no GPU."""
    few = {"batches": (8,), "workers": (0,), "blocks": 2}
    assert "1 machine, no GPU was used: a sleep" in body(show(gpu_idle=True, **few))
    assert "1 machine, no GPU among them: a sleep" in body(show(run_id="else", **few))


@pytest.mark.slow
def test_verdicts_are_counted(show: Callable[..., RunView]) -> None:
    """Those of the place that tested most claims; the page stays short."""
    runs = [show(suites=("claims",), claims=("storage",), blocks=3, fails="none"), show(fails="none")]
    verdicts, text = load_verdicts(runs), body(*runs)
    counts = {verdict: int(count) for count, verdict in re.findall(r">(\d+) ([\w ]+)</a></li>", text)}
    tally = verdicts.tally(0)
    assert counts == {verdict: count for verdict, count in tally.items() if count}
    assert len(re.sub(r"<[^>]+>", " ", text).split()) < WORDS


def test_without_results_it_says_what_to_type() -> None:
    """No number, no chart, no machine."""
    text = body()
    assert "There are no results here yet." in text
    assert "make sweep" in text
    assert "so far" not in text
    assert "<strong>" not in text.replace("<strong>There are", "")
