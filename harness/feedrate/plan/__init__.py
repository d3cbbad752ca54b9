"""From ``matrix.yaml`` to cells, blocks and the moment to stop."""

__all__ = [
    "claim",
    "claim_selection",
    "duration",
    "evidence",
    "matrix",
    "options",
    "request",
    "schedule",
    "search",
    "stopping",
    "student",
    "suite",
    "tuning",
]
