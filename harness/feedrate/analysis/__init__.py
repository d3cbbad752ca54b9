"""Statistics of records: pure functions over pandas frames, which several questions share.

``trials`` are rows of ``records.TRIALS`` (``schema.columns``), of any number of runs where nothing else is said.
Intervals are 95 %, Student's t over blocks.
"""

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
