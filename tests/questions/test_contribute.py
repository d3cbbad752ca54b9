"""What the page tells people to type and to write is there."""

from __future__ import annotations

import re

import pytest
from typer.main import get_command

from feedrate.cli import app
from feedrate.plan import claim
from feedrate.questions.reference import page as reference_page
from feedrate.schema import plugins
from feedrate.schema.plugins import ROOT
from feedrate.suites import _cells

PROSE = (ROOT / "site" / "pages" / reference_page.CONTRIBUTE_PATH).read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_every_command_exists() -> None:
    """Targets are the Makefile's, their variables too, and commands those of `python -m feedrate`."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z_]+) \?=", makefile, re.MULTILINE))
    for line in re.findall(r"(?:^|`|<code>)make ([^`\n<]+)", PROSE + CONTRIBUTING, re.MULTILINE):
        words = line.partition("#")[0].split()
        assert {word for word in words if "=" not in word} <= targets, line
        assert {word.partition("=")[0] for word in words if "=" in word} <= variables, line
    commands = set(getattr(get_command(app), "commands", {}))
    named = re.findall(r"bin/feedrate ([a-z0-9]+)", PROSE + CONTRIBUTING)
    assert named
    assert set(named) <= commands


def test_every_profile_and_suite_exists() -> None:
    """What PROFILE= and SUITE= are set to is there."""
    text = (ROOT / "matrix.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"PROFILE=(\w+)", PROSE)) <= set(re.findall(r"^  (\w+):", text, re.MULTILINE))
    assert set(re.findall(r"SUITE=(\w+)", PROSE + CONTRIBUTING)) <= set(plugins.names("feedrate.suites"))


def test_every_file_named_is_there() -> None:
    """Files and folders of the repository that are named in code exist."""
    for path in re.findall(r"`((?:harness|tests|suites|site)/[\w/.-]*)`", CONTRIBUTING):
        assert (ROOT / path).exists(), path


def test_the_example_of_a_claim_can_be_asked() -> None:
    """The claim that people are shown is accepted as it stands."""
    (example,) = re.findall(r"```python\n(Claim\(.*?\n\))\n```", CONTRIBUTING, re.DOTALL)
    made = eval(example, {"Claim": claim.Claim, "pair": claim.pair, "PNG": _cells.PNG})
    claim.validate(made, "CONTRIBUTING.md")
    assert claim.untestable(made, "cpu") is None


def test_the_page_has_both_proses_and_lists_its_sections() -> None:
    """The page goes on with CONTRIBUTING's sections, every section has an id that stays, and all are listed."""
    text = reference_page.contribute_page(PROSE, CONTRIBUTING).body
    assert "{{" not in text
    titles = re.findall(r"^## (.+?) \{ #([\w-]+) \}$", text, re.MULTILINE)
    assert ("Run it", "run") in titles
    assert ("Adding a chart: one file", "adding-a-chart") in titles
    assert text.count("\n## ") == len(titles) == len(dict(titles)) == text.count('<li><a href="#')
    assert "`make test` must pass" not in text


@pytest.mark.parametrize("lacking", ["", "# Contributing\n\nNo section.\n"])
def test_nothing_to_add_is_no_fault(lacking: str) -> None:
    """Without sections the page has its own prose."""
    assert "Run it" in reference_page.contribute_page(PROSE, lacking).body
