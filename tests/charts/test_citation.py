"""What a citation promises: it names what is needed, it is valid in its form, and it says the same on every day."""

from __future__ import annotations

import hashlib
import re
import tomllib

import markdown

import feedrate
from feedrate.charts import citation
from feedrate.charts.citation import Citation, Origin
from feedrate.schema.plugins import ROOT

HOSTILE = '<img src=x> {10} % of_$5 & "~^|\\ [a](javascript:b) `c` *d* @misc{e, ’–×'


def origin(machine: str = "AMD EPYC, 2 cores", day: str = "2026-11-21", run: str = "20261121T1Z-a") -> Origin:
    return Origin((machine,), (run,), (day,), (feedrate.__version__,), "5 repetitions")


def cited(data: str = "a,b\n1,2\n", title: str = "Throughput by batch size", **where: str) -> Citation:
    return Citation("loader-x", title, origin(**where), citation.data_hash(data), "suites/loader.html#loader-x")


def fields(entry: str) -> dict[str, str]:
    """Read a BibTeX entry; braces balance as BibTeX counts them: none of them can be escaped."""
    head, *lines, end = entry.splitlines()
    assert re.fullmatch(r"@misc\{[^\s,{}%#\\\"~=']+,", head)
    assert end == "}"
    found = {"key": head[6:-1]}
    for line in lines:
        name, value = line.strip().removesuffix(",").split("=", 1)
        found[name.strip()] = value.strip().removeprefix("{").removesuffix("}")
        assert value.count("{") == value.count("}")
    return found


def test_every_form_names_what_identifies_a_figure() -> None:
    """Title, machine, run, version, data hash and link stand in every form, with the year of the measurement."""
    for form, text in cited().forms().items():
        for part in ("Throughput by batch size", "AMD EPYC", "20261121T1Z-a", "2026", "suites/loader.html#loader-x"):
            assert part in text, (form, part)
        assert f"feedrate {feedrate.__version__}" in text
        assert hashlib.sha256(b"a,b\n1,2\n").hexdigest()[:12] in text
    assert "measured on 21 November 2026" in cited().plain()


def test_bibtex_is_valid_whatever_a_machine_is_called() -> None:
    """Braces balance as BibTeX counts them, LaTeX's special characters are escaped, a month is BibTeX's own."""
    found = fields(cited(machine=HOSTILE, title=HOSTILE).bibtex())
    assert found["month"] == "nov"
    assert found["year"] == "2026"
    for name in ("title", "note"):
        assert not re.search(r"(?<!\\)[%&$#_~^|<>\"]", found[name]), found[name]
        assert r"\textbraceleft{}10\textbraceright{}" in found[name]
    assert found["title"].startswith("{")
    assert found["author"] == "{The feedrate developers}"
    assert "url" not in fields(cited().at("").bibtex())
    assert fields(cited().at("https://x.org/").bibtex())["url"] == "https://x.org/suites/loader.html#loader-x"


def test_markdown_holds_no_foreign_markup() -> None:
    """Text of a record stays text: rendered, the citation has one link, its own."""
    html = markdown.markdown(cited(machine=HOSTILE, title=HOSTILE).markdown())
    assert re.findall(r"<(\w+)", html) == ["p", "a"]
    assert 'href="suites/loader.html#loader-x"' in html


def test_the_project_can_be_cited() -> None:
    """CITATION.cff has what version 1.2.0 of the format asks for, and is this version of this project."""
    about = citation.metadata()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert about["cff-version"] == "1.2.0"
    assert about["version"] == feedrate.__version__ == project["version"]
    assert about["license"] == project["license"]
    assert about["type"] == "software"
    assert [set(author) for author in about["authors"]] == [{"name"}]
    allowed = {"cff-version", "message", "type", "title", "abstract", "authors", "version", "license", "keywords"}
    assert {"cff-version", "message", "title", "authors"} <= set(about) <= allowed
    assert all(isinstance(about[name], str) for name in ("message", "title", "abstract", "version"))
    forms = citation.software()
    assert fields(forms["BibTeX"])["key"] == f"feedrate-{feedrate.__version__}"
    assert all(str(about["title"]).partition(":")[2] in text for text in forms.values())
