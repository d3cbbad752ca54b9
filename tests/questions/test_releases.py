"""The changelog of the data comes from the runs and can leave none out."""

from __future__ import annotations

from collections.abc import Callable

from feedrate.pages.runs import RunView
from feedrate.questions.reference import page as reference_page
from feedrate.schema.plugins import ROOT
from feedrate.store.runs import RESULTS, benches

Show = Callable[..., RunView]


def test_every_run_is_named_on_its_day(show: Show) -> None:
    """Runs stand below the day of their measurement, newest first, with what they ask, on what, and how much."""
    first, second = show(), show(device="cuda", run_id="20260103T030405Z-gpu")
    text = reference_page.page([second, first], [], "# Changelog\n\n## 1.0\n\n- more\n").body
    assert text.count("{ #day-") == 1
    assert text.index(second.manifest.run_id) < text.index(first.manifest.run_id)
    for shown in (first, second):
        assert shown.machine_page.replace(".md", ".html") in text
        assert f"{sum(shown.manifest.outcomes.values()):,}" in text
    assert "2 runs, all of protocol version" in text


def test_other_protocols_are_told_apart(show: Show) -> None:
    """A run of another protocol version is said not to be compared."""
    text = reference_page.page([show(protocol_version=99, run_id="99"), show()], [], "").body
    assert "1 run of version 99 is shown on pages of their own alone." in " ".join(text.split())


def test_changes_of_feedrate_follow_a_level_lower() -> None:
    """The repository's changelog stands below the runs, its headings under the page's."""
    text = reference_page.page([], [], "# Changelog\n\nWords.\n\n## 1.0\n\n- more\n").body
    assert "Nothing has been added yet." in text
    assert "\n### 1.0\n" in text
    assert "# Changelog\n\nWords" not in text


def test_bench_records_are_data_too() -> None:
    """What `make bench` published is listed with what it measured."""
    found = benches(ROOT / RESULTS)
    text = reference_page.page([], found, "").body
    assert text.count("bench record") == len(found) > 0
