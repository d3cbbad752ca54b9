"""What was worked out of a frame is remembered as long as the frame, and no longer."""

from __future__ import annotations

import gc
import weakref

import pandas as pd

from feedrate.analysis.blocks import memoized


class Total:
    """Sums the column ``a``, and counts how often it does."""

    def __init__(self) -> None:
        self.times = 0
        self.of = memoized(self._of)

    def _of(self, frame: pd.DataFrame) -> int:
        self.times += 1
        return int(frame["a"].sum())


@memoized
def doubled(frame: pd.DataFrame) -> pd.DataFrame:
    return frame * 2


def test_a_frame_is_asked_once_and_its_like_again() -> None:
    """The same frame is worked on once; one of the same content is another."""
    total, first, second = Total(), pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [1, 2]})
    assert [total.of(first), total.of(first), total.of(second)] == [3, 3, 3]
    assert total.times == 2


def test_a_new_frame_in_the_place_of_an_old_one_is_asked_anew() -> None:
    """Frames that come and go, one at the address of another, are each told their own sum."""
    total = Total()
    assert [total.of(pd.DataFrame({"a": [number]})) for number in range(1000)] == list(range(1000))


def test_what_is_worked_out_of_an_answer_is_worked_out_once_too() -> None:
    """Who asks again gets the same object, about which others may ask."""
    total, frame = Total(), pd.DataFrame({"a": [1, 2]})
    assert total.of(doubled(frame)) == total.of(doubled(frame)) == 6
    assert total.times == 1


def test_answers_go_with_their_frames() -> None:
    """Nothing is kept of a frame that is gone."""
    frame = pd.DataFrame({"a": [1]})
    answer = weakref.ref(doubled(frame))
    del frame
    gc.collect()
    assert answer() is None
