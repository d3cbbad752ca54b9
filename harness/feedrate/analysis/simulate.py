"""What the protocol's rules do over thousands of runs whose truth is known, and over replays of a recorded one.

An interval that stops as soon as it is narrow, a verdict with margins, an order that is random within blocks: whether
they keep what they promise cannot be seen in one run. Here they are applied, by the same functions that judge records,
to log throughputs drawn at random. Noise is normal on logs unless it is resampled from records; other kinds are in
``analysis.simulate_noise``. Spreads that change in the course of a run are not simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import betaincinv

from feedrate.analysis.blocks import CONFIDENCE, Blocks, Floats, half_width, moments, successful
from feedrate.analysis.contrasts import contrasts, verdicts
from feedrate.plan.claim_selection import ERROR, LEAST_BLOCKS
from feedrate.plan.stopping import Rule
from feedrate.schema.metrics import CONFIRMED_OVER, REFUTED_UNDER, SAME

PROTOCOL = Rule(fewest=8, most=30, target=math.log1p(0.03))
"""The protocol's defaults."""
REPLAYS = 20_000
MEETS = 0.95
"""Share of the cells that a fixed number of blocks must serve."""


@dataclass(frozen=True, slots=True)
class Share:
    """How often something happened."""

    hits: int
    n: int

    @property
    def value(self) -> float:
        """Share of the replays."""
        return self.hits / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95 % interval (C. J. Clopper and E. S. Pearson, Biometrika 26, 1934)."""
        tail = (1 - CONFIDENCE) / 2
        low = betaincinv(self.hits, self.n - self.hits + 1, tail) if self.hits else 0.0
        high = betaincinv(self.hits + 1, self.n - self.hits, 1 - tail) if self.hits < self.n else 1.0
        return float(low), float(high)


def _share(happened: npt.NDArray[np.bool_]) -> Share:
    return Share(int(happened.sum()), len(happened))


class Stopped(NamedTuple):
    """Contrasts at the block at which the rule ended them; one element a replay."""

    log: Floats
    """Mean of the log ratios."""
    half: Floats
    """Half-width of its interval."""
    n: npt.NDArray[np.int64]
    """Blocks."""

    def verdicts(self, direction: str | None = None) -> npt.NDArray[np.str_]:
        """What the project's rule says of each."""
        return verdicts(np.exp(self.log), np.exp(self.log - self.half), np.exp(self.log + self.half), direction)


def stopped(logs: Floats, rule: Rule = PROTOCOL) -> Stopped:
    """Look at paired log ratios (replays × blocks) after every block, and stop when the rule says so."""
    return _first(logs, rule.fewest, rule.most, lambda _, sd, n: half_width(sd, n) <= rule.target)


def certain(logs: Floats, claims: int) -> Stopped:
    """Look at effects (claims × blocks) after every block, and stop where they are certain (``plan.claim_selection``).

    Args:
        logs: an effect's log ratios, of one claim a row.
        claims: how many the run tests.
    """
    level = 1 - ERROR / claims
    return _first(logs, LEAST_BLOCKS, logs.shape[1], lambda mean, sd, n: _room(mean) >= half_width(sd, n, level))


def _room(log: Floats) -> Floats:
    """``metrics.room`` of many logs."""
    same = np.minimum(log - math.log(SAME[0]), math.log(SAME[1]) - log)
    return np.maximum(same, np.maximum(log - math.log(CONFIRMED_OVER), math.log(REFUTED_UNDER) - log))


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


def _pairs(effect: float, spread: npt.ArrayLike, rule: Rule, replays: int, seed: int) -> Floats:
    """Paired log ratios around a true ratio; each replay with one of the spreads."""
    random = np.random.default_rng(seed)
    sd = random.choice(np.atleast_1d(np.asarray(spread, dtype=np.float64)), replays)
    return math.log(effect) + sd[:, None] * random.standard_normal((replays, rule.most))


def coverage(
    spread: npt.ArrayLike, *, effect: float = 1.0, rule: Rule = PROTOCOL, replays: int = REPLAYS, seed: int = 0
) -> Share:
    """Say how often the 95 % interval of a contrast holds the true ratio ``effect``, stopping included.

    Args:
        spread: standard deviation of the paired log ratios; of several, each replay takes one at random.
        effect: the true ratio B ÷ A.
        rule: when the contrast stops; fewest = most for a fixed number of blocks.
        replays: how many to draw.
        seed: of the random numbers.
    """
    found = stopped(_pairs(effect, spread, rule, replays, seed), rule)
    return _share(np.abs(found.log - math.log(effect)) <= found.half)


