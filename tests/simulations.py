"""Runs whose truth is known, judged by the functions that judge records: intervals, verdicts, choices of the best.

Log throughputs are drawn at random. Noise is normal, or of one standard deviation and another shape; ``FAULTS`` lie on
top of normal noise and have a size of their own. Only B's trials have them, unless something else is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.contrasts import verdicts
from feedrate.analysis.crossfit import cross_fitted
from feedrate.analysis.diagnosis import diagnose_effect, diagnose_logs
from feedrate.analysis.estimate import Floats, half_width, moments
from feedrate.analysis.pooling import between_runs, pooled
from feedrate.analysis.verdicts import judge
from feedrate.plan.claim_selection import ERROR, LEAST_BLOCKS
from feedrate.plan.stopping import Rule
from feedrate.questions.methodology.simulations import CLAIMS, FAULT_SPREAD, SPREADS
from feedrate.schema.metrics import CONFIRMED_OVER, REFUTED_UNDER, SAME

PROTOCOL = Rule(fewest=8, most=30, target=math.log1p(0.03))
"""The protocol's defaults."""
REPLAYS = 2000
TRUTH = np.array([*np.repeat((0.0, math.log(SAME[1]), math.log(CONFIRMED_OVER), 0.05), 5), *[0.3] * 10])
"""Log ratios of the effects of a run, the worst case: none, at both margins of a verdict, small, and obvious."""
assert len(TRUTH) == CLAIMS
Noise = Callable[[np.random.Generator, tuple[int, int]], Floats]
"""Draws series × blocks of mean 0 and standard deviation 1."""


