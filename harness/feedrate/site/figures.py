"""Figures as files: SVG, PNG, PDF, table and specification, what papers print, and one bibliography of them all.

Drawing PNG and PDF takes seconds for a site, and holds Python's lock while it does: the processes that made pages do it
while mkdocs writes them. Drawings are kept by what they were made from: a picture that has not changed is not drawn
again.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from feedrate.charts import paper, raster
from feedrate.charts.citation import BIBLIOGRAPHY, bibliography
from feedrate.charts.embed import RASTER
from feedrate.machine.identity import usable_cores
from feedrate.pages import processes
from feedrate.pages.markup import Page, Placed
from feedrate.schema.errors import FeedrateError

_KINDS = tuple(f".{end}" for end in RASTER)
_MOST = 2
"""Processes that are started to draw where there are none."""


@cache
def _drawn_by() -> str:
    """What a drawing depends on beside its SVG: the renderers, and how they are called."""
    how = Path(raster.__file__).read_text(encoding="utf-8")
    return " ".join((version("vl-convert-python"), version("pypdfium2"), version("pillow"), how))


def placed(pages: Iterable[Page]) -> list[Placed]:
    """List the figures of pages that can be cited: those with a picture, in the order of the pages."""
    return [figure for page in pages for figure in page.figures.values() if figure.citation]


def write(figures: Sequence[Placed], folder: Path, address: str = "") -> None:
    """Write everything that a paper can use of some figures; what it prints is 89 and 183 mm wide.

    Raises:
        FeedrateError: a picture could not be drawn.
    """
    with TemporaryDirectory() as kept, drawing(Path(kept)) as drawn:
        for figure in figures:
            drawn.add(figure.name, figure.picture)
            specification = next(text for path, text in figure.files.items() if path.endswith(".vl.json"))
            drawn.print(figure.name, specification, folder)
            for path, content in figure.files.items():
                (folder / Path(path).name).write_text(content, encoding="utf-8")
        cited = bibliography([figure.citation for figure in figures if figure.citation], address)
        (folder / BIBLIOGRAPHY).write_text(cited, encoding="utf-8")
        drawn.put(folder)


@contextmanager
def drawing(kept: Path, pool: ProcessPoolExecutor | None = None) -> Iterator[Drawing]:
    """Draw figures as PNG and PDF while the caller does something else; without a pool it starts one for the first."""
    kept.mkdir(parents=True, exist_ok=True)
    if pool:
        yield Drawing(kept, pool)
        return
    most = min(_MOST, len(usable_cores()))
    with ProcessPoolExecutor(most, get_context("spawn"), processes.end_with_caller) as started:
        try:
            yield Drawing(kept, started)
        finally:
            started.shutdown(cancel_futures=True)


class Drawing:
    """Pictures that are being drawn by processes apart, but for those that are kept."""

    def __init__(self, kept: Path, pool: ProcessPoolExecutor) -> None:
        self._kept, self._pool = kept, pool
        self._made_from: dict[str, str] = {}
        self._begun: dict[str, Future[None]] = {}

    def begin(self, pages: Iterable[Page]) -> None:
        """Begin to draw the figures of pages that are offered as PNG and PDF."""
        for figure in placed(pages):
            if figure.raster:
                self.add(figure.name, figure.picture)

    def add(self, name: str, picture: str) -> None:
        """Begin to draw an SVG, unless what it gives is kept."""
        address = self._made_from[name] = hashlib.sha256(f"{_drawn_by()} {picture}".encode()).hexdigest()
        if not all((self._kept / f"{address}{kind}").exists() for kind in _KINDS):
            self._begun[name] = self._pool.submit(raster.convert, picture, self._kept / address)

    def print(self, name: str, specification: str, folder: Path) -> None:
        """Begin to draw a specification as papers print it, into a folder."""
        self._begun[f"{name} for papers"] = self._pool.submit(paper.convert, specification, folder / name)

    def put(self, folder: Path) -> None:
        """Wait until all are drawn, and put them into a folder as ``NAME.png`` and ``NAME.pdf``.

        Raises:
            FeedrateError: a picture could not be drawn.
        """
        for name, begun in self._begun.items():
            try:
                begun.result()
            except (RuntimeError, ValueError) as error:  # the renderer's; a trace of its own follows the message
                why, _, _ = str(error).partition("\n")
                raise FeedrateError(f"figures: {name} could not be turned into PNG and PDF: {why}") from error
        for name, address in self._made_from.items():
            folder.mkdir(parents=True, exist_ok=True)
            for kind in _KINDS:
                shutil.copyfile(self._kept / f"{address}{kind}", folder / f"{name}{kind}")
        wanted = set(self._made_from.values())
        for path in self._kept.iterdir():
            if path.stem not in wanted:
                path.unlink()
