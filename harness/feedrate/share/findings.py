"""What is wrong with a file of others, the result of validating it, and how much of it is read.

Text that came from a file goes into a finding through :func:`quote` alone: one short line of ASCII, with nothing in it
that a terminal would obey. A cap is far above what feedrate writes and far below what would hurt the reader. Each has
room for a day of trials, one a second, that keep as many steps as those of our own runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from feedrate.schema.columns import TABLES

RUN, TRIALS = "run.json", "trials.parquet"
FILES = (RUN, *(f"{table}.parquet" for table in TABLES))
"""What a run's folder holds."""
UNCHANGED = "Submit the run as feedrate wrote it, or measure it again"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a file: at which column and row, what stands there, and what to do."""

    where: str
    got: str
    expected: str
    advice: str = UNCHANGED

    def __str__(self) -> str:
        """Say it in one line."""
        return f"{self.where}: {self.got}; expected {self.expected}. {self.advice}"


class Refused(Exception):
    """A file that is looked at no further; the arguments are those of a ``Finding``."""


@dataclass(frozen=True, slots=True)
class Validated:
    """The result for a file of trials, or a run's folder, that was named by a path."""

    path: str
    run_id: str | None = None
    machine_id: str | None = None
    rows: int | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def valid(self) -> bool:
        """Whether the file may be used."""
        return not self.findings


def quote(value: object, most: int = 120) -> str:
    """Write a value that came from a file as nothing but text: quoted, one line, ASCII, not too long."""
    if isinstance(value, str):
        return ascii(value[:most]) + ("..." if len(value) > most else "")
    return f"{value:.12g}" if isinstance(value, float) else ascii(repr(value)[:most])[1:-1]


class Cap(NamedTuple):
    """The most that is accepted of one thing, and why: what feedrate's own files have, or what more would cost."""

    name: str
    most: int
    unit: str
    why: str

    def check(self, number: int, where: str) -> None:
        """Refuse what is more than accepted."""
        if number > self.most:
            raise Refused(where, f"{number:,} {self.unit}", f"at most {self.most:,}")


MIB = 2**20
_DAY = "A day of measurements, one a second,"
FILE_BYTES = Cap("file_bytes", 256 * MIB, "bytes", f"{_DAY} takes 223 MiB in its largest file.")
FOOTER_BYTES = Cap("footer_bytes", 16 * MIB, "bytes of footer", f"{_DAY} takes 9 MiB.")
MANIFEST_BYTES = Cap("manifest_bytes", 4 * MIB, "bytes of manifest", "A run of a hundred claims has 0.13 MB.")
COLUMNS = Cap("columns", 256, "columns", "The widest table has fewer than 200.")
ROW_GROUPS = Cap("row_groups", 1_000, "row groups", f"{_DAY} has 432, one for every 200 trials.")
ROWS = Cap("rows", 2_000_000, "rows", "A million measurements are checked in a quarter of the time that is given.")
TRACE_ROWS = Cap("trace_rows", 10_000_000, "rows of steps or samples", f"{_DAY} has 6.5 million steps, 75 each.")
PAGES = Cap("pages", 250_000, "pages", f"{_DAY} has two for every column of every row group.")
PAGE_BYTES = Cap("page_bytes", 16 * MIB, "bytes in one page", "Writers end a page at about one MiB, dictionaries too.")
DECODED_BYTES = Cap("decoded_bytes", 2_048 * MIB, "bytes when decompressed", f"{_DAY} has 494 MiB in its largest file.")
TEXT_CHARACTERS = Cap("text_characters", 2_000, "characters", "An error's message is cut at 500.")
MEMORY_BYTES = Cap("memory_bytes", 1_024 * MIB, "bytes of memory", "A million measurements are checked in half of it.")
SECONDS = Cap("seconds", 120, "seconds", "A million measurements take half of it on a slow machine with 2 cores.")

CAPS = (
    *(FILE_BYTES, FOOTER_BYTES, MANIFEST_BYTES, COLUMNS, ROW_GROUPS, ROWS, TRACE_ROWS, PAGES, PAGE_BYTES),
    *(DECODED_BYTES, TEXT_CHARACTERS, MEMORY_BYTES, SECONDS),
)
"""For Python and for the page that reads files; ``PAGES`` and ``PAGE_BYTES`` are that page's alone."""
