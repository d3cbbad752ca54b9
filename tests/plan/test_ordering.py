"""The order of a block: at random, and the sides of an effect close to each other."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from statistics import fmean

from feedrate.plan.stopping import side_by_side

CELLS = [f"cell-{number:02}" for number in range(60)]
PAIR = {"cell-10": -1.0, "cell-40": 1.0}
CASES = {"cell-03": -0.5, "cell-23": 0.5, "cell-33": -0.5, "cell-53": 0.5}
SHARED = {"cell-40": -1.0, "cell-50": 1.0}
EFFECTS = (PAIR, CASES, SHARED)


def orders(count: int = 200) -> Iterator[list[str]]:
    for seed in range(count):
        shuffled = list(CELLS)
        random.Random(seed).shuffle(shuffled)
        yield shuffled


def arranged(order: list[str]) -> list[str]:
    return side_by_side(order, EFFECTS, random.Random("".join(order)))


def apart(order: list[str], one: str, other: str) -> int:
    return abs(order.index(one) - order.index(other))


def test_every_cell_comes_once_and_without_effects_nothing_moves() -> None:
    """Nothing is lost or added; the same order gives the same; a plain sweep keeps its random order."""
    for order in orders(20):
        found = arranged(order)
        assert sorted(found) == CELLS
        assert found == arranged(order)
        assert side_by_side(order, (), random.Random(1)) == order
    assert arranged([]) == []


def test_the_sides_of_an_effect_are_close() -> None:
    """Two sides run one after the other, also where one of them has another partner; a cell that is gone harms none."""
    for order in orders():
        found = arranged(order)
        assert apart(found, "cell-10", "cell-40") + apart(found, "cell-40", "cell-50") <= 3
    found = arranged([cell for cell in CELLS if cell != "cell-10"])
    assert apart(found, "cell-40", "cell-50") == 1


def test_chance_says_which_side_comes_first_and_where() -> None:
    """Over many blocks either side comes first about as often, and an effect comes early as often as late."""
    found = [arranged(order) for order in orders(400)]
    first = fmean(order.index("cell-10") < order.index("cell-40") for order in found)
    early = fmean(order.index("cell-03") < len(CELLS) / 2 for order in found)
    assert 0.4 < first < 0.6
    assert 0.4 < early < 0.6


def test_what_the_sides_share_falls_out() -> None:
    """With noise that lasts some trials, effects scatter less than in a random order, those of several cases too."""
    plain, close = (
        [_variance(effect, [arrange(order) for order in orders(300)]) for effect in EFFECTS]
        for arrange in (list, arranged)
    )
    assert all(after < 0.75 * before for before, after in zip(plain, close, strict=True)), (plain, close)


def _variance(effect: Mapping[str, float], arranged: list[list[str]]) -> float:
    """Of an effect, over orders, where trials k apart correlate by 0.45 exp(-k / 7)."""
    places = [{cell: place for place, cell in enumerate(order)} for order in arranged]
    return fmean(
        weight * against * (1 if one == other else 0.45 * math.exp(-abs(place[one] - place[other]) / 7))
        for place in places
        for one, weight in effect.items()
        for other, against in effect.items()
    )
