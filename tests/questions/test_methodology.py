"""The methodology page says what the harness does: every figure and limit on it is a constant of the code."""

from __future__ import annotations

import dataclasses
import re
from html import unescape

import pytest

from feedrate.analysis import noise
from feedrate.machine.probes import noise as probed
from feedrate.plan import stopping
from feedrate.plan.matrix import DEFAULT_PROTOCOL
from feedrate.questions.methodology import page as methodology_page
from feedrate.questions.records import page as data_page
from feedrate.schema import metrics
from feedrate.schema.plugins import ROOT
from feedrate.share import findings, rules
from feedrate.share.findings import Finding, Validated

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


def test_the_short_page_names_the_constants_of_the_code() -> None:
    """In at most 600 words: the window and the margins of verdicts; nothing of the template is left."""
    text = unescape(methodology_page.short_page().body)
    assert "{{" not in text
    assert len(re.sub(r"<[^>]+>", " ", text).split()) <= 600
    assert f"at least {DEFAULT_PROTOCOL['window_s']:g} s" in text
    assert f"beyond {metrics.CONFIRMED_OVER:g}. *Refuted*: it lies below\n{metrics.REFUTED_UNDER:g}" in text


def test_every_table_is_used() -> None:
    """No table is made that the page does not show, and nothing is left of the template."""
    places = " ".join(re.findall(r"\{\{.+?\}\}", PROSE, re.DOTALL))
    assert [name for name in methodology_page.tables() if not re.search(rf"\b{name}\b", places)] == []
    assert "{{" not in shown()


def test_every_rule_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every limit of flags, grades and verdicts stands on the page, and changes with the code."""
    text = shown()
    for rule in probed.RULES:
        assert f'id="flag-{rule.flag}"' in text
        assert rule.doc in text
        for limit in rule.limits:
            assert f"> {limit.over:g} {limit.unit}" in text
    for criterion in noise.CRITERIA:
        assert all(f"{limit:g} {criterion.unit}" in text for limit in criterion.limits)
        assert criterion.doc in text
    for name, derived in probed.DERIVED.items():
        assert f'id="measure-{name}"' in text
        assert derived.doc in text
    assert "lower end is over 1.01," in text
    monkeypatch.setattr(metrics, "CONFIRMED_OVER", 1.0234)
    strict = dataclasses.replace(noise.CRITERIA[0], limits=(1.25, 15.0, 40.0))
    monkeypatch.setattr(noise, "CRITERIA", (strict, *noise.CRITERIA[1:]))
    assert "lower end is over 1.0234," in shown()
    assert "≤ 1.25 % of measurements" in shown()


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


def test_what_refuses_a_run_is_stated() -> None:
    """Every identity and every cap stands on the page; of a run that is left out Data says where, and links there."""
    text = " ".join(shown().split())
    for says in (*(" ".join(str(rule.__doc__).split()) for rule in rules.STATED), *(cap.why for cap in findings.CAPS)):
        assert says in text
    refused = Validated("results/m/r", findings=(Finding("trials.parquet", "<b>", "less"),))
    left_out = data_page.page([], [], [refused], []).body.partition("## Left out")[2].partition("\n## ")[0]
    assert 'href="methodology.html#rules"' in left_out
    assert ">m/r<" in left_out
    assert "trials.parquet" in left_out
    assert "<b>" not in left_out
