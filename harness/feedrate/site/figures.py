"""Figures as files for papers: SVG, PNG, PDF, table and specification, and one bibliography of them all.

PNG and PDF are made from the SVG by processes apart, while pages are written, and are kept by what they were made from:
a picture that has not changed is not drawn again.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from feedrate.charts.citation import BIBLIOGRAPHY, bibliography
from feedrate.machine.identity import usable_cores
from feedrate.pages.markup import Page, Placed
from feedrate.schema.errors import FeedrateError
from feedrate.schema.plugins import PACKAGE

_KINDS = (".png", ".pdf")
_NICE = 10
_CORES_EACH = 2
"""Cores for which there is a process that draws: the last pictures are drawn while the site is put together on one."""
_MOST = 2
"""Processes that draw; more would be done before the site is."""


@cache
def _drawn_by() -> str:
    """What a drawing depends on beside its SVG: the renderers, and how they are called."""
    how = (PACKAGE / "charts" / "raster.py").read_text(encoding="utf-8")
    return " ".join((version("vl-convert-python"), version("pypdfium2"), version("pillow"), how))


def placed(pages: Iterable[Page]) -> list[Placed]:
    """List the figures of pages that can be cited: those with a picture, in the order of the pages."""
    return [figure for page in pages for figure in page.figures.values() if figure.citation]


def write(figures: Sequence[Placed], folder: Path, address: str = "") -> None:
    """Write everything that a paper can use of some figures.

    Raises:
        FeedrateError: a picture could not be drawn.
    """
    with TemporaryDirectory() as kept, drawing(Path(kept)) as drawn:
        for figure in figures:
            drawn.add(figure.name, figure.picture)
            for path, content in figure.files.items():
                (folder / Path(path).name).write_text(content, encoding="utf-8")
        cited = bibliography([figure.citation for figure in figures if figure.citation], address)
        (folder / BIBLIOGRAPHY).write_text(cited, encoding="utf-8")
        drawn.put(folder)


@contextmanager
def drawing(kept: Path, *, patient: bool = False) -> Iterator[Drawing]:
    """Draw figures as PNG and PDF while the caller does something else."""
    kept.mkdir(parents=True, exist_ok=True)
    for left in kept.glob("*.svg"):
        left.unlink()
    drawn = Drawing(kept, _NICE if patient else 0)
    try:
        yield drawn
    finally:
        drawn.stop()


class Drawing:
    """Pictures that are being drawn by processes apart, which are started for the first that are not kept."""

    def __init__(self, kept: Path, nice: int) -> None:
        self._kept, self._nice = kept, nice
        self._made_from: dict[str, str] = {}
        self._sent = 0
        self._processes: list[subprocess.Popen[str]] = []
        self._most = max(1, min(_MOST, len(usable_cores()) // _CORES_EACH))

    def following(self, pages: Iterable[Page]) -> Iterator[Page]:
        """Pass pages on, one by one, and begin to draw the figures of each."""
        for page in pages:
            self.begin(page)
            yield page

    def begin(self, page: Page) -> None:
        """Begin to draw the figures of a page, unless that was done."""
        for figure in placed([page]):
            if figure.name not in self._made_from:
                self.add(figure.name, figure.picture)

    def add(self, name: str, picture: str) -> None:
        """Begin to draw an SVG, unless what it gives is kept: the process whose turn it is gets it."""
        address = hashlib.sha256(f"{_drawn_by()} {picture}".encode()).hexdigest()
        self._made_from[name] = address
        if all((self._kept / f"{address}{kind}").exists() for kind in _KINDS):
            return
        (self._kept / f"{address}.svg").write_text(picture, encoding="utf-8")
        if len(self._processes) < self._most:
            command = [sys.executable, "-P", "-m", "feedrate.charts.raster", str(self._kept.resolve()), str(self._nice)]
            pipe = subprocess.PIPE
            self._processes.append(subprocess.Popen(command, stdin=pipe, stderr=pipe, text=True, bufsize=1))
        stdin = self._processes[self._sent % len(self._processes)].stdin
        self._sent += 1
        # Where the process has ended, ``put`` will find out why.
        with suppress(BrokenPipeError):
            if stdin:
                stdin.write(f"{address}\n")

    def put(self, folder: Path) -> None:
        """Wait until all are drawn, and put them into a folder as ``NAME.png`` and ``NAME.pdf``.

        Raises:
            FeedrateError: a picture could not be drawn.
        """
        for process in self._processes:
            _, errors = process.communicate()
            if process.returncode:
                address, _, why = errors.partition("\n")[0].partition(" ")
                name = next((name for name, made_from in self._made_from.items() if made_from == address), "a figure")
                raise FeedrateError(f"figures: {name} could not be turned into PNG and PDF: {why}")
        for name, address in self._made_from.items():
            folder.mkdir(parents=True, exist_ok=True)
            for kind in _KINDS:
                shutil.copyfile(self._kept / f"{address}{kind}", folder / f"{name}{kind}")
        wanted = set(self._made_from.values())
        for path in self._kept.iterdir():
            if path.stem not in wanted:
                path.unlink()

    def stop(self) -> None:
        """End the processes, whatever they are doing."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            with suppress(BrokenPipeError), process:  # it may have ended before it had read everything
                pass
