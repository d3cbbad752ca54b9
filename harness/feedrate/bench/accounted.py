"""Is the time of a training script blamed on the right row, and on the right line of it?

Scripts (``planted_rows``) plant time in one row of the account or in two, asleep or computing, and keep a clock of
their own. Shares are of the loops: importing PyTorch would make every error small.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from rich.progress import track

from feedrate.attach.account import ONCE, STEP
from feedrate.attach.report import Report
from feedrate.bench.scripts import OFTEN, watched, words_of
from feedrate.bench.session import Figure, Session
from feedrate.schema.errors import TrialError
from feedrate.store.bench_record import AccountedScript, Told

SOURCE = Path(__file__).with_name("planted_rows.py")
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
POINTS, LINE_POINTS, LINES = 3, 5, 0.9
"""Most that the share of a row, and of a line of it, may be off; the share of the lines for which that must be so."""


def planned() -> list[tuple[dict[str, float], bool]]:
    """What is planted, and whether it computes: each row by itself, then pairs of random sizes."""
    alone = [({row: ms}, computes) for row, ms in PLANTED.items() for computes in (False, True)]
    alone = [(plan, computes) for plan, computes in alone if not computes or plan.keys().isdisjoint(_FIXED)]
    drawn = random.Random(1)
    pairs = [pair for pair in combinations(PLANTED, 2) if sum(row in LOADING for row in pair) < 2]
    return alone + [
        ({row: round(PLANTED[row] * drawn.uniform(0.4, 1.2), 1) for row in pair}, drawn.random() < 0.5)
        for pair in drawn.sample(pairs, PAIRS)
    ]


_FIXED = ("receiving", "garbage", "starting")
"""Rows whose cost is what it is, or is of no one line."""


def measure(session: Session) -> Iterator[Figure]:
    """Run every planted script once; about a quarter of an hour."""
    script, scripts = Path(shutil.copy(SOURCE, session.folder)), planned()
    session.console.print(f"Account: {len(scripts)} scripts with time planted in their rows ...")
    for plan, computes in track(scripts, "", console=session.console, transient=True):
        session.accounted.append(watch(script, plan, computes))
    yield from judge(session.accounted)


def watch(script: Path, plan: Mapping[str, float], computes: bool, **options: object) -> AccountedScript:
    """Run a planted script below feedrate, and put what both say side by side."""
    out, workers = script.with_suffix(".json"), 0 if "here" in plan else 2
    given = {"plan": json.dumps(plan), "workers": workers, "out": out, **({"computes": True} if computes else {})}
    report = watched([sys.executable, "-W", "ignore", str(script), *words_of(**given, **options)])
    clock = json.loads(out.read_text(encoding="utf-8"))
    if report.account is None or report.cause is None:
        raise TrialError(f"bench: feedrate run measured nothing of {dict(plan)}: {'; '.join(report.notes)}")
    rows = report.account.rows
    loops = sum(took for row, took in rows.items() if row not in ONCE)
    truth = {row: clock["rows"]["waiting" if row in LOADING and row != "starting" else row] for row in plan}
    within = truth | {"waiting": clock["rows"]["prepared"]}
    shared = {row: ("waiting", "receiving") if row in ("waiting", "receiving") else (row,) for row in plan}
    return AccountedScript(
        planted=dict(plan),
        computes=computes,
        num_workers=workers,
        rest_share=abs(rows.get("rest", 0)) / report.account.wall_ns,
        largest=max((row for row in rows if row not in ONCE), key=rows.__getitem__),
        cause=report.cause.row,
        rows={
            row: Told(said=sum(rows.get(one, 0) for one in shared[row]) / loops, truth=truth[row] / clock["loops"])
            for row in plan
        },
        lines={row: line for row in plan if (line := _line(report, row, clock["lines"].get(row), within[row]))},
    )


def _line(report: Report, row: str, spent: float | None, took: float) -> Told | None:
    """The share of a row's planted line; None of a row that has none, 0 where another line is named first."""
    if row in _FIXED:
        return None
    first = next(iter(report.lines.get(row, ())), None)
    named = first is not None and first.code.rpartition("# ")[2].split().count(row) > 0
    return Told(said=first.share if first and named else 0.0, truth=min(1.0, spent / took) if spent else 1.0)


def judge(scripts: Sequence[AccountedScript]) -> Iterator[Figure]:
    """Judge how often the row and its line are the true ones, and how far their shares are off."""
    rest = max(script.rest_share for script in scripts)
    yield Figure(
        "rows of the account add up to the wall clock", "within 1 %", f"at worst {100 * rest:.2f} %", rest <= 0.01
    )
    largest = [script.largest in _largest(script) for script in scripts]
    causes = [script.cause in _causes(script) for script in scripts if _causes(script)]
    for what, right in (
        ("the largest row of the account is the one that was planted", largest),
        ("what can go and was planted is what holds the script back", causes),
    ):
        enough = sum(right) >= OFTEN * len(right)
        yield Figure(what, f"in {100 * OFTEN:g} % of the scripts", f"{sum(right)} of {len(right)}", enough)
    yield _within("share of a planted row", [share for script in scripts for share in script.rows.values()], POINTS, 1)
    lines = [line for script in scripts for line in script.lines.values()]
    first = sum(line.said > 0 for line in lines)
    target = f"in {100 * OFTEN:g} % of the rows"
    yield Figure(
        "the planted line is the first of its row", target, f"{first} of {len(lines)}", first >= OFTEN * len(lines)
    )
    yield _within("its share of the row", lines, LINE_POINTS, LINES)


def _within(what: str, shares: Sequence[Told], points: float, least: float) -> Figure:
    errors = [100 * (share.said - share.truth) for share in shares]
    within = sum(abs(error) <= points for error in errors)
    target = f"within {points:g} points" + ("" if least == 1 else f" in {100 * least:g} % of cases")
    spread = f"worst {max(errors, key=abs):+.1f} points"
    return Figure(what, target, f"{within} of {len(errors)} ({spread})", within >= least * len(errors))


def _largest(script: AccountedScript, among: Sequence[str] = ()) -> set[str]:
    """The planted rows that may be called the largest."""
    shares = {row: share.truth for row, share in script.rows.items() if not among or row in among}
    return {row for row, share in shares.items() if share >= max(shares.values()) - NEAR}


def _causes(script: AccountedScript) -> set[str]:
    """What may be named: of the planted rows that can go the largest; none where only the step is planted."""
    removable = [row for row in script.rows if row not in STEP]
    return _largest(script, removable) if removable else set()
