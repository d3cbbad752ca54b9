"""Rules, what is found to break them, and the result of validating one file or one run's folder.

Text that came from a file goes into a finding through :func:`quote` alone: one short line of ASCII, with nothing in it
that a terminal would obey. The patterns at the end are what names and times of a run look like; Python's and Arrow's
regular expressions read them alike.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """A file breaks a rule."""

    rule: str
    """Name of the rule."""
    where: str
    """File, column, row."""
    got: str
    expected: str

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.where}: {self.got}; expected {self.expected} (rule {self.rule})"


class Refused(Exception):
    """A file that is looked at no further, and why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.where}: {finding.got}; expected {finding.expected}")
        self.finding = finding


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that a file is held against."""

    name: str
    says: str
    """A sentence: what holds for every file that is accepted."""

    def finding(self, where: str, got: str, expected: str) -> Finding:
        """Say that a file breaks this rule."""
        return Finding(self.name, where, got, expected)

    def refused(self, where: str, got: str, expected: str) -> Refused:
        """Make the exception that ends the validation of a file, to be raised."""
        return Refused(self.finding(where, got, expected))


@dataclass(frozen=True, slots=True)
class Validated:
    """The result for one file of trials, or for a run's folder."""

    path: str
    """As it was named."""
    sha256: str | None = None
    """Of ``trials.parquet``; None where it could not be read."""
    run_id: str | None = None
    machine_id: str | None = None
    rows: int | None = None
    """Trials."""
    findings: tuple[Finding, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether the file may be used."""
        return not self.findings

    def as_json(self) -> dict[str, Any]:
        """Give plain values, as ``--json`` prints and the guarded process sends them."""
        return {**asdict(self), "valid": self.valid}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Validated:
        """Read what ``as_json`` gave."""
        fields = {name: value for name, value in values.items() if name != "valid"}
        return cls(**fields | {"findings": tuple(Finding(**finding) for finding in values["findings"])})


def quote(value: object, most: int = 120) -> str:
    """Write a value that came from a file as nothing but text: quoted, one line, ASCII, not too long."""
    if isinstance(value, str):
        return ascii(value[:most]) + ("..." if len(value) > most else "")
    return ascii(repr(value)[:most])[1:-1]


HEX = "[0-9a-f]"
RUN_ID = "[0-9]{8}T[0-9]{6}Z-[0-9a-z]{4}"
"""Date and time of its beginning, and four characters that tell it from others of that second."""
MACHINE_ID = "[a-z0-9]+(?:-[a-z0-9]+){1,30}"
CELL_ID = HEX + "{12}"
DATA_HASH = HEX + "{16}"
NAME = "[a-z][a-z0-9_]{0,63}"
"""Of a suite, an axis, a storage format."""
MOMENT = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:Z|\+00:00)"
"""A time in UTC. As texts such times have the order that they have as times, to the second."""
