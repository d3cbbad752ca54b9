"""Dictionary and how to run it: complete, and true of the code."""

from __future__ import annotations

import re
import shlex

from typer.main import get_command

from feedrate.cli import app
from feedrate.plan import claim
from feedrate.questions.reference import page as reference_page
from feedrate.schema import plugins
from feedrate.schema.axes import AXES
from feedrate.schema.columns import AXIS_COLUMNS, TABLES
from feedrate.schema.plugins import ROOT
from feedrate.suites import _cells


def test_every_axis_and_column_is_there_once() -> None:
    """Each axis and column has one entry to link to, and each heading its own entry below it."""
    body = reference_page.dictionary_page().body
    axes = {column.name for column in AXIS_COLUMNS}
    wanted = [f"axis-{axis.name}" for axis in AXES]
    for table, columns in TABLES.items():
        wanted += [f"{table}-{column.name}" for column in columns if table != "trials" or column.name not in axes]
    assert re.findall(r'<div id="([\w-]+)">', body) == wanted
    named = re.findall(r"### .+ \{ #(\w+)-from-(\w+) \}\s+<dl class=\"fr-dictionary\"><div id=\"([\w-]+)\">", body)
    assert len(named) == 20
    assert all(entry == f"{prefix}-{name}" for prefix, name, entry in named)


TO_RUN = (ROOT / "site" / "pages" / reference_page.RUN_PATH).read_text(encoding="utf-8")
CONTRIBUTING, README = ((ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "README.md"))


def test_every_command_exists() -> None:
    """Targets are the Makefile's, their variables too, and commands those of `python -m feedrate`."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z_]+) \?=", makefile, re.MULTILINE))
    for line in re.findall(r"(?:^|`|<code>)make ([^`\n<]+)", TO_RUN + CONTRIBUTING + README, re.MULTILINE):
        words = shlex.split(line.partition("#")[0])
        assert {word for word in words if "=" not in word} <= targets, line
        assert {word.partition("=")[0] for word in words if "=" in word} <= variables, line
    commands = set(getattr(get_command(app), "commands", {}))
    named = re.findall(r"bin/feedrate ([a-z0-9]+)", TO_RUN + CONTRIBUTING)
    assert named
    assert set(named) <= commands


def test_every_profile_suite_and_file_exists() -> None:
    """What PROFILE= and SUITE= are set to is there, and so are files and folders that are named in code."""
    text = (ROOT / "matrix.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"PROFILE=(\w+)", TO_RUN + README)) <= set(re.findall(r"^  (\w+):", text, re.MULTILINE))
    assert set(re.findall(r"SUITE=(\w+)", TO_RUN + README + CONTRIBUTING)) <= set(plugins.names("feedrate.suites"))
    for path in re.findall(r"`((?:harness|tests|suites|site)/[\w/.-]*)`", CONTRIBUTING):
        assert (ROOT / path).exists(), path


def test_the_example_of_a_claim_can_be_asked() -> None:
    """The claim that people are shown is accepted as it stands."""
    (example,) = re.findall(r"```python\n(Claim\(.*?\n\))\n```", CONTRIBUTING, re.DOTALL)
    made = eval(example, {"Claim": claim.Claim, "change": claim.change, "PNG": _cells.PNG})
    claim.validate(made, "CONTRIBUTING.md")
    assert claim.untestable(made, "cpu") is None


def test_the_page_lists_its_sections() -> None:
    """Every section has an id that stays, and all are listed for screens without a margin."""
    text = reference_page.run_page(TO_RUN).body
    titles = re.findall(r"^## (.+?) \{ #([\w-]+) \}$", text, re.MULTILINE)
    assert ("Publish it", "publish-it") in titles
    assert text.count("\n## ") == len(titles) == len(dict(titles)) == text.count('<li><a href="#')
