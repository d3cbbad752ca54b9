"""Numbers as every page and terminal writes them."""

from __future__ import annotations

import pytest

from feedrate.schema import words


@pytest.mark.parametrize(
    ("value", "digits", "written"),
    [
        (5214.0, 3, "5,210"),
        (0.41349, 3, "0.413"),
        (9.98, 2, "10"),
        (0.0996, 2, "0.10"),
        (-999.6, 3, "-1,000"),
        (0, 3, "0"),
    ],
)
def test_a_number_has_so_many_significant_digits(value: float, digits: int, written: str) -> None:
    """A number that rounding lifts over a power of ten has no digit more than others."""
    assert words.number(value, digits) == written
