"""What is said of images that were left out."""

from __future__ import annotations

KEPT = 20
"""Skipped images that are named one by one; the rest is counted."""


class Notes:
    """The notes of a ``Source``, filled while samples are drawn."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        """Such as ``skipped 0001.png: truncated``: a published record leaves the name out."""
        self.count = 0
        """Images that were skipped."""

    def skipped(self, name: str, reason: str) -> None:
        """Note an image that is not used; neither text may hold an absolute path."""
        self.count += 1
        if self.count <= KEPT:
            self.lines.append(f"skipped {name}: {reason}")

    def close(self) -> None:
        """Count those that were not named."""
        if self.count > KEPT:
            self.lines.append(f"skipped {self.count - KEPT} more")
