"""How much of a file that comes from others is looked at: one table, for Python and for the page that reads files.

A cap is far above what feedrate writes and far below what would hurt the reader. Each is checked before what it caps is
decoded; what cannot be known before (memory, time) caps the process that decodes.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Cap:
    """The most that is accepted of one thing."""

    name: str
    most: int
    unit: str
    why: str
    """What feedrate's own files have, or what more would cost."""

    def exceeded(self, found: int) -> bool:
        """Whether something is more than accepted; what is negative is, too."""
        return not 0 <= found <= self.most

    def __str__(self) -> str:
        """Say it in words, such as ``at most 256 columns``."""
        return f"at most {self.most:,} {self.unit}"


FILE_BYTES = Cap("file_bytes", 256 * MIB, "bytes", "A thousand trials take 0.6 MB, a million less than 200.")
FOOTER_BYTES = Cap("footer_bytes", 16 * MIB, "bytes of footer", "110 columns take 60 kB and 13 kB more a row group.")
MANIFEST_BYTES = Cap("manifest_bytes", 4 * MIB, "bytes of manifest", "A run of a hundred claims has 0.13 MB.")
MANIFEST_DEPTH = Cap("manifest_depth", 12, "levels", "A manifest nests five deep.")
COLUMNS = Cap("columns", 256, "columns", "The widest table has about 120.")
ROW_GROUPS = Cap("row_groups", 1_000, "row groups", "One for 200 trials: three days of measuring fill it.")
ROWS = Cap("rows", 2_000_000, "rows", "At half a second a trial, eleven days of measuring.")
PAGES = Cap("pages", 250_000, "pages", "Two for every column of every row group.")
PAGE_BYTES = Cap("page_bytes", 16 * MIB, "bytes in one page", "Writers end a page at about one MiB, dictionaries too.")
DECODED_BYTES = Cap("decoded_bytes", 2_048 * MIB, "bytes when decompressed", "A million trials have less than one GB.")
TEXT_CHARACTERS = Cap("text_characters", 2_000, "characters", "An error's message is cut at 500.")
MEMORY_BYTES = Cap("memory_bytes", 1_024 * MIB, "bytes of memory", "A million trials are checked in half of it.")
SECONDS = Cap("seconds", 60, "seconds", "A million trials are checked in a quarter of it.")

CAPS = (
    FILE_BYTES,
    FOOTER_BYTES,
    MANIFEST_BYTES,
    MANIFEST_DEPTH,
    COLUMNS,
    ROW_GROUPS,
    ROWS,
    PAGES,
    PAGE_BYTES,
    DECODED_BYTES,
    TEXT_CHARACTERS,
    MEMORY_BYTES,
    SECONDS,
)
