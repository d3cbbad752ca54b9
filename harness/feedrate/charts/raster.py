"""PNG and PDF from SVG.

The PNG is drawn from the PDF: what turns an SVG into either spends most of its time on text, and so does it once.
"""

from __future__ import annotations

import io
from pathlib import Path

import pypdfium2
import vl_convert

from feedrate.charts.paper import size_of

SCALE = 2.0
"""Pixels of a PNG for each of the picture's."""
_PACKED = 1
"""zlib's level: of all levels' PNG these are a tenth larger than the smallest, in two thirds of the time."""


def convert(drawn: str, path: Path) -> None:
    """Make ``path`` with ``.png`` and ``.pdf`` of an SVG.

    Raises:
        RuntimeError, ValueError: the SVG cannot be drawn.
    """
    pdf = vl_convert.svg_to_pdf(drawn)
    _write(path.with_suffix(".png"), png(pdf, SCALE * size_of(drawn)[0]))
    _write(path.with_suffix(".pdf"), pdf)


def png(pdf: bytes, width: float) -> bytes:
    """Draw the one page of a PDF as PNG, on white."""
    drawn = io.BytesIO()
    with pypdfium2.PdfDocument(pdf) as document:
        page = document[0]
        page.render(scale=width / page.get_width()).to_pil().save(drawn, "PNG", compress_level=_PACKED)
    return drawn.getvalue()


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)
