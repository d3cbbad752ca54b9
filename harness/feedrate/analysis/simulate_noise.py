"""What verdicts are worth where noise is not what intervals assume, over runs whose truth is known.

Two questions are asked. *Does the shape of noise matter?* Five kinds of one standard deviation: normal; with a heavy
tail on one side (a tenth of all trials are slowed down); with two modes (a fifth of all trials in a slow one); and
autocorrelated from block to block (ρ = 0.5 and 0.8). *What do faults of their own size do?* ``FAULTS`` lie on top of
normal noise and are not scaled to it: trials that are three times as slow, a mode that is a quarter slower. The truth
is the mean of logs, slow trials included.

The judged effects are the worst case: most lie exactly at a margin of a verdict. Claims leave a run when they are
certain, as in a sweep. A run whose noise is diagnosed (``analysis.diagnosis``) gives no verdict, so that none of its
verdicts is wrong.

Slow trials make an interval wrong where they did *not* happen: a claim that has seen none has a narrow interval around
a mean without them. Nothing in its trials tells of that, only other cells of the run can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.blocks import Floats, half_width, moments
from feedrate.analysis.crossfit import cross_fitted
from feedrate.analysis.diagnosis import diagnose_effect, diagnose_logs
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


def _slowed(share: float, times: float) -> Noise:
    """Log throughput that a share of trials loses, less its mean."""
    lost, kept = math.log(times) * (share - 1), math.log(times) * share
    return lambda random, shape: np.where(random.random(shape) < share, lost, kept)


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
FAULT_SPREAD = 0.04
"""Standard deviation of paired log ratios, before faults are added."""
FAULT_BLOCKS = (7, 12, 30)


class Fault(NamedTuple):
    """What intervals do not assume: noise that is not normal, or slow trials on top of it."""

    noise: Noise = _normal
    """Of both sides, at ``FAULT_SPREAD``."""
    added: Noise | None = None
    """To the log throughput of B."""
    both: bool = False
    """Added to A, too."""

    def draw(self, random: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, Floats]:
        """Log throughputs of A and of B, claims × blocks, less their means."""
        a, b = (FAULT_SPREAD / math.sqrt(2) * self.noise(random, shape) for _ in range(2))
        if self.added:
            b = b + self.added(random, shape)
            a = a + self.added(random, shape) if self.both else a
        return a, b


FAULTS: Mapping[str, Fault] = {
    "normal": Fault(),
    "5 % of B’s trials 3 times as slow": Fault(added=_slowed(0.05, 3)),
    "5 % of both sides’ trials 3 times as slow": Fault(added=_slowed(0.05, 3), both=True),
    "20 % of B’s trials 1.25 times as slow": Fault(added=_slowed(0.2, 1.25)),
    "autocorrelated, ρ = 0.5": Fault(_correlated(0.5)),
    "autocorrelated, ρ = 0.8": Fault(_correlated(0.8)),
}


class FaultWorth(NamedTuple):
    """What numbers are worth under a fault."""

    covered: Share
    """Contrasts whose 95 % interval holds the truth, after all blocks."""
    wrong: Share
    """Runs with any wrong verdict, had none been withheld."""
    withheld: Share
    """Runs whose verdicts are withheld."""
    claims_withheld: Share
    """Claims withheld for their own cells."""
    wrong_left: Share
    """Runs with any wrong verdict that neither look withholds."""
    few_wrong_left: Share
    """The same where only a third of the claims have the fault."""


FAULTS_SIMULATED: Mapping[tuple[str, int], tuple[float, ...]] = {
    ("normal", 7): (0.951, 0.013, 0.004, 0.001, 0.013, 0.009),
    ("normal", 12): (0.951, 0.015, 0.001, 0.003, 0.015, 0.015),
    ("normal", 30): (0.949, 0.026, 0.0, 0.003, 0.026, 0.022),
    ("5 % of B’s trials 3 times as slow", 7): (0.398, 0.832, 0.936, 0.001, 0.054, 0.345),
    ("5 % of B’s trials 3 times as slow", 12): (0.463, 0.993, 0.959, 0.001, 0.041, 0.68),
    ("5 % of B’s trials 3 times as slow", 30): (0.784, 0.999, 0.991, 0.008, 0.009, 0.746),
    ("5 % of both sides’ trials 3 times as slow", 7): (0.976, 0.004, 1.0, 0.0, 0.0, 0.004),
    ("5 % of both sides’ trials 3 times as slow", 12): (0.983, 0.003, 1.0, 0.001, 0.0, 0.003),
    ("5 % of both sides’ trials 3 times as slow", 30): (0.972, 0.002, 1.0, 0.007, 0.0, 0.002),
    ("20 % of B’s trials 1.25 times as slow", 7): (0.85, 0.203, 0.852, 0.001, 0.041, 0.076),
    ("20 % of B’s trials 1.25 times as slow", 12): (0.917, 0.29, 0.985, 0.004, 0.006, 0.107),
    ("20 % of B’s trials 1.25 times as slow", 30): (0.939, 0.269, 1.0, 0.004, 0.0, 0.085),
    ("autocorrelated, ρ = 0.5", 7): (0.767, 0.212, 1.0, 0.011, 0.001, 0.059),
    ("autocorrelated, ρ = 0.5", 12): (0.752, 0.291, 1.0, 0.065, 0.0, 0.059),
    ("autocorrelated, ρ = 0.5", 30): (0.739, 0.511, 1.0, 0.27, 0.0, 0.082),
    ("autocorrelated, ρ = 0.8", 7): (0.502, 0.809, 1.0, 0.028, 0.0, 0.173),
    ("autocorrelated, ρ = 0.8", 12): (0.468, 0.93, 1.0, 0.188, 0.0, 0.109),
    ("autocorrelated, ρ = 0.8", 30): (0.461, 0.99, 1.0, 0.409, 0.0, 0.134),
}
"""What ``fault_worth`` finds for each fault and number of blocks, as shares: tests compute them again."""


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
    for replay in range(replays):
        size, shape = spread(len(TRUTH)) / math.sqrt(2), (len(TRUTH), blocks)
        b = np.where(random.random((shape[0], 1)) < odd, noise(random, shape), _normal(random, shape))
        run = judged(TRUTH, size * _normal(random, shape), size * b)
        wrong[replay], withheld[replay] = run.wrong.any(), run.withheld
    shares = (wrong, withheld, wrong & ~withheld)
    return Worth(covered, *(Share(int(each.sum()), replays) for each in shares))


def fault_worth(fault: Fault, blocks: int, replays: int = REPLAYS) -> FaultWorth:
    """Simulate contrasts and runs of claims under a fault of its own size, up to a number of blocks."""
    random = np.random.default_rng(0)
    many, shape = 10 * replays, (len(TRUTH), blocks)
    a, b = fault.draw(random, (many, blocks))
    mean, sd, n = moments(b - a)
    counts = np.zeros(5, dtype=np.int64)
    for _ in range(replays):
        run = judged(TRUTH, *fault.draw(random, shape))
        has = random.random((shape[0], 1)) < 1 / 3
        sides = zip(fault.draw(random, shape), FAULTS["normal"].draw(random, shape), strict=True)
        few = judged(TRUTH, *(np.where(has, faulty, normal) for faulty, normal in sides))
        found = run.wrong.any(), run.withheld, run.claims_withheld().sum(), run.wrong_left, few.wrong_left
        counts += np.array(found, dtype=np.int64)
    covered = Share(int((np.abs(mean) <= half_width(sd, n)).sum()), many)
    of = (replays, replays, len(TRUTH) * replays, replays, replays)
    return FaultWorth(covered, *(Share(int(hits), each) for hits, each in zip(counts, of, strict=True)))


class Judged(NamedTuple):
    """The claims of a run that B has more."""

    verdict: npt.NDArray[np.str_]
    wrong: npt.NDArray[np.bool_]
    logs: Floats
    """Log throughputs of what ran, sides (A, B) × claims × blocks; NaN after a claim has left."""

    @property
    def withheld(self) -> bool:
        """Whether the run is."""
        return bool(diagnose_logs(self.logs.reshape(-1, self.logs.shape[-1])).reason)

    def claims_withheld(self) -> npt.NDArray[np.bool_]:
        """Which claims are, for their own cells."""
        return np.array([bool(diagnose_effect(cells).reason) for cells in self.logs.swapaxes(0, 1)])

    @property
    def wrong_left(self) -> bool:
        """Whether a wrong verdict is left where neither the run nor the claim is withheld."""
        return bool(self.wrong.any() and not self.withheld and (self.wrong & ~self.claims_withheld()).any())


def judged(truth: Floats, a: Floats, b: Floats) -> Judged:
    """Stop the claims of a run as a sweep does, and judge them together.

    Args:
        truth: log ratio of each claim's effect.
        a: noise of the log throughput of A's trials, claims × blocks.
        b: that of B's.
    """
    effects = truth[:, None] + b - a
    ran = np.arange(effects.shape[1]) < certain(effects, len(truth)).n[:, None]
    mean, sd, n = moments(np.where(ran, effects, np.nan))
    table = pd.DataFrame({"ratio": np.exp(mean), "sd_log": sd, "n": n, "says": "more", "figure": np.nan})
    verdict = np.asarray(judge(table)["verdict"], dtype=np.str_)
    no_more, no_same = math.log(CONFIRMED_OVER) >= truth, math.log(SAME[1]) <= truth
    wrong = (verdict == "confirmed") & no_more | (verdict == "refuted") | (verdict == "no difference") & no_same
    return Judged(verdict, wrong, np.where(ran, np.array((a, b)), np.nan))


def nulls_told(spread: float = 0.04, blocks: int = 30, replays: int = 400) -> Share:
    """Say how many of 5 true nulls among 26 obvious effects are called no difference."""
    random = np.random.default_rng(0)
    truth = np.array([0.0] * 5 + [0.3] * 26)
    told = 0
    for _ in range(replays):
        a, b = spread / math.sqrt(2) * random.standard_normal((2, len(truth), blocks))
        told += int(np.count_nonzero(judged(truth, a, b).verdict[:5] == "no difference"))
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
