"""What earlier builds of the site made, by what it was made from: what has not changed is not made again.

A key is made of feedrate's own files, of the files of the runs that a page speaks of (name, size, time of change), and
of the page's name. What lies here was pickled by this machine for itself; what cannot be read is made anew.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from feedrate.schema.plugins import PACKAGE, RESOURCES, ROOT

Made = TypeVar("Made")
RUN = "a run's page"
"""The name under which a run's page is kept, with what lists say of the run."""


def _state(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        if path.is_file():
            seen = path.stat()
            yield f"{path} {seen.st_size} {seen.st_mtime_ns}"


def _code() -> str:
    """State of everything that pages are made by."""
    folders = (PACKAGE, RESOURCES / "site", ROOT / "suites")
    kinds = ("py", "md", "html", "js", "csv")
    files = sorted(path for folder in folders for kind in kinds for path in folder.rglob(f"*.{kind}"))
    libraries = map(version, ("altair", "vl-convert-python", "pandas", "numpy", "scipy", "jinja2"))
    return " ".join((sys.version, *libraries, *_state([*files, RESOURCES / "CITATION.cff"])))


def _of_run(folder: Path) -> str:
    """State of a run's files and of what lies beside its folder, such as a mark that it was withdrawn."""
    return " ".join(_state(sorted((*folder.glob("*"), *folder.parent.glob(f"{folder.name}.*")))))


class Kept:
    """A folder of what was made; one build sees code and runs as they were when it first looked."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._code = _code()
        self._runs: dict[Path, str] = {}
        self._wanted: set[str] = set()

    def _path(self, name: str, runs: Sequence[Path]) -> Path:
        for run in runs:
            if run not in self._runs:
                self._runs[run] = _of_run(run)
        state = "\n".join((self._code, name, *(self._runs[run] for run in runs)))
        path = self._folder / hashlib.sha256(state.encode()).hexdigest()
        self._wanted.add(path.name)
        return path

    def holds(self, name: str, runs: Sequence[Path]) -> bool:
        """Whether something is here under its name, made from these runs as they are now."""
        return self._path(name, runs).exists()

    def made(self, make: Callable[[], Made], name: str, runs: Sequence[Path]) -> Made:
        """Give what is here, or make it and keep it."""
        path = self._path(name, runs)
        try:
            made: Made = pickle.loads(path.read_bytes())  # noqa: S301  # written by this machine, for itself
        except (OSError, pickle.UnpicklingError, AttributeError, EOFError, ImportError, IndexError):
            made = make()
            temporary = path.with_suffix(".part")
            temporary.write_bytes(pickle.dumps(made))
            temporary.replace(path)
        return made

    def clear(self) -> None:
        """Remove what no page of this build wanted."""
        for path in self._folder.iterdir():
            if path.name not in self._wanted:
                path.unlink()
