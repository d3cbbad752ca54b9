"""Two machines, or two runs of one, compared: on the terminal, and as Markdown for a report."""

from __future__ import annotations

from rich.console import Console

from harness import compare_sections, report_parts
from harness.comparing import Comparison


def show(found: Comparison, console: Console, *, whole: bool = False) -> None:
    """Print a comparison.

    Args:
        found: what was compared.
        console: where it goes.
        whole: list every cell.
    """
    report_parts.show(compare_sections.sections(found, whole=whole), console)


def markdown(found: Comparison, *, whole: bool = False) -> str:
    """Write a comparison as Markdown.

    Args:
        found: what was compared.
        whole: list every cell.
    """
    a, b = (side.manifest.machine.machine_id for side in (found.a, found.b))
    title = f"{b} against {a}" if a != b else f"Two runs of {a}"
    return report_parts.markdown(f"feedrate: {title}", compare_sections.sections(found, whole=whole))
