"""A run's page says how far to trust it, and every number of that is the records'."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pytest

from feedrate.analysis.blocks import successful
from feedrate.pages.runs import RunView
from feedrate.questions.runs import page as runs_page
from feedrate.questions.runs import trust

Show = Callable[..., RunView]


def plain(html: str) -> str:
    """Text of a piece of a page; cells and lines apart."""
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))).replace("\u00a0", " ")


def part(shown: RunView, title: str) -> str:
    """What stands on the page of a run below a heading; nothing where it has no such heading."""
    heading = rf"^#+ {re.escape(title)} \{{ #.*?\n"
    found = re.search(rf"{heading}(.*?)(?=^#)", runs_page.page(shown).body, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def rows(html: str) -> list[list[str]]:
    """Cells of a table's body as text."""
    lines = re.findall(r"<tr.*?</tr>", html)
    return [[plain(cell).strip() for cell in re.findall(r"<td.*?</td>", line)] for line in lines]


@pytest.fixture
def busy(show: Show) -> RunView:
    return show(busy=True)


def test_the_letter_comes_with_its_reasons(busy: RunView, show: Show) -> None:
    """A busy machine gets a worse letter than a quiet one, the letter is shown large, and every criterion is told."""
    assert busy.grade.letter > show().grade.letter
    html = part(busy, "How far to trust it")
    text = plain(html)
    assert text.lstrip().startswith(f"Grade {busy.grade.letter} ")
    assert len(busy.grade.reasons) == 4
    assert all(reason in text for reason in busy.grade.reasons)
    assert 'href="../methodology.html#grade"' in html
    assert trust.badge("index.md", busy) == (
        f'<a class="fr-grade" href="methodology.html#grade">grade {busy.grade.letter}</a>'
    )


def test_disturbed_trials_are_counted(busy: RunView) -> None:
    """The table's count of each flag is that of the records; what the machine does not tell is named, not zero."""
    flags = successful(busy.trials)["flags"].fillna("").str.split(",")
    shown = {row[0]: row[1] for row in rows(part(busy, "What disturbed trials")) if row}
    assert shown["foreign_cpu"] == str(sum("foreign_cpu" in names for names in flags))
    assert shown["steal"] == str(sum("steal" in names for names in flags))
    assert int(shown["foreign_cpu"]) > int(shown["steal"]) > 0
    assert "pressure" not in shown
    assert "tells nothing of: pressure" in part(busy, "What disturbed trials")


def test_a_busy_look_is_judged_by_the_rules(busy: RunView) -> None:
    """Before the run other work was seen, after it none; what neither look told is left out."""
    seen = {row[0]: row[1:] for row in rows(part(busy, "Before and after")) if row}
    assert seen["By the rules for trials"] == ["foreign_cpu", "quiet"]
    assert seen["CPU of others"] == ["62 % of one core", "1.1 % of one core"]
    assert not [name for name in seen if "waited" in name]


def test_contrasts_add_up(busy: RunView) -> None:
    """Narrow, wide and failed contrasts are all there are, in words and in the table by axis."""
    contrasts = busy.manifest.contrasts
    narrow = sum(one.reason == "target" for one in contrasts)
    html = part(busy, "Why it stopped")
    assert f"Of {len(contrasts)} contrasts, {narrow} became narrow enough" in plain(html)
    assert "the time that it was given was used up" in html
    counted = [sum(int(row[at]) for row in rows(html) if row) for at in (1, 2, 3, 4)]
    assert counted == [len(contrasts), narrow, len(contrasts) - narrow, 0]


def test_spread_is_split_and_advice_given(busy: RunView) -> None:
    """The shares of the variance add up to all of it, and what would help stands above them."""
    found, html = busy.spread, part(busy, "Longer windows or more blocks?")
    assert found
    assert found["advice"] in html
    shares = [int(row[2].removesuffix(" %")) for row in rows(html) if row and row[2]]
    assert sum(shares) == pytest.approx(100, abs=1)


def test_an_older_run_shows_no_empty_sections(show: Show) -> None:
    """A run from before noise, roles and contrasts were recorded has a grade and none of the rest."""
    old = show(asked_only=True)
    assert old.grade.letter >= "B"
    assert "contrast" not in part(old, "Why it stopped")
    assert not trust.added(old)
    body = runs_page.page(old).body
    assert "Ran as" not in body
    assert "Before and after" not in body
    assert "What disturbed trials" not in body


def test_one_block_and_no_trial_break_nothing(show: Show) -> None:
    """One block has no spread to split; a run in which all failed is graded D."""
    assert part(show(blocks=1), "Longer windows or more blocks?") == ""
    failed = show(fails="all")
    assert failed.grade.letter == "D"
    assert part(failed, "What disturbed trials") == ""


def test_the_order_of_trials_names_roles_and_flags(busy: RunView) -> None:
    """Each trial stands with what it ran as and what disturbed it."""
    listing = rows(runs_page.page(busy).body.split("Order of trials")[-1])
    known = busy.trials.sort_values(["block", "position"])
    trials = [row for row in listing if len(row) == 7]
    assert [row[3] for row in trials] == list(known["role"])
    assert [row[6].replace(", ", ",") for row in trials] == list(known["flags"].fillna(""))
