"""How a figure, a run and feedrate itself are cited: BibTeX, plain text and Markdown, from where the numbers come from.

A citation says the same whenever the site is built: its date is that of the measurement, never today's. The hash tells
which data were meant once a newer run has taken a figure's place.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cache
from typing import Any

import yaml

from feedrate import __version__
from feedrate.schema.plugins import RESOURCES

BIBLIOGRAPHY = "figures.bib"
HASH_DIGITS = 12
"""Hexadecimal digits of a data hash: 2 ** 48 values, so that two data sets of one figure never share one by chance."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
"""BibTeX's own names of the months, which styles spell in their language."""
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\textbraceleft{}",
        "}": r"\textbraceright{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': "''",
        **{character: f"\\{character}" for character in "#$%&_"},
    }
)
"""A brace is spelled out: BibTeX counts braces, escaped ones too. Beyond ASCII, LaTeX reads UTF-8."""
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~&$])")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the numbers of a figure come from."""

    machines: tuple[str, ...]
    """Names for people, each once."""
    runs: tuple[str, ...]
    """Ids of runs, or names of bench records."""
    days: tuple[str, ...]
    """ISO 8601 days of measurement, ascending; empty where no record has one."""
    versions: tuple[str, ...]
    """Of feedrate, by which they were measured."""
    basis: str = ""
    """What intervals rest on, such as ``5 blocks``."""
    noun: str = "run"
    """What ``runs`` are."""

    def facts(self) -> list[str]:
        """List machine, runs, day of measurement and version, each a phrase."""
        others = [version for version in self.versions if version != __version__]
        by = f" (measured with {', '.join(others)})" if others else ""
        runs = f"{self.noun}{'s' if len(self.runs) > 1 else ''} {', '.join(self.runs)}"
        measured = []
        if self.days:
            first, last = (f"{date.fromisoformat(iso_date):%-d %B %Y}" for iso_date in (self.days[0], self.days[-1]))
            measured = [f"measured on {last}" if first == last else f"measured from {first} to {last}"]
        return ["; ".join(self.machines), runs, *measured, f"feedrate {__version__}{by}"]


def day(moment: str) -> tuple[str, ...]:
    """Give the ISO 8601 day of a moment, alone; text that is no moment gives none."""
    try:
        return (datetime.fromisoformat(moment).date().isoformat(),)
    except ValueError:
        return ()


def together(origins: Iterable[Origin]) -> Origin:
    """Join what a figure of several runs comes from, each named once; a basis that differs is left out."""
    parts = list(origins)
    basis = {origin.basis for origin in parts}
    return Origin(
        tuple(dict.fromkeys(name for origin in parts for name in origin.machines)),
        tuple(dict.fromkeys(run for origin in parts for run in origin.runs)),
        tuple(sorted({moment for origin in parts for moment in origin.days})),
        tuple(sorted({version for origin in parts for version in origin.versions})),
        basis.pop() if len(basis) == 1 else "",
    )


@dataclass(frozen=True, slots=True)
class Citation:
    """What a figure or a run is cited by."""

    name: str
    """Its id: unique on the site, safe in links and file names."""
    title: str
    origin: Origin
    data_hash: str
    """As :func:`data_hash` gives it."""
    link: str
    """Its address: below the site's, or whole."""
    noun: str = "figure"
    """What it is, before its id."""

    @property
    def key(self) -> str:
        """The BibTeX key: another one once the data have changed, so that two states can be cited side by side."""
        return f"feedrate-{self.name}-{self.data_hash[:6]}"

    def at(self, address: str) -> Citation:
        """Give it the whole address of the site; none takes its own away, as an address below no site leads nowhere."""
        return replace(self, link=address and address + self.link)

    def facts(self) -> list[str]:
        """List what identifies it, each a phrase: machine, runs, day, version, hash."""
        return [*self.origin.facts(), f"data sha256 {self.data_hash}"]

    def forms(self) -> dict[str, str]:
        """Write the citation in every form, by the form's name."""
        return {"Plain text": self.plain(), "Markdown": self.markdown(), "BibTeX": self.bibtex()}

    def plain(self) -> str:
        """Write it as a line of a list of references."""
        year = self.origin.days[-1][:4] if self.origin.days else "n.d."
        return f"{_author()} ({year}). {_ended(_flat(self.title))} {_flat('; '.join(self.facts()))}. {self.link}"

    def markdown(self) -> str:
        """Write it as Markdown in which nothing that comes from a record is markup."""
        return f"[{_quiet(self.title)}]({self.link}). {_quiet(_author())}, {_quiet('; '.join(self.facts()))}."

    def bibtex(self) -> str:
        """Write it as an entry of a bibliography; without a link there is no ``url``."""
        newest = date.fromisoformat(self.origin.days[-1]) if self.origin.days else None
        fields = {
            "author": f"{{{_latex(_author())}}}",
            "title": f"{{{_latex(self.title)}}}",
            "year": str(newest.year) if newest else "",
            "month": newest,
            "howpublished": _latex(f"Website of feedrate {__version__}, {self.noun} {self.name}"),
            "note": _latex("; ".join(self.facts())),
            "url": self.link,
        }
        return _entry(self.key, fields)


def data_hash(content: str | bytes) -> str:
    """Give the first twelve hexadecimal digits of the SHA-256 of a file's bytes; text counts as UTF-8."""
    raw = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(raw).hexdigest()[:HASH_DIGITS]


def bibliography(citations: Sequence[Citation], address: str = "") -> str:
    """Write BibTeX entries, with a ``url`` each where the site's address, ending in a slash, is known."""
    return "\n\n".join(citation.at(address).bibtex() for citation in citations) + "\n"


def software() -> dict[str, str]:
    """Write the citation of feedrate itself in every form, from ``CITATION.cff``, by the form's name."""
    about = metadata()
    title, version = str(about["title"]), f"Version {__version__}, {about['license']}"
    fields = {
        "author": f"{{{_latex(_author())}}}",
        "title": f"{{{_latex(title)}}}",
        "howpublished": _latex(f"Software. {version}"),
    }
    return {
        "Plain text": f"{_author()}. {_ended(title)} {version}.",
        "Markdown": f"{_quiet(_author())}. *{_quiet(title)}* {version}.",
        "BibTeX": _entry(f"feedrate-{__version__}", fields),
    }


@cache
def metadata() -> Mapping[str, Any]:
    """Read the Citation File Format record of the project (version 1.2.0 of the format)."""
    read: Mapping[str, Any] = yaml.safe_load((RESOURCES / "CITATION.cff").read_text(encoding="utf-8"))
    return read


def _author() -> str:
    return str(metadata()["authors"][0]["name"])


def _entry(key: str, fields: Mapping[str, str | date | None]) -> str:
    """Write an entry; a field without value is left out, and a date stands for its month's name."""
    lines = [
        f"  {name:<12} = {_MONTHS[value.month - 1] if isinstance(value, date) else f'{{{value}}}'},"
        for name, value in fields.items()
        if value
    ]
    return "\n".join([f"@misc{{{key},", *lines, "}"])


def _ended(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _flat(text: str) -> str:
    return " ".join(text.split())


def _latex(text: str) -> str:
    return _flat(text).translate(_LATEX)


def _quiet(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", _flat(text))
