"""From ``matrix.yaml`` to cells, blocks and the moment to stop."""

__all__ = [
    "claim",
    "claim_selection",
    "duration",
    "matrix",
    "options",
    "request",
    "schedule",
    "search",
    "stopping",
    "suite",
    "tuning",
]