def normal(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Independent trials."""
    return random.standard_normal(shape)


def heavy(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """A tenth of all trials is slowed down."""
    slowed = (random.random(shape) < 0.1) * random.exponential(size=shape)
    return -0.8 * (slowed - 0.1) / math.sqrt(0.19) + 0.6 * random.standard_normal(shape)


def bimodal(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """A fifth of all trials is in a slow mode."""
    return -0.9 * ((random.random(shape) < 0.2) - 0.2) / 0.4 + math.sqrt(0.19) * random.standard_normal(shape)


def correlated(rho: float) -> Noise:
    def draw(random: np.random.Generator, shape: tuple[int, int]) -> Floats:
        series = random.standard_normal(shape)
        for block in range(1, shape[1]):
            series[:, block] = rho * series[:, block - 1] + math.sqrt(1 - rho**2) * series[:, block]
        return series

    return draw


def slowed(share: float, times: float) -> Noise:
    """Log throughput that a share of trials loses, less its mean."""
    lost, kept = math.log(times) * (share - 1), math.log(times) * share
    return lambda random, shape: np.where(random.random(shape) < share, lost, kept)


NOISES: Mapping[str, Noise] = {
    "normal": normal,
    "heavy tail on one side": heavy,
    "two modes": bimodal,
    "autocorrelated, ρ = 0.5": correlated(0.5),
    "autocorrelated, ρ = 0.8": correlated(0.8),
}


class Fault(NamedTuple):
    """What intervals do not assume: noise that is not normal, or slow trials on top of it."""

    noise: Noise = normal
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
    "5 % of B’s measurements 3 times as slow": Fault(added=slowed(0.05, 3)),
    "5 % of both sides’ measurements 3 times as slow": Fault(added=slowed(0.05, 3), both=True),
    "20 % of B’s measurements 1.25 times as slow": Fault(added=slowed(0.2, 1.25)),
    "autocorrelated, ρ = 0.5": Fault(correlated(0.5)),
    "autocorrelated, ρ = 0.8": Fault(correlated(0.8)),
}


class Stopped(NamedTuple):
    """Contrasts at the block at which a rule ended them; one element a replay."""

    log: Floats
    """Mean of the log ratios."""
    half: Floats
    """Half-width of its interval."""
    n: npt.NDArray[np.int64]
    """Blocks."""

    def verdicts(self) -> npt.NDArray[np.str_]:
        """What the project's rule says of each."""
        return verdicts(np.exp(self.log), np.exp(self.log - self.half), np.exp(self.log + self.half))


def stopped(logs: Floats, rule: Rule = PROTOCOL) -> Stopped:
    """Look at paired log ratios (replays × blocks) after every block, and stop when the rule says so."""
    return _first(logs, rule.fewest, rule.most, lambda _, sd, n: half_width(sd, n) <= rule.target)


def certain(logs: Floats, claims: int) -> Stopped:
    """Look at effects (claims × blocks) after every block, and stop where they are certain among so many claims."""

    def enough(log: Floats, sd: Floats, n: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        same = np.minimum(log - math.log(SAME[0]), math.log(SAME[1]) - log)
        room = np.maximum(same, np.maximum(log - math.log(CONFIRMED_OVER), math.log(REFUTED_UNDER) - log))
        return room >= half_width(sd, n, 1 - ERROR / claims)

    return _first(logs, LEAST_BLOCKS, logs.shape[1], enough)


def _first(
    logs: Floats,
    fewest: int,
    most: int,
    enough: Callable[[Floats, Floats, npt.NDArray[np.int64]], npt.NDArray[np.bool_]],
) -> Stopped:
    """Stop each row at the first look at which mean, spread and number of blocks are enough, or at the last."""
    n: npt.NDArray[np.int64] = np.arange(fewest, most + 1)
    looks = slice(fewest - 1, most)
    mean = logs.cumsum(axis=1)[:, looks] / n
    squares = (logs**2).cumsum(axis=1)[:, looks] - n * mean**2
    sd = np.sqrt(np.maximum(squares, 0.0) / (n - 1))
    done = enough(mean, sd, n)
    done[:, -1] = True
    at = np.arange(len(logs)), done.argmax(axis=1)
    return Stopped(mean[at], half_width(sd[at], n[at[1]]), n[at[1]])


def ratios(effect: float, spread: float, rule: Rule = PROTOCOL, replays: int = 20_000) -> Stopped:
    """Contrasts of a true ratio B ÷ A, with normal noise of a spread of the paired log ratios."""
    noise = spread * np.random.default_rng(0).standard_normal((replays, rule.most))
    return stopped(math.log(effect) + noise, rule)


def equal_cells(sequential: bool, spread: float = 0.06, drift: float = 0.05, replays: int = 20_000) -> Stopped:
    """Compare a cell with itself while the machine gets faster: blocks of random order, or all of A before B."""
    random, most = np.random.default_rng(0), PROTOCOL.most
    later = np.full((replays, most), most) if sequential else 1 - 2 * random.integers(2, size=(replays, most))
    noise = spread * math.sqrt(2) * random.standard_normal((replays, most))
    rule = Rule(most, most, PROTOCOL.target) if sequential else PROTOCOL
    return stopped(later * math.log1p(drift) / (2 * most) + noise, rule)


@dataclass(frozen=True)
class Judged:
    """The claims of a run that B has more."""

    verdict: npt.NDArray[np.str_]
    wrong: npt.NDArray[np.bool_]
    logs: Floats
    """Log throughputs of what ran, sides (A, B) × claims × blocks; NaN after a claim has left."""

    @cached_property
    def withheld(self) -> bool:
        """Whether the run is: its noise is diagnosed."""
        return bool(diagnose_logs(self.logs.reshape(-1, self.logs.shape[-1])).reason)

    @cached_property
    def claims_withheld(self) -> npt.NDArray[np.bool_]:
        """Which claims are, for their own cells."""
        return np.array([bool(diagnose_effect(cells).reason) for cells in self.logs.swapaxes(0, 1)])

    @property
    def wrong_left(self) -> bool:
        """Whether a wrong verdict is left where neither the run nor the claim is withheld."""
        return bool(self.wrong.any() and not self.withheld and (self.wrong & ~self.claims_withheld).any())


def judged(truth: Floats, a: Floats, b: Floats) -> Judged:
    """Stop claims of true log ratios as a sweep does, and judge them; ``a`` and ``b`` are noise, claims × blocks."""
    effects = truth[:, None] + b - a
    ran = np.arange(effects.shape[1]) < certain(effects, len(truth)).n[:, None]
    mean, sd, n = moments(np.where(ran, effects, np.nan))
    table = pd.DataFrame({"ratio": np.exp(mean), "sd_log": sd, "n": n, "says": "more", "figure": np.nan})
    verdict = np.asarray(judge(table)["verdict"], dtype=np.str_)
    return Judged(verdict, wrong_verdicts(verdict, truth), np.where(ran, np.array((a, b)), np.nan))


def wrong_verdicts(verdict: npt.NDArray[np.str_], truth: Floats) -> npt.NDArray[np.bool_]:
    """Which verdicts on what is said to be more do not hold for a true log ratio, of which none is under 0."""
    no_more, no_same = math.log(CONFIRMED_OVER) >= truth, math.log(SAME[1]) <= truth
    return (verdict == "confirmed") & no_more | (verdict == "refuted") | (verdict == "no difference") & no_same


def worth(
    noise: Noise, blocks: int = PROTOCOL.most, replays: int = REPLAYS, odd: float = 1.0
) -> tuple[float, float, float, float]:
    """Simulate the page's ``SIMULATED``; only a share ``odd`` of the claims has the noise, the others' is normal."""
    random = np.random.default_rng(0)

    def spread(count: int) -> Floats:
        return random.choice(np.array(SPREADS), (count, 1))

    contrasts = stopped(spread(10 * replays) * noise(random, (10 * replays, PROTOCOL.most)))
    covered = float((np.abs(contrasts.log) <= contrasts.half).mean())
    found = np.zeros((3, replays), dtype=bool)
    for replay in range(replays):
        size, shape = spread(len(TRUTH)) / math.sqrt(2), (len(TRUTH), blocks)
        b = np.where(random.random((shape[0], 1)) < odd, noise(random, shape), normal(random, shape))
        run = judged(TRUTH, size * normal(random, shape), size * b)
        found[:, replay] = run.wrong.any(), run.withheld, run.wrong.any() and not run.withheld
    return covered, *found.mean(axis=1).tolist()


def fault_worth(fault: Fault, blocks: int, replays: int = REPLAYS) -> list[float]:
    """Simulate contrasts and runs of claims under a fault; shares as in ``FAULTS_SIMULATED`` of the page."""
    random = np.random.default_rng(0)
    shape = (len(TRUTH), blocks)
    a, b = fault.draw(random, (10 * replays, blocks))
    mean, sd, n = moments(b - a)
    shares = []
    for _ in range(replays):
        run = judged(TRUTH, *fault.draw(random, shape))
        has = random.random((shape[0], 1)) < 1 / 3
        sides = zip(fault.draw(random, shape), FAULTS["normal"].draw(random, shape), strict=True)
        few = judged(TRUTH, *(np.where(has, faulty, plain) for faulty, plain in sides))
        shares.append((run.wrong.any(), run.withheld, run.claims_withheld.mean(), run.wrong_left, few.wrong_left))
    return [float((np.abs(mean) <= half_width(sd, n)).mean()), *np.mean(shares, axis=0).tolist()]


def nulls_held(spread: float = 0.04, blocks: int = 30, replays: int = 60) -> float:
    """Share of 5 true nulls among 26 obvious effects that are called no difference."""
    random = np.random.default_rng(0)
    truth = np.array([0.0] * 5 + [0.3] * 26)
    held = []
    for _ in range(replays):
        a, b = spread / math.sqrt(2) * random.standard_normal((2, len(truth), blocks))
        held.append(judged(truth, a, b).verdict[:5] == "no difference")
    return float(np.mean(held))


def gain_covered(settings: int, differ: float, blocks: int, spread: float = 0.03, replays: int = REPLAYS) -> float:
    """How often the cross-fitted gain's interval holds the true gain; settings ``differ``, trials ``spread``."""
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(replays):
        truth = differ * random.standard_normal((settings, 1))
        default = spread * random.standard_normal((1, blocks))
        gains = truth + spread * random.standard_normal((settings, blocks)) - default
        # The truth of what is chosen: the same choice, applied to gains without noise.
        found, true = cross_fitted(gains), cross_fitted(gains, of=np.broadcast_to(truth, gains.shape))
        covered += found.ratio.low <= true.ratio.value <= found.ratio.high
    return covered / replays


class Histories(NamedTuple):
    """Runs of one machine, one after the other, as shares."""

    covered: float
    """Of effects that several runs measured: those whose interval holds the truth."""
    wrong: float
    """Of histories: those with any wrong verdict."""
    turned: float
    """Of verdicts of two long runs: those that a third, short run turns."""
    turned_by_long: float
    """The same of a third run that is as long."""
    contradicted: float
    """Of verdicts of two long runs: those of which a third run of either kind makes another one."""


def histories(between: float, replays: int = REPLAYS) -> Histories:
    """Simulate machines with two to six runs of 5 to 30 blocks, whose effects differ by ``between`` from run to run."""
    random, found = np.random.default_rng(0), np.zeros((5, 2))

    def drawn(blocks: Sequence[int]) -> list[list[Floats]]:
        """Paired log ratios of each claim, an array a run."""
        spread = random.choice(np.array(SPREADS), (len(TRUTH), 1))
        runs = [
            (TRUTH + between * random.standard_normal(len(TRUTH)))[:, None]
            + spread * random.standard_normal((len(TRUTH), each))
            for each in blocks
        ]
        return [list(values) for values in zip(*runs, strict=True)]

    def judged(effects: Sequence[Sequence[Floats]]) -> tuple[Floats, npt.NDArray[np.str_]]:
        """How far each estimate lies from the truth, in half-widths, and its verdict."""
        machine = between_runs(effects)
        mean, sd, n = (
            np.array(column) for column in zip(*(pooled(runs, machine).spread for runs in effects), strict=True)
        )
        table = pd.DataFrame({"ratio": np.exp(mean), "sd_log": sd, "n": n, "says": "more", "figure": np.nan})
        off = np.abs(mean - TRUTH) / half_width(sd, n)
        return off, np.asarray(judge(table)["verdict"], dtype=np.str_)

    for _ in range(replays):
        effects = drawn(random.choice((5, 8, 12, 30), random.integers(2, 7)).tolist())
        off, verdict = judged(effects)
        found[0] += (off <= 1).sum(), len(off)
        found[1] += wrong_verdicts(verdict, TRUTH).any(), 1
        effects = drawn((30, 30, 5, 30))
        _, settled = judged([runs[:2] for runs in effects])
        decided = settled != "inconclusive"
        for third in (2, 3):
            _, later = judged([[*runs[:2], runs[third]] for runs in effects])
            turned = decided & (settled != later)
            found[third] += turned.sum(), decided.sum()
            found[4] += (turned & (later != "inconclusive")).sum(), decided.sum()
    return Histories(*(found[:, 0] / found[:, 1]).tolist())
