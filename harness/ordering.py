"""In which order the trials of a block run: at random, and the sides of an effect close to each other.

A machine changes from second to second more than from minute to minute. On the machine of the reference runs what a
trial was off its cell's mean by correlated with that of a trial 3 s away by 0.26 to 0.33, 12 s away by 0.12 to 0.22,
and over a minute away by less than 0.06 (runs 20261121T194213Z-a8b3, 20261121T214023Z-c819 and 20261122T004530Z-d723,
some 1,100 trials each). What both sides of a comparison share falls out of their ratio, so that trials run side by side
tell more than trials a block apart. Which side comes first is left to chance in every block: a trial's place favours
neither. Where the sides leave different things behind for the next trial, half of that difference stays in their ratio.

What it gives: the variance of an effect between blocks, over what it would be if its cells scattered independently, was
0.79, 0.82 and 0.89 in those runs, which took all cells at random, and 0.59 in 20261122T021316Z-18f6, which took them so
(medians over 24 to 31 claims). Those three lie in the repository's history.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

ORDERING = 1
"""Changes whenever the same arguments give another order: a run that was interrupted resumes in its own order alone."""
KEPT = 0.9
"""What is left, one trial later, of a trial's wish to have another close to it: fits trials of one to two seconds."""
WISH = 0.02
"""Least wish that is heeded."""


def side_by_side(order: Sequence[str], effects: Iterable[Mapping[str, float]], chance: random.Random) -> list[str]:
    """Bring the sides of effects close to each other.

    Each trial is followed by the one that most wishes to be near those just before it: sides of opposite sign in one
    effect attract each other, sides of equal sign repel, as their shared noise adds up. Where nothing is wished for the
    random order goes on.

    Args:
        order: names of cells, at random.
        effects: cell to its weight in a sum of log throughputs; weights of one effect add up to 0, and cells that are
            not in ``order`` are passed over.
        chance: tosses up whether the found order or its reverse is taken: a side that several effects share is sought
            by all others, and would else come second more often than first.

    Returns:
        The same names; without effects in the same order.
    """
    if not (links := _links(effects)):
        return list(order)
    left, found = dict.fromkeys(order), list[str]()
    wishes: defaultdict[str, float] = defaultdict(float)
    while left:
        following = max(left, key=lambda cell: wishes[cell])
        if wishes[following] <= WISH:
            following = next((cell for cell in left if wishes[cell] > -WISH), following)
        found.append(following)
        del left[following]
        for cell in wishes:
            wishes[cell] *= KEPT
        for cell, strength in links[following].items():
            wishes[cell] += strength
    return found[:: chance.choice((1, -1))]


def _links(effects: Iterable[Mapping[str, float]]) -> defaultdict[str, dict[str, float]]:
    """How strongly cells wish to be near each other, over all effects: their shares in the effects' variances."""
    links: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for weights in effects:
        total = sum(weight * weight for weight in weights.values())
        for one, weight in weights.items():
            for other, against in weights.items():
                if one != other:
                    links[one][other] = links[one].get(other, 0.0) - weight * against / total
    return links
