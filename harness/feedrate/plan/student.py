"""Student's t for any degrees of freedom: the tail of the distribution, and the quantile of an interval.

SciPy has both and takes 126 MB: more than all else that ``feedrate run`` needs except pyarrow.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

NEARLY_NORMAL = 1e7
"""From so many degrees of freedom on tails are taken from the normal distribution."""
MANY = 1000
"""From so many on a series of four terms gives ten digits of a quantile."""
FEW = 4
"""From so many on the series is nearer to a quantile than the normal one is."""
NEAR = 1e-7
"""A step so small leaves an error of its square."""
EXACT, MOST_TERMS = 1e-15, 20_000
_TINY = 1e-300


def tail(t: float, df: float) -> float:
    """Probability that Student's t with ``df`` degrees of freedom is over t; NaN where ``df`` is not over 0."""
    if math.isnan(t) or not df > 0:
        return math.nan
    if math.isinf(t) or t < 0:
        return 1 - tail(-t, df) if t < 0 else 0.0
    if df > NEARLY_NORMAL:
        return 0.5 * math.erfc(t / math.sqrt(2))
    return 0.5 * _incomplete_beta(df / 2, 0.5, df, t * t)


@lru_cache(maxsize=2**14)
def t_quantile(df: float, level: float = 0.95) -> float:
    """Find the t within which, on both sides of 0, a share ``level`` of Student's t lies; NaN if ``df`` is not over 0.

    Newton's steps between logarithms: far out a tail is a power of t, where one step is exact. With many degrees of
    freedom by the series of Abramowitz and Stegun (26.7.5).
    """
    if not df > 0 or math.isnan(level):
        return math.nan
    if not 0 < level < 1:
        return math.inf if level > 0 else 0.0
    outside = (1 - level) / 2
    z = NormalDist().inv_cdf(1 - outside)
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    t = z + sum(term / df**power for power, term in enumerate(terms, start=1)) if df > FEW else z
    if df > MANY:
        return t
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    for _ in range(50):
        beyond = tail(t, df)
        density = scale * math.exp(-(df + 1) / 2 * math.log1p(t * t / df))
        step = math.log(beyond / outside) * beyond / (density * t)
        t *= math.exp(step)
        if abs(step) < NEAR:
            break
    return t


def _incomplete_beta(a: float, b: float, p: float, q: float) -> float:
    """Regularized incomplete beta function at x = p ÷ (p + q), by its continued fraction (Lentz 1976, DLMF 8.17.22)."""
    x, y = p / (p + q), q / (p + q)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, q, p)
    if x == 0:
        return 0.0
    power = a * math.log(x) + b * math.log(y) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    d = 1 / ((1 - (a + b) * x / (a + 1)) or _TINY)
    c, fraction = 1.0, d
    for m in range(1, MOST_TERMS):
        even, odd = m * (b - m) * x / (a + 2 * m - 1), -(a + m) * (a + b + m) * x / (a + 2 * m + 1)
        for term in (even / (a + 2 * m), odd / (a + 2 * m)):
            d, c = 1 / ((1 + term * d) or _TINY), (1 + term / c) or _TINY
            fraction *= c * d
        if abs(c * d - 1) < EXACT:
            break
    return math.exp(power) * fraction / a
