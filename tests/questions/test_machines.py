"""The machines: one table in which they can be compared, and what the stages of each run do alone."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from reading import table_rows

from feedrate.pages.runs import RunView
from feedrate.questions.machines import page as machines_page
from feedrate.questions.records import page as data_page
from feedrate.schema import words

Show = Callable[..., RunView]


def table(*runs: RunView) -> str:
    """The table of the machines of some runs, newest first."""
    return machines_page.listing("compare.md", runs)


@pytest.mark.slow
def test_machines_are_compared_by_a_task_that_most_have(show: Show) -> None:
    """Machines are ranked by the task that most of them have; those without it are listed unranked."""
    gpu, cpu = show(device="cuda", run_id="20260103T030405Z-gpu"), show(cores=8)
    odd = show(formats=("png", "lmdb"), suites=("storage",), cores=4, run_id="20260104T030405Z-fake")
    text = table(odd, gpu, cpu)
    assert "Samples/s: the fastest setting for real training on div2k_standin at 16 px" in text
    found = [row for row in table_rows(text) if row]
    assert [row[1] for row in found] == ["GPU", "CPU", "CPU"]
    assert found[2][6] == "not measured"
    best = machines_page.tasks_of([gpu])
    shared = machines_page.shared_task([machines_page.tasks_of([odd]), best, machines_page.tasks_of([cpu])])
    assert shared is not None
    fastest = best[shared].row
    assert found[0][6] == words.number(fastest["samples_per_s"])
    assert found[0][8] == str(fastest["n"])


@pytest.mark.slow
def test_the_newest_of_equal_runs_speaks(show: Show) -> None:
    """Two runs of the same tasks: the machine's name leads to the newer, unless that is a shorter one."""
    old, new = show(), show(run_id="20260202T030405Z-fake")
    assert {best.view for best in machines_page.tasks_of([new, old]).values()} == {new}
    text = table(new, old)
    assert f"runs/{new.slug}.html" in text
    assert f"runs/{old.slug}.html" not in text
    short = show(run_id="20260203T030405Z-fake", blocks=2)
    assert {best.view for best in machines_page.tasks_of([short, old]).values()} == {old}


@pytest.fixture
def both(show: Show) -> tuple[RunView, RunView]:
    """Runs of the same tasks on one machine: a newer one on its CPU, an older one on its GPU."""
    small: dict[str, Any] = {"batches": (8,), "workers": (0,), "blocks": 2, "fails": "none"}
    gpu = show(run_id="20260103T030405Z-gpu", device="cuda", **small)
    cpu = show(run_id="20260104T030405Z-cpu", gpu_idle=True, **small)
    assert cpu.machine_id == gpu.machine_id
    return cpu, gpu


def test_lists_name_the_device(both: tuple[RunView, RunView]) -> None:
    """Of a machine with a GPU the list of runs says which were made on its CPU."""
    cpu, gpu = both
    listed = {row[0]: unescape(row[3]) for row in table_rows(data_page.page(both, [], [], []).body) if len(row) > 3}
    assert listed[cpu.manifest.run_id] == f"{listed[gpu.manifest.run_id]}, on CPU"


@pytest.mark.slow
def test_devices_of_a_machine_have_a_row_each(both: tuple[RunView, RunView], show: Show) -> None:
    """The list ranks devices by their own speed, and never one by the other's."""
    cpu, gpu = both
    other = show(cores=8, batches=(8,), workers=(0,), blocks=2, fails="none")
    platforms = [machines_page.tasks_of([view]) for view in (cpu, gpu, other)]
    task = machines_page.shared_task(platforms)
    assert task is not None
    rates = [tasks[task].row["samples_per_s"] for tasks in platforms]
    found = [row for row in table_rows(table(cpu, other, gpu)) if row]
    assert [row[6] for row in found] == [words.number(rate) for rate in sorted(rates, reverse=True)]
    assert [row[1] for row in found] == [
        {rates[0]: "CPU", rates[1]: "GPU", rates[2]: "CPU"}[rate] for rate in sorted(rates, reverse=True)
    ]
