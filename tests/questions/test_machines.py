"""The machines: one table in which they can be compared, a page each, and links both ways."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from reading import table_rows

from feedrate.pages.runs import RunView
from feedrate.pages.verdicts import load_verdicts
from feedrate.questions.machines import page as machines_page
from feedrate.questions.reference import page as reference_page
from feedrate.questions.suites import page as suites_page
from feedrate.schema import words

Show = Callable[..., RunView]


def page(*runs: RunView) -> str:
    """The page of the only machine of some runs, newest first."""
    return machines_page.page(runs, load_verdicts(runs), {name: path for name, path, _ in suites_page.found(runs)}).body


@pytest.mark.slow
def test_machines_are_compared_by_a_task_that_most_have(show: Show) -> None:
    """The task of most machines is chosen and named; one without it is listed and not ranked; the fastest is first."""
    gpu, cpu = show(device="cuda", run_id="20260103T030405Z-gpu"), show(cores=8)
    odd = show(formats=("png", "lmdb"), suites=("storage",), cores=4, run_id="20260104T030405Z-fake")
    text = machines_page.index_page([odd, gpu, cpu]).body
    assert "Samples/s: the fastest setting for real training on div2k_standin at 16 px" in text
    found = [row for row in table_rows(text) if row]
    assert [row[1] for row in found] == ["GPU", "CPU", "CPU"]
    assert found[2][6] == "not measured"
    best = machines_page.tasks_of([gpu])
    shared = machines_page.shared_task([machines_page.tasks_of([odd]), best, machines_page.tasks_of([cpu])])
    assert shared is not None
    fastest = best["cuda", shared].row
    assert found[0][6] == words.number(fastest["samples_per_s"])
    assert found[0][8] == str(fastest["n"])


@pytest.mark.slow
def test_the_newest_run_of_a_task_speaks(show: Show) -> None:
    """Two runs of the same tasks: the newer is told, the older is listed."""
    old, new = show(), show(run_id="20260202T030405Z-fake")
    assert {best.view for best in machines_page.tasks_of([new, old]).values()} == {new}
    text = page(new, old)
    assert f"best-{new.slug}" in text
    assert f"best-{old.slug}" not in text
    assert all(f"{view.slug}.html" in text for view in (new, old))


@pytest.fixture
def both(show: Show) -> tuple[RunView, RunView]:
    """Runs of the same tasks on one machine: a newer one on its CPU, an older one on its GPU."""
    small: dict[str, Any] = {"batches": (8,), "workers": (0,), "blocks": 2, "fails": "none"}
    gpu = show(run_id="20260103T030405Z-gpu", device="cuda", **small)
    cpu = show(run_id="20260104T030405Z-cpu", gpu_idle=True, **small)
    assert cpu.machine_id == gpu.machine_id
    return cpu, gpu


@pytest.mark.slow
def test_a_task_is_kept_for_each_device(both: tuple[RunView, RunView]) -> None:
    """A newer run on the CPU takes no task of the GPU's; both headings, stages and the list of runs name the device."""
    cpu, gpu = both
    text = page(cpu, gpu)
    for view, named in ((cpu, "CPU"), (gpu, "GPU")):
        heading = next(line for line in text.splitlines() if f"{{ #best-{view.slug} }}" in line)
        assert f", on {named} {{" in heading
        (listed,) = (row for row in table_rows(text.partition("{ #runs }")[2]) if row[0] == view.manifest.run_id)
        assert listed[3] == named
    staged = [row[0] for row in table_rows(text.partition("{ #stages }")[2].partition("## ")[0])]
    counts = [sum(f", on {named}" in name for name in staged) for named in ("CPU", "GPU")]
    assert min(counts) > 0
    assert sum(counts) == len(staged)
    assert ", on GPU" not in page(gpu)
    everywhere = {row[0]: row[3] for row in table_rows(reference_page.runs_page(both).body) if row}
    assert unescape(everywhere[cpu.manifest.run_id]) == f"{unescape(everywhere[gpu.manifest.run_id])}, on CPU"


@pytest.mark.slow
def test_the_faster_device_speaks_for_a_machine(both: tuple[RunView, RunView], show: Show) -> None:
    """The list ranks a machine by the faster of its devices and names it; that another has one needs no word."""
    cpu, gpu = both
    other = show(cores=8, batches=(8,), workers=(0,), blocks=2, fails="none")
    tasks = machines_page.tasks_of(both)
    task = machines_page.shared_task([machines_page.tasks_of([other]), tasks])
    assert task is not None
    rates = {device: tasks[device, task].row["samples_per_s"] for device in ("cpu", "cuda")}
    assert rates["cuda"] > rates["cpu"]
    text = machines_page.index_page([cpu, other, gpu]).body
    first, second = (row for row in table_rows(text) if row)
    assert first[1] == "CPU, GPU"
    assert first[6] == f"{words.number(rates['cuda'])} on GPU"
    assert second[6] == words.number(machines_page.tasks_of([other])["cpu", task].row["samples_per_s"])
    assert "Of two devices the faster speaks." in text
    assert "two devices" not in machines_page.index_page([other, gpu]).body


def test_stages_alone_are_those_of_the_same_run(show: Show) -> None:
    """Each stage's own throughput stands beside the whole with interval and n; an emulated step's is declared."""
    text = page(show(fails="none"))
    section = text.partition("{ #stages }")[2].partition("## ")[0]
    found = [row for row in table_rows(section) if row]
    assert any(row[0].startswith("Real training") for row in found)
    emulated = next(row for row in found if "emulated step" in row[0])
    assert "declared" in emulated[3]
    assert "n = 6" in emulated[1]
    assert "n = 6" in emulated[2]
    assert "Copy alone" not in section


@pytest.mark.slow
def test_verdicts_of_the_machine_are_listed(show: Show) -> None:
    """Every claim that was tested there is a row with its verdict, its link and its effect, and no other machine's."""
    tested = show(suites=("claims",), blocks=3, fails="none", claims=("collate",))
    other = show(cores=8, run_id="20260105T030405Z-other")
    verdicts = load_verdicts([tested, other])
    assert len(verdicts.places) == 2
    for at, place in enumerate(verdicts.places):
        text = machines_page.page([place.view], verdicts, {}).body.partition("{ #claims }")[2].partition("## ")[0]
        count = sum(part[at].tested for part in verdicts.results.values())
        assert len([row for row in table_rows(text) if row]) == count > 0
        assert text.count('href="../claims.html#claim-') == count
    unasked = show(suites=("calibration",), plants=True, cores=2, run_id="20260106T030405Z-other")
    assert "{ #claims }" not in machines_page.page([unasked], verdicts, {}).body


@pytest.mark.slow
def test_runs_machines_and_suites_lead_to_each_other(show: Show) -> None:
    """The lists of runs and of machines and the suites' pages link a machine's page, and that links all of them."""
    view = show()
    questions = suites_page.found([view])
    linked = f'{view.machine_page.removesuffix(".md")}.html"'
    assert linked in reference_page.runs_page([view]).body
    assert linked.removeprefix("machines/") in machines_page.index_page([view]).body
    assert linked in suites_page.page(*questions[0], [view]).body
    text = page(view)
    for target in (view.page, questions[0][1], machines_page.INDEX):
        assert target.replace(".md", ".html").removeprefix("machines/") in text
