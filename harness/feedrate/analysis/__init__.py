"""Statistics of records: pure functions over pandas frames, which several questions share."""

__all__ = [
    "blocks",
    "ceilings",
    "claims",
    "contrasts",
    "estimates",
    "estimators",
    "loader",
    "machines",
    "measures",
    "noise",
    "pipeline",
    "prediction",
    "sentences",
    "simulate",
    "steps",
    "storage",
    "summary",
    "variance",
    "worker_costs",
]
