"""The kit with which pages are written: markup, templates, and the runs that they draw on."""

__all__ = [
    "compact",
    "descriptions",
    "headlines",
    "kept",
    "markup",
    "processes",
    "report",
    "runs",
    "selection",
    "tasks",
    "template",
    "verdicts",
]
