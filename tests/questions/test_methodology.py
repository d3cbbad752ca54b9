"""The methodology page says what the harness does: every figure and limit on it is a constant of the code."""

from __future__ import annotations

import dataclasses
import re
from html import unescape

import pytest

from feedrate.analysis import noise
from feedrate.machine.probes import noise as probed
from feedrate.plan import stopping
from feedrate.questions.methodology import page as methodology_page
from feedrate.schema import metrics
from feedrate.schema.plugins import ROOT
from feedrate.share.validation import caps, validator
from feedrate.share.validation.admission import BESIDE, UNIQUE
from feedrate.share.validation.findings import Finding, Validated
from feedrate.share.validation.guard import READABLE

PROSE = (ROOT / "site" / "pages" / methodology_page.PATH).read_text(encoding="utf-8")
FACTS = (
    "div2k",
    "DIV2K",
    "float32",
    "TF32",
    "The 2019 figures",
    "GTX 1080 Ti",
    "(20 and 4 minutes in one, 16 and 3 in the\nother)",
)
"""Names with digits, and what the source experiment published."""


def shown() -> str:
    """The page as Markdown with HTML, its entities as characters."""
    return unescape(methodology_page.page().body)


def test_the_prose_holds_no_figure_of_its_own() -> None:
    """Outside of names and of formulas, which may count with 1 and 4, no digit was typed into the prose."""
    text = re.sub(r"\(\D+ \d{4}\)|\w+ \(\d{4}\)", "", PROSE)  # publications have years
    for fact in FACTS:
        text = text.replace(fact, "")
    formulas = r'<p class="fr-formula">.*</p>'
    text = re.sub(formulas, lambda formula: re.sub(r"(?<![\d.])[14](?![\d.])", "", formula[0]), text)
    text = re.sub(r"\{%.+?%\}|\{\{.+?\}\}|“over 1”", "", text, flags=re.DOTALL)
    assert re.findall(r".{0,30}\d.{0,30}", text) == []


def test_every_table_is_used() -> None:
    """No table is made that the page does not show, and nothing is left of the template."""
    places = " ".join(re.findall(r"\{\{.+?\}\}", PROSE, re.DOTALL))
    assert [name for name in methodology_page.tables() if not re.search(rf"\b{name}\b", places)] == []
    assert "{{" not in shown()


def test_every_rule_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each limit of each flag, each limit of the grade, each margin stands on the page, and changes with the code."""
    text = shown()
    for rule in probed.RULES:
        assert f'id="flag-{rule.flag}"' in text
        assert rule.doc in text
        for limit in rule.limits:
            assert f"> {limit.over:g} {limit.unit}" in text
    for criterion in noise.CRITERIA:
        assert all(f"{limit:g} {criterion.unit}" in text for limit in criterion.limits)
        assert criterion.doc in text
    for name, (_, doc) in probed.DERIVED.items():
        assert f'id="measure-{name}"' in text
        assert doc in text
    assert "lower end is over 1.01," in text
    monkeypatch.setattr(metrics, "CONFIRMED_OVER", 1.0234)
    strict = dataclasses.replace(noise.CRITERIA[0], limits=(1.25, 15.0, 40.0))
    monkeypatch.setattr(noise, "CRITERIA", (strict, *noise.CRITERIA[1:]))
    assert "lower end is over 1.0234," in shown()
    assert "≤ 1.25 % of trials" in shown()


def test_sources_and_simulations_are_listed() -> None:
    """Every source that the text names is listed; so is every simulated figure; the code's own words agree."""
    text = shown()
    assert set(re.findall(r"\(#source-(\w+)\)", text)) <= set(re.findall(r'id="source-(\w+)"', text))
    listed = text.partition("Simulated here</th>")[2].partition("</table>")[0].lower()
    named = re.findall(r"(.{20}) \(\[simulated here\]", text)
    assert len(named) == listed.count("</tr>") - 1
    assert all(figure.lower() in listed for figure in named)
    assert "93 to 95 %" in listed
    assert "93 to 95 %" in (stopping.__doc__ or "")


def test_whatever_can_refuse_a_run_can_be_linked_to() -> None:
    """A run that is left out links to the rule or the cap that it breaks, and each of them has its place."""
    page = methodology_page.page().body
    names = [rule.name for rule in (*validator.RULES, READABLE, UNIQUE, BESIDE, *caps.CAPS)]
    places = re.findall(r'id="rule-(\w+)"', page)
    assert sorted(places) == sorted(names)
    for name in ("rows", "decodes", UNIQUE.name):
        finding = Finding(name, "trials.parquet", "<b>", "less")
        link = re.findall(
            r'href="[^"]*#(rule-\w+)"', said := methodology_page.left_out([Validated("m/r", findings=(finding,))])
        )
        assert link == [f"rule-{name}"]
        assert link[0].removeprefix("rule-") in places
        assert "<b>" not in said
