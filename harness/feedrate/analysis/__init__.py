"""Statistics of records: pure functions over pandas frames, which several questions share.

``trials`` are rows of ``records.TRIALS`` (``schema.columns``), of any number of runs where nothing else is said.
``<name>_lo`` and ``<name>_hi`` are the ends of a 95 % interval of ``<name>``, Student's t over ``n`` blocks; NaN where
n < 2. Tables have the columns ``run_id`` and ``cell_id`` (``blocks.KEYS``) where a row is a cell of a run.
"""

__all__ = [
    "blocks",
    "ceilings",
    "claim_values",
    "claims",
    "contrasts",
    "crossfit",
    "diagnosis",
    "estimate",
    "estimates",
    "estimators",
    "loader",
    "machines",
    "measures",
    "noise",
    "pipeline",
    "pooling",
    "sentences",
    "steps",
    "storage",
    "summary",
    "verdicts",
]
