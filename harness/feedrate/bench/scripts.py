"""How accurate is what ``feedrate run`` says of a training script, and what does it cost the script?

Accuracy: planted scripts (``planted``) that cover what a loader can be. Pace and wait are held against the script's
clock over the same steps (its last ones, as feedrate leaves a warm-up out), the hot line against its share of
preparing, and the pace that is predicted for other numbers of workers against the script that runs with them. Ranges of
predictions are those that scripts of all other kinds make (``attach.predictions``).

Cost: a script below ``feedrate run``, and below ``feedrate run --no-lines``, whose every other epoch runs with feedrate
away, by the script's clock: starts of a process differ by several per cent, epochs of one do not. Steps and samples
compute, so that what feedrate takes of a core is missed. Where others share the machine, its pace changes by far more
than the cost: a step is held against what its forward pass computes, too, the same in each. What feedrate's other
processes take of the cores is no part of that figure.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import signal
import sys
import time
import timeit
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from hashlib import pbkdf2_hmac
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.progress import track

from feedrate.attach.predictions import CONFIDENCE, advised
from feedrate.attach.report import Report
from feedrate.attach.run import run
from feedrate.bench.session import Figure, Session, judge_count, judge_errors, judge_ratio, run_planted
from feedrate.schema.errors import TrialError
from feedrate.store.bench_record import WatchedScript, predictions

HOT_LINE = "# the hot line"
WORKERS, SPAWNED = (0, 1, 2, 4, 8), (1, 2, 8)
OFTEN = 0.95
"""Least share of the scripts whose hot line must be named first, and whose share of preparing must be right."""
STEPS = {0: 1200, 1: 900, 2: 1000, 4: 1500, 8: 2600}
"""Of a script, by its workers: long enough for some hundred samples of the lines that prepare its batches."""
INSIDE, LEAST_ADVISED = 0.85, 20
"""Share of the recommendations that must keep their range, and how many of them there must be."""
AGAIN = 2
"""How often a setting that is recommended runs once more; the median of its runs counts."""
WARM = 2
"""Of the pairs of epochs of a script whose cost is measured, those that are left out at the beginning."""
Turn = Mapping[str, Mapping[str, Sequence[float]]]
"""Seconds of steps with feedrate and without: ``walls``, and ``forward`` of those."""


class Costs(NamedTuple):
    """A script but for its workers."""

    label: str
    options: Mapping[str, object]


_SLOW = {"sample-ms": 3, "step-ms": 2}
_HEAVY, _STREAM, _COMPUTES = {"shape": "heavy"}, {"kind": "iterable"}, {"step-computes": True}
COSTS = (
    Costs("samples sleep, step sleeps; map", {"computes": 0}),
    Costs("samples compute, step sleeps; iterable", {"computes": 1, **_STREAM}),
    Costs("samples do both, step computes; map", {"computes": 0.5, **_COMPUTES}),
    Costs("heavy-tailed samples sleep, step computes; map", {"computes": 0, **_HEAVY, **_COMPUTES}),
    Costs("heavy-tailed samples compute, step sleeps; map", {"computes": 1, **_HEAVY}),
    Costs("heavy-tailed samples do both, step sleeps; iterable", {"computes": 0.5, **_HEAVY, **_STREAM}),
    Costs("samples sleep, collating computes; map", {"computes": 0, "sample-ms": 0.5, "collate-ms": 1}),
    Costs("samples sleep 2 ms, step sleeps; map", {"computes": 0, "sample-ms": 2}),
    Costs("heavy-tailed samples sleep 3 ms, step sleeps 2 ms; iterable", {"computes": 0, **_SLOW, **_HEAVY, **_STREAM}),
    Costs("samples sleep, step sleeps 0.5 ms; map", {"computes": 0, "sample-ms": 0.4, "step-ms": 0.5}),
    Costs("samples compute, step computes 12 ms; map", {"computes": 1, "step-ms": 12, **_COMPUTES}),
    Costs("batches of 3 MB compute, step sleeps; map", {"computes": 1, "sample-ms": 2, "floats": 100_000}),
)
_SHORT = Costs("steps of 1 ms, cheap samples, no workers", {"turns": 400, "steps": 400, "step-ms": 1, "sample-ms": 0})
_LONG = Costs("steps of 5 ms, 2 workers", {"turns": 100, "steps": 300, "computes": 1, "sample-ms": 0.5, "workers": 2})
COSTLY = (
    (_SHORT, "feedrate run --no-lines", 1.015),
    (_SHORT, "feedrate run", 1.03),
    (_LONG, "feedrate run --no-lines", 1.01),
    (_LONG, "feedrate run", 1.03),
)
"""Scripts, how they are run, and most that a step may take of one without feedrate."""


def planned() -> list[tuple[Costs, int, str]]:
    """The scripts to run in a random order: costs, workers, and how those start.

    Those of one kind follow one another: a forecast is held against the minutes that it was made in, as the same script
    was seen to run at 0.6 to 1.4 of its pace of some hours before (November 2026).
    """
    scripts = [(costs, workers, "fork") for costs, workers in product(COSTS, WORKERS)]
    scripts += [(costs, workers, "spawn") for costs, workers in product(COSTS[:2] + COSTS[4:6], SPAWNED)]
    draw = random.Random(0)
    kinds = draw.sample(COSTS, len(COSTS))
    return sorted(draw.sample(scripts, len(scripts)), key=lambda script: kinds.index(script[0]))


@cache
def hashes_per_ms() -> int:
    """Hashes that this machine computes in a millisecond: the best of some tries."""
    compute = partial(pbkdf2_hmac, "sha256", b"", b"", 10_000)
    return round(10 / min(timeit.repeat(compute, timer=time.thread_time, number=1, repeat=20)))


class Planted:
    """The planted script, copied to where nothing shadows the standard library."""

    def __init__(self, folder: Path) -> None:
        self.script = Path(shutil.copy(Path(__file__).with_name("planted.py"), folder))
        self._out = folder / "planted.json"

    def options(self, **options: object) -> list[str]:
        """Options of the script as they are typed; what is True is a flag."""
        given = {"out": self._out, "per-ms": hashes_per_ms(), **options}
        return list(chain.from_iterable((f"--{k}", *([] if v is True else [str(v)])) for k, v in given.items()))

    def command(self, **options: object) -> list[str]:
        """How the script is started."""
        return [sys.executable, "-W", "ignore", str(self.script), *self.options(**options)]

    def watched(self, **options: object) -> tuple[Report, Any]:
        """Run the script below feedrate: the report, and what the script wrote. An interrupt of it is one of ours."""
        ended = run(self.command(**options))
        if ended.returncode in (-signal.SIGINT, -signal.SIGTERM):
            raise KeyboardInterrupt
        if ended.returncode:
            raise TrialError(f"bench: a planted script ended with status {ended.returncode}")
        return ended.report, self.written()

    def turns(self, costs: Costs, no_lines: bool) -> list[Turn]:
        """Run a script below ``feedrate run``, which it keeps away in every other epoch: seconds of their steps."""
        script = self.command(**{**costs.options, "step-computes": True})
        options = ("--results", str(self._out.parent), *(("--no-lines",) if no_lines else ()))
        run_planted("-m", "feedrate", "run", *options, "--", *script)
        turns: list[Turn] = self.written()
        return turns

    def written(self) -> Any:
        """What the script wrote by its own clock."""
        return json.loads(self._out.read_text(encoding="utf-8"))


def measure(session: Session) -> Iterator[Figure]:
    """Run every planted script once, then what is recommended, then those whose cost is measured; about an hour."""
    planted, scripts = Planted(session.folder), planned()
    session.console.print(f"Scripts: {len(scripts)} planted ones beside a clock of their own ...")
    for costs, workers, method in track(scripts, "", console=session.console, transient=True):
        session.scripts.append(watch(planted, costs, workers, method))
    by_label = {costs.label: costs for costs in COSTS}
    # One run is no truth: the same script was seen to run at 69, 85 and 91 steps/s on one day (November 2026).
    settings = sorted({(advice.script.costs, advice.num_workers) for advice in advised(session.scripts)})
    for label, workers in AGAIN * settings:
        session.scripts.append(watch(planted, by_label[label], workers, "fork"))
    yield from judge_accuracy(session.scripts)
    session.console.print("Scripts: with feedrate and without, in turns ...")
    for costs, how, most in track(COSTLY, "", console=session.console, transient=True):
        yield from judge_cost(f"{how}; {costs.label}", most, planted.turns(costs, "--no-lines" in how))


def watch(planted: Planted, costs: Costs, workers: int, method: str, **options: object) -> WatchedScript:
    """Run a planted script below feedrate, and put what both say side by side."""
    started = {"method": method} if workers else {}
    steps = STEPS[max(count for count in STEPS if count <= workers)]
    report, written = planted.watched(**{**costs.options, "workers": workers, "steps": steps, **started, **options})
    clock = {name: np.array(written[name]) for name in ("walls", "waits", "prepared", "hot")}
    pacing = report.pacing
    if pacing is None:
        raise TrialError(f"bench: feedrate run measured nothing of {costs.label}: {'; '.join(report.notes)}")
    last = {name: float(seconds[-pacing.steps :].sum()) for name, seconds in clock.items()}
    hot = [line for line in report.preparing if line.code.endswith(HOT_LINE)]
    others = report.predictions.others if report.predictions else ()
    return WatchedScript(
        costs=costs.label,
        num_workers=workers,
        start_method=method if workers else None,
        steps=pacing.steps,
        steps_per_s=pacing.steps_per_s.value,
        script_steps_per_s=pacing.steps / last["walls"],
        wait_share=pacing.wait_share.value,
        script_wait_share=last["waits"] / last["walls"],
        hot_first=bool(hot) and hot[0] is report.preparing[0],
        hot_share=sum(line.share for line in hot),
        script_hot_share=float(clock["hot"].sum() / clock["prepared"].sum()),
        predicted={other.num_workers: other.modelled for other in others},
        cause=report.cause.row if report.cause else "",
    )


def judge_accuracy(scripts: Sequence[WatchedScript]) -> Iterator[Figure]:
    """Judge how many scripts are off by more than they may be: in pace, wait, hot line and prediction."""
    waits = [100 * (script.wait_share - script.script_wait_share) for script in scripts]
    hot = [100 * (script.hot_share - script.script_hot_share) for script in scripts]
    paces = [script.pace_error_pct for script in scripts]
    predicted = [pace.error_pct for pace in predictions(scripts)]
    yield judge_errors("pace of a script against its own clock", 1, "%", 1, paces)
    yield judge_errors("share of its time that it waits for data", 2, "points", 1, waits)
    yield judge_errors("share of preparing that its hot line takes", 5, "points", OFTEN, hot)
    yield judge_errors("pace with another number of workers, predicted from one run", 10, "%", 0.8, predicted)
    first = [script.hot_first for script in scripts]
    yield judge_count("the planted hot line is the first that is named", OFTEN, "the scripts", first)
    yield judge_recommended(scripts)


def judge_recommended(scripts: Sequence[WatchedScript]) -> Figure:
    """Judge how often a script with the recommended number of workers ran at a pace inside the range it was told."""
    ran = [(advice, advice.measured) for advice in advised(scripts) if advice.measured]
    inside = [advice.kept for advice, _ in ran]
    ratios = [advice.pace.value / measured for advice, measured in ran] or [math.nan]
    note = (
        f" (predicted ÷ measured: median {np.median(ratios):.2f}, {min(ratios):.2f}–{max(ratios):.2f}; "
        f"stated: {100 * CONFIDENCE:g} %)"
    )
    what = "pace with the recommended workers lies in the predicted range"
    figure = judge_count(what, INSIDE, f"{LEAST_ADVISED} scripts or more", inside, note)
    return figure._replace(met=figure.met and len(inside) >= LEAST_ADVISED)


def judge_cost(script: str, most: float, turns: Sequence[Turn]) -> Iterator[Figure]:
    """Judge paired ratios of step times with feedrate to those without, each over nine tenths of an epoch.

    Then the same with the forward pass of each step as the unit of time.
    """

    def mean(seconds: Sequence[float]) -> float:
        return float(np.mean(seconds[len(seconds) // 10 :]))

    walls, units = (
        [mean(turn["with"][name]) / mean(turn["without"][name]) for turn in turns[WARM:]]
        for name in ("walls", "forward")
    )
    counted = f"pairs of {len(turns[0]['with']['walls']):,} steps"
    yield judge_ratio(f"step time, {script} ÷ without", most, walls, counted)
    ratios = [wall / unit for wall, unit in zip(walls, units, strict=True)]
    yield judge_ratio(f"step time in forward passes, {script} ÷ without", most, ratios, counted)
