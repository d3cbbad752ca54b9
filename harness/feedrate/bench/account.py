"""Is the time of a training script blamed on the right row, and on the right line of it?

Scripts (``planted``) plant time in one row of the account or in two, asleep or computing, and keep a clock of
their own. Shares are of the loops: importing PyTorch would make every error small.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

from rich.progress import track

from feedrate.attach.account import ONCE, STEP
from feedrate.attach.report import Report
from feedrate.bench.scripts import HOT_LINE, OFTEN, Planted
from feedrate.bench.session import Figure, Session, judge_count, judge_errors
from feedrate.schema.errors import TrialError
from feedrate.store.bench_record import AccountedScript, Told

BATCH = 8
PLANTED: Mapping[str, float] = {
    "sampler": 6,
    "waiting": 20,
    "here": 6,
    "receiving": 6,
    "forward": 6,
    "backward": 6,
    "optimizer": 6,
    "between_steps": 6,
    "starting": 1500,
    "checkpoint": 1500,
    "evaluation": 1500,
    "garbage": 600,
    "between_epochs": 1500,
}
"""Row to its milliseconds: of a step, or of an epoch."""
LOADING = ("waiting", "here", "receiving", "starting")
"""Rows of which one script plants one: no clock of a script tells them apart."""
PAIRS = 24
NEAR = 0.05
"""Of two rows that differ by less, either is the largest."""
_FIXED = ("receiving", "garbage", "starting")
"""Rows whose cost is what it is, or is of no one line."""


def planned() -> list[tuple[dict[str, float], bool]]:
    """What is planted, and whether it computes: each row by itself, then pairs of random sizes."""
    alone = [({row: ms}, False) for row, ms in PLANTED.items()]
    alone += [({row: ms}, True) for row, ms in PLANTED.items() if row not in _FIXED]
    drawn = random.Random(1)
    pairs = [pair for pair in combinations(PLANTED, 2) if sum(row in LOADING for row in pair) < 2]
    return alone + [
        ({row: round(PLANTED[row] * drawn.uniform(0.4, 1.2), 1) for row in pair}, drawn.random() < 0.5)
        for pair in drawn.sample(pairs, PAIRS)
    ]


def measure(session: Session) -> Iterator[Figure]:
    """Run every planted script once; about a quarter of an hour."""
    planted, scripts = Planted(session.folder), planned()
    session.console.print(f"Account: {len(scripts)} scripts with time planted in their rows ...")
    for plan, computes in track(scripts, "", console=session.console, transient=True):
        session.accounted.append(watch(planted, plan, computes))
    yield from judge(session.accounted)


def watch(
    planted: Planted, plan: Mapping[str, float], computes: bool, steps: int = 300, epochs: int = 3
) -> AccountedScript:
    """Run a planted script below feedrate, and put what both say side by side."""
    workers, computing = 0 if "here" in plan else 2, {"computes": 1, "step-computes": True} if computes else {}
    sample_ms, step_ms = (plan.get("waiting", 0) + plan.get("here", 0)) / BATCH, plan.get("forward", 0)
    costs = {"sample-ms": sample_ms, "step-ms": step_ms, "plan": json.dumps(plan), **computing}
    report, clock = planted.watched(workers=workers, batch=BATCH, steps=steps, epochs=epochs, **costs)
    if report.account is None or report.cause is None:
        raise TrialError(f"bench: feedrate run measured nothing of {dict(plan)}: {'; '.join(report.notes)}")
    rows = report.account.rows
    loops = sum(took for row, took in rows.items() if row not in ONCE)
    truth = {row: clock["rows"]["waiting" if row in LOADING and row != "starting" else row] for row in plan}
    shared = {row: ("waiting", "receiving") if row in ("waiting", "receiving") else (row,) for row in plan}
    shares = {row: sum(rows.get(name, 0) for name in shared[row]) / loops for row in plan}
    prepared = dict.fromkeys(("waiting", "here"), sum(clock["hot"]) / sum(clock["prepared"]))
    spent = {row: clock["lines"][row] / truth[row] for row in plan.keys() & clock["lines"].keys()}
    return AccountedScript(
        planted=dict(plan),
        computes=computes,
        num_workers=workers,
        rest_share=abs(rows.get("rest", 0)) / report.account.wall_ns,
        largest=max((row for row in rows if row not in ONCE), key=rows.__getitem__),
        cause=report.cause.row,
        rows={row: Told(said=shares[row], truth=truth[row] / clock["rows"]["loops"]) for row in plan},
        lines={row: _line(report, row, (spent | prepared)[row]) for row in plan if row not in _FIXED},
    )


def _line(report: Report, row: str, truth: float) -> Told:
    """The share of a row's planted line; 0 where another line is named first."""
    first, end = next(iter(report.lines.get(row, ())), None), HOT_LINE if row in ("waiting", "here") else f"# {row}"
    return Told(said=first.share if first and first.code.endswith(end) else 0.0, truth=min(1.0, truth))


def judge(scripts: Sequence[AccountedScript]) -> Iterator[Figure]:
    """Judge how often the row and its line are the true ones, and how far their shares are off."""
    rest = max(script.rest_share for script in scripts)
    at_worst = f"at worst {100 * rest:.2f} %"
    yield Figure("rows of the account add up to the wall clock", "within 1 %", at_worst, rest <= 0.01)
    largest = [script.largest in _largest(script.rows) for script in scripts]
    yield judge_count("the largest row of the account is the one that was planted", OFTEN, "the scripts", largest)
    # Where only the step is planted, nothing can go.
    removable = [
        (script.cause, {row: script.rows[row] for row in script.rows if row not in STEP}) for script in scripts
    ]
    causes = [cause in _largest(rows) for cause, rows in removable if rows]
    yield judge_count("the named cause is the largest planted cost that can be removed", OFTEN, "the scripts", causes)
    yield judge_errors("share of a planted row", 3, "points", 1, _errors(script.rows for script in scripts))
    first = [line.said > 0 for script in scripts for line in script.lines.values()]
    yield judge_count("the planted line is the first of its row", OFTEN, "the rows", first)
    yield judge_errors("its share of the row", 5, "points", 0.9, _errors(script.lines for script in scripts))


def _errors(shares: Iterable[Mapping[str, Told]]) -> list[float]:
    return [100 * (share.said - share.truth) for script in shares for share in script.values()]


def _largest(shares: Mapping[str, Told]) -> set[str]:
    """The planted rows that may be called the largest."""
    most = max(share.truth for share in shares.values())
    return {row for row, share in shares.items() if share.truth >= most - NEAR}
