"""What verdicts are worth where noise is not what intervals assume, over runs whose truth is known.

Five kinds of noise of one standard deviation: normal; with a heavy tail on one side (a tenth of all trials are slowed
down); with two modes (a fifth of all trials in a slow one); and autocorrelated from block to block (ρ = 0.5 and 0.8).
The judged effects are the worst case: many lie exactly at a margin of a verdict. A run whose noise is diagnosed
(``analysis.diagnosis``) gives no verdict, so that none of its verdicts is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from feedrate.analysis.blocks import Floats, moments
from feedrate.analysis.crossfit import cross_fitted
from feedrate.analysis.diagnosis import diagnose_logs
from feedrate.analysis.simulate import PROTOCOL, Share, stopped
from feedrate.analysis.verdicts import judge
from feedrate.schema.metrics import CONFIRMED_OVER, SAME

REPLAYS = 1000
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


def coverage(noise: Noise, spread: float, replays: int = REPLAYS) -> Share:
    """Say how often the 95 % interval of a contrast holds the truth, early stopping included."""
    random = np.random.default_rng(0)
    found = stopped(spread * noise(random, (replays, PROTOCOL.most)))
    return Share(int((np.abs(found.log) <= found.half).sum()), replays)


def any_wrong(noise: Noise, spread: float, blocks: int, replays: int = REPLAYS) -> tuple[Share, Share]:
    """Say in how many runs any verdict is wrong, and in how many they are withheld.

    Args:
        noise: of the log throughput of a cell's trials.
        spread: standard deviation of paired log ratios.
        blocks: of each run.
        replays: runs to draw.
    """
    random = np.random.default_rng(0)
    wrong = withheld = 0
    truth, effects = TRUTH[:, None], len(TRUTH)
    for _ in range(replays):
        logs = spread / math.sqrt(2) * noise(random, (2 * effects, blocks))
        if diagnose_logs(logs).reason:
            withheld += 1
            continue
        mean, sd, n = moments(truth + logs[effects:] - logs[:effects])
        table = pd.DataFrame({"ratio": np.exp(mean), "sd_log": sd, "n": n, "says": "more", "figure": np.nan})
        verdict = judge(table)["verdict"].to_numpy()
        no_more, no_same = TRUTH <= math.log(CONFIRMED_OVER), TRUTH >= math.log(SAME[1])
        mistakes = (verdict == "confirmed") & no_more | (verdict == "refuted") | (verdict == "no difference") & no_same
        wrong += bool(mistakes.any())
    return Share(wrong, replays), Share(withheld, replays)


def nulls_told(spread: float = 0.04, blocks: int = 30, replays: int = 200) -> Share:
    """Say how many of 5 true nulls among 26 obvious effects are called no difference."""
    random = np.random.default_rng(0)
    truth = np.array([0.0] * 5 + [0.3] * 26)[:, None]
    told = 0
    for _ in range(replays):
        mean, sd, n = moments(truth + spread * random.standard_normal((len(truth), blocks)))
        table = pd.DataFrame({"ratio": np.exp(mean), "sd_log": sd, "n": n, "says": "more", "figure": np.nan})
        told += int((judge(table)["verdict"][:5] == "no difference").sum())
    return Share(told, 5 * replays)


def gain_covered(settings: int, differ: float, blocks: int, spread: float = 0.03, replays: int = 500) -> Share:
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
        covered += bool(found and true and abs(found.log - true.log) <= found.half)
    return Share(covered, replays)


def naive_bias(settings: int = 20, blocks: int = 8, spread: float = 0.03, replays: int = 2000) -> float:
    """Say by how much the best of equal settings seems to gain, in logs, when it is measured where it was chosen."""
    random = np.random.default_rng(0)
    return float(np.mean([(spread * random.standard_normal((settings, blocks))).mean(axis=1).max() for _ in range(replays)]))

