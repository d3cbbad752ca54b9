"""How much of a file that comes from others is read: one table, for Python and for the page that reads files.

A cap is far above what feedrate writes and far below what would hurt the reader. What the footer says is checked before
anything is decoded; memory and time cap the process that decodes. Every cap has room for the longest run: a day of
trials, one a second, that keep as many steps as those of our own runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from feedrate.schema.columns import TABLES
from feedrate.share.validation.findings import Finding, Refused

MIB = 2**20
TRIALS = 24 * 60 * 60
"""Of the longest run: a day of trials of a second each, which in our own runs take 1.2 to 1.6 s."""
STEPS = 75
"""That are stored of a trial on average, as in our own runs, where it is 44 to 88; of one, ``STEPS_KEPT`` at most."""
GROUP_TRIALS = 200
"""Trials of a row group, as ``store.journal_chunks`` gives them to the writer."""
GROUPS = -(-TRIALS // GROUP_TRIALS)
WIDEST = max(map(len, TABLES.values()))
"""Columns of the widest table."""
STEP_BYTES, STEP_DECODED = 36, 80
"""That a step takes at most in its file, and when it is decompressed, in our own runs, metadata and all."""
CHUNK_FOOTER_BYTES = 130
"""That the footer spends on a column of a row group, 93 or more."""


@dataclass(frozen=True, slots=True)
class Cap:
    """The most that is accepted of one thing."""

    name: str
    most: int
    unit: str
    why: str
    """What feedrate's own files have, or what more would cost."""

    def exceeded(self, number: int) -> bool:
        """Whether something is more than accepted; what is negative is, too."""
        return not 0 <= number <= self.most

    def check(self, number: int, where: str) -> None:
        """Refuse what is more than accepted.

        Raises:
            Refused: it is.
        """
        if self.exceeded(number):
            raise Refused(Finding(self.name, where, f"{number:,} {self.unit}", str(self)))

    def __str__(self) -> str:
        """Say it in words, such as ``at most 256 columns``."""
        return f"at most {self.most:,} {self.unit}"


_DAY = f"A day of {TRIALS:,} trials, one a second,"
FILE_BYTES = Cap(
    "file_bytes", 256 * MIB, "bytes", f"{_DAY} takes {TRIALS * STEPS * STEP_BYTES / MIB:.0f} MiB in its largest file."
)
FOOTER_BYTES = Cap(
    "footer_bytes",
    16 * MIB,
    "bytes of footer",
    f"{_DAY} takes {GROUPS * WIDEST * CHUNK_FOOTER_BYTES / MIB:.1f} MiB for {WIDEST} columns.",
)
MANIFEST_BYTES = Cap("manifest_bytes", 4 * MIB, "bytes of manifest", "A run of a hundred claims has 0.13 MB.")
MANIFEST_DEPTH = Cap("manifest_depth", 12, "levels", "A manifest nests five deep.")
COLUMNS = Cap("columns", 256, "columns", f"The widest table has {WIDEST}.")
ROW_GROUPS = Cap("row_groups", 1_000, "row groups", f"{_DAY} has {GROUPS}, one for every {GROUP_TRIALS} trials.")
ROWS = Cap("rows", 2_000_000, "rows", "A million trials are checked in a quarter of the time that is given.")
TRACE_ROWS = Cap(
    "trace_rows",
    10_000_000,
    "rows of steps or samples",
    f"{_DAY} has {TRIALS * STEPS / 1e6:.1f} million steps, {STEPS} a trial, and fewer samples.",
)
PAGES = Cap("pages", 250_000, "pages", f"{_DAY} has {2 * WIDEST * GROUPS:,}: two for every column of every row group.")
"""This and the next are for the page that reads files."""
PAGE_BYTES = Cap("page_bytes", 16 * MIB, "bytes in one page", "Writers end a page at about one MiB, dictionaries too.")
DECODED_BYTES = Cap(
    "decoded_bytes",
    2_048 * MIB,
    "bytes when decompressed",
    f"{_DAY} has {TRIALS * STEPS * STEP_DECODED / MIB:.0f} MiB in its largest file.",
)
TEXT_CHARACTERS = Cap("text_characters", 2_000, "characters", "An error's message is cut at 500.")
MEMORY_BYTES = Cap("memory_bytes", 1_024 * MIB, "bytes of memory", "A million trials are checked in half of it.")
SECONDS = Cap("seconds", 60, "seconds", "A million trials are checked in a quarter of it.")

CAPS = (
    *(FILE_BYTES, FOOTER_BYTES, MANIFEST_BYTES, MANIFEST_DEPTH, COLUMNS, ROW_GROUPS, ROWS, TRACE_ROWS, PAGES),
    *(PAGE_BYTES, DECODED_BYTES, TEXT_CHARACTERS, MEMORY_BYTES, SECONDS),
)
ROWS_OF = {"trials": ROWS, "steps": TRACE_ROWS, "telemetry": TRACE_ROWS}
"""Table to the cap on its rows."""