def confirmation_rate(
    effect: float, spread: npt.ArrayLike, *, rule: Rule = PROTOCOL, replays: int = REPLAYS, seed: int = 0
) -> Share:
    """Say how often the claim that B is faster is confirmed; arguments as of :func:`coverage`."""
    found = stopped(_pairs(effect, spread, rule, replays, seed), rule)
    return _share(found.verdicts("faster") == "confirmed")


@dataclass(frozen=True, slots=True)
class CalledDifferent:
    """How often two equal cells were told apart."""

    by_verdict: Share
    """The verdict was ``faster`` or ``slower``."""
    by_interval: Share
    """The 95 % interval did not hold 1: what a rule without margins would say."""


def called_different(
    order: Literal["random", "sequential"] = "random",
    *,
    spread: float = 0.06,
    drift: float = 0.05,
    rule: Rule = PROTOCOL,
    replays: int = REPLAYS,
    seed: int = 0,
) -> CalledDifferent:
    """Compare a cell with itself on a machine that gets steadily faster.

    Args:
        order: ``random``: each block runs both in a random order, and stops by the rule. ``sequential``: first all
            repeats of A, then all of B, as many as the rule has at most; the i-th of each are paired.
        spread: standard deviation of the log throughput of a trial.
        drift: by how much of its throughput the machine gains over a run of ``rule.most`` blocks, linear in logs.
        rule: when the contrast stops.
        replays: how many to draw.
        seed: of the random numbers.
    """
    random = np.random.default_rng(seed)
    if order == "random":
        a_first = random.integers(2, size=(replays, rule.most))
        later = 1 - 2 * a_first
    else:
        later = np.broadcast_to(rule.most, (replays, rule.most))
        rule = Rule(rule.most, rule.most, rule.target)
    pace = math.log1p(drift) / (2 * rule.most)
    noise = spread * math.sqrt(2) * random.standard_normal((replays, rule.most))
    found = stopped(later * pace + noise, rule)
    differ = np.isin(found.verdicts(), ("faster", "slower"))
    return CalledDifferent(_share(differ), _share(np.abs(found.log) > found.half))


class _Record(NamedTuple):
    """What a recorded run offers to be replayed; a question is a contrast, or a cell that is part of none."""

    residuals: Floats
    """Questions × blocks: logs less their mean, widened to the spread that few blocks show too small."""
    asks: npt.NDArray[np.bool_]
    """Cells × questions: which cells each is about."""
    seconds: Floats
    """Of a trial of each cell."""
    beside_s: float
    """What a block takes beside its trials (the template's start, orders, writing); 0 where none was timed."""


def _record(trials: pd.DataFrame) -> _Record:
    """Take the blocks that ran every cell of which a trial ever ended well: in later ones some had stopped."""
    own = trials[~trials["role"].isin(["ceiling", "control"])]
    own = own[own["cell_id"].isin(successful(own)["cell_id"])]
    ran = own.groupby("block")["cell_id"].nunique()
    complete = ran.index[ran == own["cell_id"].nunique()]
    if len(complete) < 2:
        raise ValueError(f"{len(complete)} blocks in which every cell ran; expected at least 2: measure more blocks")
    own = own[own["block"].isin(complete)]
    ids = list(own["cell_id"].unique())
    place = {cell: row for row, cell in enumerate(ids)}
    logs = Blocks(own).logs([own["run_id"].iloc[0]] * len(ids), ids)
    found = contrasts(own)
    pairs = [(place[a], place[b]) for a, b in zip(found["cell_a"], found["cell_b"], strict=True)]
    alone = sorted(set(range(len(ids))) - {cell for pair in pairs for cell in pair})
    series = np.array([*(logs[b] - logs[a] for a, b in pairs), *(logs[cell] for cell in alone)])
    asks = np.zeros((len(ids), len(series)), dtype=bool)
    for question, about in enumerate([*pairs, *((cell,) for cell in alone)]):
        asks[list(about), question] = True
    mean, _, n = moments(series)
    widened = (series - mean[:, None]) * np.sqrt(n / np.maximum(1, n - 1))[:, None]
    by_cell = (own["trial_wall_ns"].astype("float64") / 1e9).groupby(own["cell_id"]).mean()
    seconds: Floats = np.asarray(by_cell.reindex(ids), dtype=np.float64)
    walls = trials.groupby("block")["trial_wall_ns"].sum().astype("float64") / 1e9
    began = pd.to_datetime(trials["started_at"], format="ISO8601", utc=True).groupby(trials["block"]).min()
    beside = float((-began.diff(-1).dt.total_seconds() - walls).median())
    known = n > 1
    return _Record(widened[known], asks[:, known], seconds, beside if beside > 0 else 0.0)


