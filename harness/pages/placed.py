"""A figure where a page shows it, with the files that can be downloaded and its citation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.citation import Citation

FOLDER = "figures"
"""Below the pages folder: pictures and specifications of figures; ``figures.py`` adds PNG and PDF."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A figure that is ready for a page."""

    name: str
    """Its id, unique on the site."""
    html: str
    files: Mapping[str, str] = field(default_factory=dict)
    """Path below the pages folder to content: table, picture, specification. None for a figure without panels."""
    citation: Citation | None = None
    """None for a figure without panels."""
    charts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name of a panel in the page to the Vega-Lite specification that it is drawn anew from."""

    @property
    def picture(self) -> str:
        """The whole figure as SVG; empty where there is none."""
        return self.files.get(f"{FOLDER}/{self.name}.svg", "")
