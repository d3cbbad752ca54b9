"""The front page speaks of what `make sweep` measures, whatever else was run later, and its doors lead on."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest

from feedrate.pages.runs import RunView
from feedrate.pages.verdicts import load_verdicts
from feedrate.questions.home import page as home_page
from feedrate.questions.home.findings import findings
from feedrate.questions.suites import page as suites_page


def body(*runs: RunView) -> str:
    return re.sub(r"[ \n]+", " ", home_page.page(runs, suites_page.found(runs), load_verdicts(runs)).body)


@pytest.mark.slow
def test_the_main_suite_speaks_for_its_machine(show: Callable[..., RunView]) -> None:
    """A later run of another suite does not take the main one's place; a machine without it shows what it has."""
    main, later = show(suites=("loader",)), show(suites=("storage",), run_id="20270102T030405Z-fake")
    other = show(suites=("storage",), run_id="20270102T030406Z-fake", cores=8)
    assert main.machine_id == later.machine_id != other.machine_id
    assert home_page.leading([other, later, main]) == [other, main]
    opening = home_page.opening([later, main])
    assert opening is not None
    assert opening[0] is main


@pytest.mark.slow
def test_each_device_of_a_machine_has_its_numbers(
    show: Callable[..., RunView], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer run on the CPU hides none on the GPU, whatever its suite; the machine still counts as one."""
    few: dict[str, Any] = {"batches": (8,), "workers": (0,), "blocks": 2}
    cpu, gpu = show(gpu_idle=True, run_id="cpu", **few), show(device="cuda", run_id="gpu", **few)
    stored = show(device="cuda", run_id="stored", suites=("storage",), **few)
    assert home_page.leading([cpu, stored]) == [cpu, stored]
    monkeypatch.setattr(home_page, "FEATURED", 1)
    text = body(cpu, show(cores=8, **few), gpu)
    assert text.count("{ #numbers-") == 2
    assert f"16 cores, on CPU {{ #numbers-{gpu.machine_id}-cpu }}" in text
    assert f"16 cores {{ #numbers-{gpu.machine_id} }}" in text
    assert "the numbers of the 1 machine measured last" in text
    assert "All 2 machines" in text


@pytest.mark.slow
def test_three_doors_say_what_is_behind_them(show: Callable[..., RunView]) -> None:
    """The doors lead to the commands, the machines and the claims, and count what is there."""
    one, other = show(), show(cores=8)
    text = body(one, other)
    doors = re.findall(r'<li><a href="([^"]+)">([^<]+)</a><span>([^<]+)</span>', text)
    assert [door[:2] for door in doors] == [
        ("#tune", "Tune my machine"),
        ("machines/index.html", "Compare hardware"),
        ("claims.html", "Check a claim"),
    ]
    assert "{ #tune }" in text
    assert doors[1][2].startswith("2 machines")
    assert re.match(r"\d+ statements", doors[2][2])
    assert "on one machine" in doors[2][2] or "on 2 machines" in doors[2][2]


def test_without_results_the_doors_are_true() -> None:
    """No machine, no verdict, and what to type."""
    text = body()
    assert "no run has tested them yet." in text
    assert "No machine has been measured yet." in text
    assert "make sweep" in text
    assert "There are no results here yet." in text


@pytest.mark.slow
def test_the_front_shows_few_machines_and_leads_to_all(show: Callable[..., RunView]) -> None:
    """Of many machines those stand on the front that were measured last; the others are one link away."""
    runs = [show(cores=cores, batches=(8,)) for cores in range(20, 20 + home_page.FEATURED + 1)]
    text = body(*runs)
    assert text.count("{ #numbers-") == home_page.FEATURED
    assert f"All {len(runs)} machines" in text
    assert f"{home_page.FEATURED} machines measured last" in text


@pytest.mark.slow
def test_findings_lead_to_what_they_were_made_from(show: Callable[..., RunView]) -> None:
    """Every finding stands on the front as it was said, with a link that names its runs and leads to more of it."""
    tested = show(suites=("claims",), claims=("storage",), blocks=3, fails="none")
    runs = [tested, show(fails="none")]
    expected = findings(home_page.leading(runs), load_verdicts(runs), [])
    assert {each.page.partition("#")[0] for each in expected} == {runs[1].page, "claims.md"}
    listed = body(*runs).partition('<ul class="fr-found">')[2].partition("</ul>")[0]
    found = re.findall(r'<li>(.+?) <a href="([^"]+)">([^<]+)</a></li>', listed)
    assert [(unescape(text), href, source) for text, href, source in found] == [
        (each.text, each.page.replace(".md", ".html"), each.source) for each in expected
    ]
