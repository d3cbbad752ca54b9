"""Durations are read and written as people type them."""

from __future__ import annotations

import pytest

from feedrate.schema import words
from feedrate.schema.errors import InputError


@pytest.mark.parametrize(("seconds", "text"), [(90, "90s"), (960, "16m"), (5760, "1h36m"), (7200, "2h"), (1, "1s")])
def test_whole_seconds_are_written_to_be_typed(seconds: int, text: str) -> None:
    """In hours and minutes where they are whole ones; what is written means the same when it is read."""
    assert words.typed(seconds) == text
    assert words.parse(text, "BUDGET") == seconds


@pytest.mark.parametrize("text", ["", "4 minutes", "-3m", "0", True])
def test_what_is_no_duration_is_refused(text: object) -> None:
    """The message says where, what came and what was expected."""
    with pytest.raises(InputError, match=r"BUDGET: got .*expected a duration"):
        words.parse(text, "BUDGET")
