"""What a sweep of nodes that ran their trials together says, on the terminal."""

from __future__ import annotations

from rich.console import Console

from feedrate.pages import report
from feedrate.pages.report import Section
from feedrate.questions.nodes.sweep import Sweep
from feedrate.questions.scaling import page, sentences
from feedrate.schema import words


def show(sweep: Sweep, console: Console) -> None:
    """Print a sentence for everything that was loaded or trained by several numbers of nodes."""
    lines = [*page.answers(sweep.joined()), words.INTERVALS]
    lines = lines if len(lines) > 1 else [sentences.NOTHING]
    report.show([Section(f"Sweep {sweep.name}: how many nodes at once?", lines)], console)
