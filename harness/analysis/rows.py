"""Frames row by row, for what looks at one row at a time."""

from __future__ import annotations

from typing import Any

import pandas as pd


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """List the rows of a frame, each as column name to value.

    Args:
        frame: any whose columns have names; to pandas' types these might be anything.
    """
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