class _Tally:
    """Running moments of the questions in every replay: how wide each interval is by now; replays × questions."""

    def __init__(self, replays: int, questions: int, most: int) -> None:
        self._n = np.zeros((replays, questions), dtype=np.int64)
        self._sum = np.zeros((replays, questions))
        self._squares = np.zeros((replays, questions))
        self._unit = half_width(1.0, np.arange(most + 1))

    def add(self, values: Floats, running: npt.NDArray[np.bool_] | bool = True) -> None:
        """Take a block in; NaN is a pair that failed, and what does not run is left as it is."""
        counts = np.isfinite(values) & running
        self._n += counts
        self._sum += np.where(counts, values, 0.0)
        self._squares += np.where(counts, values**2, 0.0)

    def done(self, rule: Rule) -> npt.NDArray[np.bool_]:
        """Questions whose interval is narrow enough, after enough blocks."""
        n = np.maximum(self._n, 2)
        sd = np.sqrt(np.maximum(self._squares - self._sum**2 / n, 0.0) / (n - 1))
        return np.asarray((self._n >= max(2, rule.fewest)) & (self._unit[n] * sd <= rule.target))


@dataclass(frozen=True, slots=True)
class WallToTarget:
    """What it costs to answer a run's questions: stopping each cell when it is done, or repeating all alike."""

    adaptive_s: float
    """Mean wall clock of the replays in which cells stop."""
    adaptive_met: float
    """Share of the cells that met the target in them."""
    fixed_s: float
    """Wall clock of ``fixed_blocks`` blocks of all cells; NaN where that many were not enough."""
    fixed_blocks: int | None
    """The smallest number with which, over all replays, ``MEETS`` of the cells met the target."""
    cells: int
    recorded_blocks: int
    replays: int

    @property
    def ratio(self) -> float:
        """Wall clock of stopping ÷ that of the fixed number."""
        return self.adaptive_s / self.fixed_s


def wall_to_target(
    trials: pd.DataFrame, ci_target_pct: float = 3.0, *, replays: int = 300, most: int = 1000, seed: int = 0
) -> WallToTarget:
    """Replay a recorded run to a target half-width, with cells that stop and with a fixed number of blocks.

    A cell *meets the target* when the 95 % intervals of all its contrasts have at most that half-width (its own
    interval, if it is part of no contrast). Cells that stop: a block runs every cell that does not meet the target yet,
    both sides of a contrast until both are done, and nobody stops before the protocol's fewest blocks. Fixed: all cells
    run in every block, and the number of blocks is chosen beforehand. Neither has the protocol's most blocks as a cap:
    giving up on noisy cells is no way to be faster.

    The blocks of a replay are drawn from the recorded ones with replacement, all cells of a block together, so that
    what they have in common stays. Cells that only serve others (ceilings, controls) are in neither side.

    Args:
        trials: rows of ``records.TRIALS`` of one run; only blocks that ran every cell are drawn from.
        ci_target_pct: half-width to reach, in per cent.
        replays: how many to draw.
        most: blocks at which a replay ends in any case.
        seed: of the random numbers.

    Raises:
        ValueError: fewer than two blocks ran every cell.
    """
    record = _record(trials)
    rule = Rule(PROTOCOL.fewest, most, math.log1p(ci_target_pct / 100))
    at_once = Rule(2, most, rule.target)
    random = np.random.default_rng(seed)
    questions, recorded = record.residuals.shape
    adaptive, fixed = (_Tally(replays, questions, most) for _ in range(2))
    live = np.ones((replays, len(record.asks)), dtype=bool)
    fixed_blocks, wall = None, np.zeros(replays)
    for block in range(1, most + 1):
        drawn = record.residuals[:, random.integers(recorded, size=replays)].T
        wall += live @ record.seconds + record.beside_s * live.any(axis=1)
        adaptive.add(drawn, running=~(~live @ record.asks))  # none of a question's cells has stopped
        fixed.add(drawn)
        live &= ~adaptive.done(rule) @ record.asks.T
        if fixed_blocks is None and (~(~fixed.done(at_once) @ record.asks.T)).mean() >= MEETS:
            fixed_blocks = block
        if fixed_blocks and not live.any():
            break
    block_s = float(record.seconds.sum()) + record.beside_s
    return WallToTarget(
        adaptive_s=float(wall.mean()),
        adaptive_met=float((~live).mean()),
        fixed_s=fixed_blocks * block_s if fixed_blocks else math.nan,
        fixed_blocks=fixed_blocks,
        cells=len(record.asks),
        recorded_blocks=recorded,
        replays=replays,
    )
