"""Rows of a frame are what pandas says they are, as plain Python values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from feedrate.analysis.estimates import rows_of


def test_rows_are_those_of_pandas() -> None:
    """Of every type that records have, values and types are those of ``to_dict``."""
    frame = pd.DataFrame(
        {
            "text": pd.array(["a", None], dtype="string"),
            "whole": pd.array([2**60 + 1, None], dtype="Int64"),
            "yes": pd.array([True, None], dtype="boolean"),
            "plain": np.array([1, 2]),
            "said": np.array([True, False]),
            "real": [0.1, 2.5],
            "mixed": pd.Series([np.float64(1.5), {"a": 1}], dtype=object),
        }
    )
    expected: list[dict[Any, Any]] = frame.to_dict("records")
    assert rows_of(frame) == expected
    assert [[type(value) for value in row.values()] for row in rows_of(frame)] == [
        [type(value) for value in row.values()] for row in expected
    ]


def test_what_is_not_known() -> None:
    """Null is None; a measured NaN stays what it is, so that it cannot pass for what was not measured."""
    (row,) = rows_of(pd.DataFrame({"real": [math.nan], "whole": pd.array([None], dtype="Int64")}))
    assert math.isnan(row["real"])
    assert row["whole"] is None


def test_no_rows() -> None:
    """A frame without rows has none, and one without columns has rows of nothing."""
    assert rows_of(pd.DataFrame({"a": []})) == []
    assert rows_of(pd.DataFrame(index=[0, 1])) == [{}, {}]
