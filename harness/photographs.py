"""Where photographs lie in a user's folder, told without any library: a plan asks this too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

SUFFIXES = (".png", ".jpg", ".jpeg")
NONE = f"no image here; expected files that end in {', '.join(SUFFIXES)} (in either case)"
"""What is wrong with a folder that has none."""


def images(folder: Path) -> Iterator[Path]:
    """Find the PNG and JPEG files of a folder and its sub-folders, by suffix in either case.

    Args:
        folder: where to look; links to folders are not followed.

    Yields:
        Paths below ``folder``, as the file system lists them.
    """
    return (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
