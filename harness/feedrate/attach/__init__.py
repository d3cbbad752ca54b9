"""Training scripts of others: run, watched and spoken of, with nothing in them changed (``feedrate run``, …)."""

__all__ = [
    "account",
    "causes",
    "loop",
    "predictions",
    "profiler",
    "report",
    "rows",
    "run",
    "space",
    "terminal",
    "trials",
    "tune",
    "tune_report",
]
