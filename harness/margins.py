"""The margins of a verdict: how far an estimate lies from being called otherwise.

Pure Python: the parent of a sweep uses them as the analysis does.
"""

from __future__ import annotations

import math

SAME = (0.97, 1.03)
"""An interval inside is no difference."""
CONFIRMED_OVER = 1.01
"""An interval wholly above is a difference in the claimed direction: "above 1" confirms a true 1 % too often."""
REFUTED_UNDER = 0.99
"""An interval wholly below is one in the other direction."""


def room(log: float) -> float:
    """Say how wide the interval around an estimate may be, as a half-width in logs, before it is inconclusive.

    Args:
        log: the estimate, the log of a ratio.
    """
    same = min(log - math.log(SAME[0]), math.log(SAME[1]) - log)
    return max(same, log - math.log(CONFIRMED_OVER), math.log(REFUTED_UNDER) - log)
