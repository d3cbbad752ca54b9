"""The kit with which pages are written: markup, templates, and the runs that they draw on."""

__all__ = [
    "descriptions",
    "headlines",
    "markup",
    "processes",
    "report",
    "runs",
    "selection",
    "summaries",
    "tasks",
    "template",
    "verdicts",
]
