"""What verdicts are worth where noise is not what intervals assume, over runs whose truth is known.

Five kinds of noise of one standard deviation: normal; with a heavy tail on one side (a tenth of all trials are slowed
down); with two modes (a fifth of all trials in a slow one); and autocorrelated from block to block (ρ = 0.5 and 0.8).
The judged effects are the worst case: most lie exactly at a margin of a verdict. Claims leave a run when they are
certain, as in a sweep. A run whose noise is diagnosed (``analysis.diagnosis``) gives no verdict, so that none of its
verdicts is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.blocks import Floats, moments
from feedrate.analysis.crossfit import cross_fitted
from feedrate.analysis.diagnosis import diagnose_logs
from feedrate.analysis.simulate import PROTOCOL, Share, certain, stopped
from feedrate.analysis.verdicts import judge
from feedrate.schema.metrics import CONFIRMED_OVER, SAME

REPLAYS = 2000
SPREADS = (0.03, 0.06, 0.085)
"""Of paired log ratios, on a two-core machine."""
_MARGINS = (0.0, math.log(SAME[1]), math.log(CONFIRMED_OVER), 0.05)
TRUTH = np.array([*np.repeat(_MARGINS, 5), *[0.3] * 10])
"""Log ratios of the judged effects: none, at both margins, small, and obvious."""
Noise = Callable[[np.random.Generator, tuple[int, int]], Floats]
"""Draws series × blocks of mean 0 and standard deviation 1."""


def _normal(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return random.standard_normal(shape)


def _heavy(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
    slowed = (random.random(shape) < 0.1) * random.exponential(size=shape)
    return -0.8 * (slowed - 0.1) / math.sqrt(0.19) + 0.6 * random.standard_normal(shape)


def _bimodal(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return -0.9 * ((random.random(shape) < 0.2) - 0.2) / 0.4 + math.sqrt(0.19) * random.standard_normal(shape)


def _correlated(rho: float) -> Noise:
    def draw(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
        series = random.standard_normal(shape)
        for block in range(1, shape[1]):
            series[:, block] = rho * series[:, block - 1] + math.sqrt(1 - rho**2) * series[:, block]
        return series

    return draw


NOISES: Mapping[str, Noise] = {
    "normal": _normal,
    "heavy tail on one side": _heavy,
    "two modes": _bimodal,
    "autocorrelated, ρ = 0.5": _correlated(0.5),
    "autocorrelated, ρ = 0.8": _correlated(0.8),
}


class Worth(NamedTuple):
    """What numbers are worth under one kind of noise."""

    covered: Share
    """Contrasts whose 95 % interval holds the truth, early stopping included."""
    wrong: Share
    """Runs with any wrong verdict, had none been withheld."""
    withheld: Share
    """Runs whose verdicts are withheld."""
    wrong_left: Share
    """Runs with any wrong verdict that are not withheld."""


SIMULATED: Mapping[str, tuple[float, float, float, float]] = {
    "normal": (0.94, 0.024, 0.0, 0.024),
    "heavy tail on one side": (0.922, 0.029, 0.0, 0.029),
    "two modes": (0.86, 0.028, 0.443, 0.02),
    "autocorrelated, ρ = 0.5": (0.734, 0.193, 0.995, 0.001),
    "autocorrelated, ρ = 0.8": (0.45, 0.731, 1.0, 0.0),
}
"""What ``worth`` finds for each kind of noise, as shares: tests compute them again."""


def worth(
    noise: Noise,
    spreads: npt.ArrayLike = SPREADS,
    blocks: int = PROTOCOL.most,
    replays: int = REPLAYS,
    odd: float = 1.0,
) -> Worth:
    """Simulate contrasts and runs of claims.

    Args:
        noise: of the ratio of a contrast, and of the log throughput of B's trials; A's are normal. Noise that both
            sides have is found more often.
        spreads: standard deviations of paired log ratios; each contrast and each effect takes one at random.
        blocks: most blocks of a run.
        replays: runs to draw, and a tenth of the contrasts.
        odd: share of the claims whose B has the noise; that of the others is normal, too.
    """
    random = np.random.default_rng(0)

    def spread(count: int) -> Floats:
        return random.choice(np.atleast_1d(np.asarray(spreads, dtype=np.float64)), (count, 1))

    many = 10 * replays
    contrasts = stopped(spread(many) * noise(random, (many, PROTOCOL.most)))
    covered = Share(int((np.abs(contrasts.log) <= contrasts.half).sum()), many)
    wrong = np.zeros(replays, dtype=bool)
    withheld = np.zeros(replays, dtype=bool)
    no_more, no_same = math.log(CONFIRMED_OVER) >= TRUTH, math.log(SAME[1]) <= TRUTH
    for replay in range(replays):
        size, shape = spread(len(TRUTH)) / math.sqrt(2), (len(TRUTH), blocks)
        b = np.where(random.random((shape[0], 1)) < odd, noise(random, shape), _normal(random, shape))
        verdict, reason = judged(TRUTH, size * _normal(random, shape), size * b)
        mistaken = (verdict == "confirmed") & no_more | (verdict == "refuted") | (verdict == "no difference") & no_same
        wrong[replay], withheld[replay] = mistaken.any(), bool(reason)
    shares = (wrong, withheld, wrong & ~withheld)
    return Worth(covered, *(Share(int(each.sum()), replays) for each in shares))


def judged(truth: Floats, a: Floats, b: Floats) -> tuple[npt.NDArray[np.str_], str]:
    """Stop the claims of a run as a sweep does, and judge them together.

    Args:
        truth: log ratio of each claim's effect.
        a: noise of the log throughput of A's trials, claims × blocks.
        b: that of B's.

    Returns:
        The verdict on each claim that B has more, and why the run is withheld.
    """
    effects = truth[:, None] + b - a
    ran = np.arange(effects.shape[1]) < certain(effects, len(truth)).n[:, None]
    mean, sd, n = moments(np.where(ran, effects, np.nan))
    table = pd.DataFrame({"ratio": np.exp(mean), "sd_log": sd, "n": n, "says": "more", "figure": np.nan})
    reason = diagnose_logs(np.where(np.tile(ran, (2, 1)), np.concatenate((a, b)), np.nan)).reason
    return np.asarray(judge(table)["verdict"], dtype=np.str_), reason


def nulls_told(spread: float = 0.04, blocks: int = 30, replays: int = 400) -> Share:
    """Say how many of 5 true nulls among 26 obvious effects are called no difference."""
    random = np.random.default_rng(0)
    truth = np.array([0.0] * 5 + [0.3] * 26)
    told = 0
    for _ in range(replays):
        a, b = spread / math.sqrt(2) * random.standard_normal((2, len(truth), blocks))
        told += int(np.count_nonzero(judged(truth, a, b)[0][:5] == "no difference"))
    return Share(told, 5 * replays)


def gain_covered(settings: int, differ: float, blocks: int, spread: float = 0.03, replays: int = REPLAYS) -> Share:
    """Say how often the cross-fitted gain's interval holds the mean gain of what was chosen.

    Args:
        settings: how many are chosen from.
        differ: standard deviation of their true log throughputs.
        blocks: of each run.
        spread: standard deviation of the log throughput of a trial.
        replays: runs to draw.
    """
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(replays):
        truth = differ * random.standard_normal((settings, 1))
        default = spread * random.standard_normal((1, blocks))
        gains = truth + spread * random.standard_normal((settings, blocks)) - default
        # The truth of what is chosen: the same choice, applied to gains without noise.
        found, true = cross_fitted(gains), cross_fitted(gains, of=np.broadcast_to(truth, gains.shape))
        covered += abs(found.log - true.log) <= found.half
    return Share(covered, replays)


def naive_bias(settings: int = 20, blocks: int = 8, spread: float = 0.03, replays: int = REPLAYS) -> float:
    """Say by how much the best of equal settings seems to gain, in logs, when it is measured where it was chosen."""
    random = np.random.default_rng(0)
    return float(
        np.mean([(spread * random.standard_normal((settings, blocks))).mean(axis=1).max() for _ in range(replays)])
    )
