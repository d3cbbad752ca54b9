"""Does ``feedrate tune`` find what is best, and how does it compare with loadtune 0.3.0?

Simulated searches (``simulated_searches``) say how often. Here it tunes planted workloads (``planted_tuning``), and so
does loadtune (Marija Efremova, MIT) from the same present setting, with its
defaults. feedrate goes on until its setting is known to be near enough to the best, at most for ``BUDGET_S``; then once
more, and is stopped within the time that loadtune took: what does it recommend by then? The truth is measured by a
process without either: every setting once, and those that may be the best, that were recommended or were present in
many blocks. Regret is how much faster than the recommended setting the best one is. The best of several measured means
is too good by chance: so it is chosen by one half of the blocks and measured by the other (``analysis.crossfit``).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.progress import track

from feedrate.analysis.blocks import Floats
from feedrate.analysis.crossfit import regret_pct
from feedrate.attach.space import Asked, Machine, Setting, settings
from feedrate.bench import simulated_searches
from feedrate.bench.scripts import hashes_per_ms
from feedrate.bench.session import Figure, Session
from feedrate.bench.simulated_searches import judge_trials
from feedrate.bench.statistics import noise
from feedrate.machine.identity import usable_cores
from feedrate.plan.search import GRID_BLOCKS
from feedrate.schema.errors import TrialError
from feedrate.store import runs
from feedrate.store.bench_record import Advice, TunedWorkload

SOURCE = Path(__file__).with_name("planted_tuning.py")
LOADTUNE = "loadtune==0.3.0"
BUDGET_S, SHARE = 120.0, 0.7
"""After so long feedrate begins no other trial; and after so much of loadtune's time, as its last trial is to end
within that."""
SCREEN_S, BEST = 0.4, 3
"""Window of the block in which every setting runs, and how many of its fastest may be the best."""
WINDOW_S, BLOCKS = 1.0, 14
"""Those of the settings that may be the best."""
REGRET_PCT, OFTEN = 3.0, 0.95
EQUAL_PCT = 1.0
"""Regrets that differ by less are equal."""
_BEST = re.compile(r"best overall: workers=(\d+)(?:, prefetch=(\d+))?")
"""What loadtune prints of a setting that is faster than the present one."""


class Costs(NamedTuple):
    """A workload: what it does in words, and what differs from the defaults of ``planted_tuning.COSTS``."""

    said: str
    planted: Mapping[str, object]


COSTS = (
    Costs("samples sleep 4 ms; step sleeps 4 ms", {"read_ms": 4, "step_ms": 4, "num_workers": 2}),
    Costs("samples compute 1.5 ms; step sleeps 5 ms", {"decode_ms": 1.5}),
    Costs("samples sleep 2 ms and compute 0.5 ms; step sleeps 6 ms", {"read_ms": 2, "decode_ms": 0.5, "step_ms": 6}),
    Costs(
        "samples sleep 1 ms, collating computes 8 ms; step sleeps 5 ms",
        {"read_ms": 1, "collate_ms": 8, "num_workers": 1},
    ),
    Costs(
        "samples sleep 3 ms, heavy-tailed; step computes 8 ms",
        {"read_ms": 3, "tail": 1.0, "step_ms": 8, "step_computes": True, "num_workers": 2},
    ),
    Costs(
        "samples compute 0.02 ms; step computes 10 ms",
        {"decode_ms": 0.02, "step_ms": 10, "step_computes": True, "num_workers": 4},
    ),
)


class Tuners:
    """The programs that tune, and the workload that they are given."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._script = folder / SOURCE.name
        self._script.write_bytes(SOURCE.read_bytes())
        self._packages = folder / "packages"

    def installed(self) -> bool:
        """Bring loadtune into a folder of its own; whether that worked."""
        words = ("install", "--quiet", "--no-deps", "--target", str(self._packages), LOADTUNE)
        return not subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, check=False).returncode

    def feedrate(self, costs: Costs, budget_s: float) -> tuple[dict[str, Any], Advice]:
        """Have feedrate tune a workload, for so long at most: what it says, and what it recommends."""
        out = self._folder / "tuned.json"
        words = ("--budget", f"{budget_s:.0f}s", "--results", str(self._folder), "--json", str(out))
        took_s = self._run(costs, "feedrate", "tune", *words, f"{self._script}:make")[1]
        told: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        given = told["recommended"]
        return told, Advice(setting=str(_window(given["num_workers"], given.get("prefetch_factor"))), took_s=took_s)

    def loadtune(self, costs: Costs) -> Advice:
        """Have loadtune tune a workload: the present setting where it finds nothing faster."""
        workers = int(str(costs.planted.get("num_workers", 0)))
        words = ("tune", str(self._script), "--workers", str(workers), "--no-plots", "--out", "loadtune.md")
        printed, took_s = self._run(costs, "loadtune.cli", *words)
        best = _BEST.search(printed)
        setting = _window(int(best[1]), int(best[2] or 2)) if best else _window(workers)
        return Advice(setting=str(setting), took_s=took_s)

    def truth(self, costs: Costs, asked: Sequence[Setting], blocks: int, seconds: float) -> Floats:
        """Measure settings: logs of the seconds that a step takes, settings × blocks."""
        pairs = [(setting.num_workers, setting.prefetch_factor) for setting in asked]
        given = json.dumps({"settings": pairs, "blocks": blocks, "seconds": seconds})
        return np.log(np.array(json.loads(self._start(costs, [str(self._script)], given)), dtype=np.float64))

    def _run(self, costs: Costs, module: str, *words: str) -> tuple[str, float]:
        begun = time.perf_counter()
        return self._start(costs, ["-m", module, *words]), time.perf_counter() - begun

    def _start(self, costs: Costs, words: Sequence[str], given: str = "") -> str:
        """Start a Python below the folder: what it prints."""
        planted = json.dumps({"per_ms": hashes_per_ms(), **costs.planted})
        paths = os.pathsep.join([str(self._packages), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, "-W", "ignore", *words],
            input=given,
            capture_output=True,
            text=True,
            cwd=self._folder,
            env=os.environ | {"FEEDRATE_PLANTED": planted, "PYTHONPATH": paths},
            check=False,
        )
        if done.returncode in (-signal.SIGINT, -signal.SIGTERM):
            raise KeyboardInterrupt
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [""])[-1]
            raise TrialError(f"bench: python {' '.join(words)} ended with status {done.returncode}: {last}")
        return done.stdout


def _window(num_workers: int, prefetch_factor: int | None = None) -> Setting:
    """The setting whose window is measured."""
    return Setting(num_workers, (prefetch_factor or 2) if num_workers else None)


def measure(session: Session) -> Iterator[Figure]:
    """Simulate searches, then tune every planted workload; about twenty minutes."""
    session.console.print("Tuning: simulating searches whose truth is known ...")
    recorded = noise(runs.runs(session.results), session.machine_id)
    origin = f"trials vary as in run {recorded.run.manifest.run_id}" if recorded.run else recorded.origin
    yield from simulated_searches.judge(simulated_searches.measure(recorded), origin)
    tuners = Tuners(session.folder)
    other = tuners.loadtune if tuners.installed() else None
    session.console.print(f"Tuning: {len(COSTS)} planted workloads, and what their settings truly take ...")
    for costs in track(COSTS, "", console=session.console, transient=True):
        session.tuned.append(tune(tuners, costs, other))
    yield from judge(session.tuned)
    yield from compare(session.tuned)


def tune(
    tuners: Tuners,
    costs: Costs,
    other: Callable[[Costs], Advice] | None,
    *,
    blocks: int = BLOCKS,
    seconds: tuple[float, float] = (SCREEN_S, WINDOW_S),
) -> TunedWorkload:
    """Have both tune a workload, and measure what its settings truly take.

    Args:
        tuners: the programs.
        costs: the workload.
        other: what asks loadtune; None where it was not to be had.
        blocks: of the settings that may be the best.
        seconds: of a window: of the first block with all settings, and of those.

    Raises:
        TrialError: one of the programs failed.
    """
    told, ours = tuners.feedrate(costs, BUDGET_S)
    theirs = other(costs) if other else None
    stopped = tuners.feedrate(costs, SHARE * theirs.took_s)[1] if theirs else None
    present = _window(told["present"]["num_workers"], told["present"].get("prefetch_factor"))
    machine = Machine(len(usable_cores()), None, None)
    every = settings(present, Asked(), machine, cuda=False)
    screened = tuners.truth(costs, every, 1, seconds[0])[:, 0]
    named = {str(present), *(each.setting for each in (ours, theirs, stopped) if each)}
    fastest = {str(every[place]) for place in np.argsort(screened)[:BEST]}
    asked = [setting for setting in every if str(setting) in named | fastest]
    logs = tuners.truth(costs, asked, blocks, seconds[1])
    return TunedWorkload(
        costs=costs.said,
        present=str(present),
        settings=told["settings"],
        trials=told["trials"],
        bound_pct=told["bound_pct"],
        feedrate=ours,
        loadtune=theirs,
        stopped=stopped,
        blocks=blocks,
        steps_per_s={str(setting): tuple(np.exp(-row).tolist()) for setting, row in zip(asked, logs, strict=True)},
    )


def judge(tuned: Sequence[TunedWorkload]) -> Iterator[Figure]:
    """Judge in how many workloads feedrate recommends a good setting, and how many trials it takes."""
    regrets = [regret_pct(each.steps_per_s, each.feedrate.setting) for each in tuned]
    good = [regret <= REGRET_PCT for regret in regrets]
    spread = f"regret: median {np.median(regrets):.1f} %, worst {max(regrets):.1f} %"
    yield Figure(
        f"feedrate tune recommends a setting within {REGRET_PCT:g} % of the best, planted workloads",
        f"in {100 * OFTEN:g} % of them",
        f"{sum(good)} of {len(good)} ({spread})",
        sum(good) >= OFTEN * len(good),
    )
    shares = [each.trials / (each.settings * GRID_BLOCKS) for each in tuned]
    yield judge_trials("feedrate tune, on planted workloads,", shares)


def compare(tuned: Sequence[TunedWorkload]) -> Iterator[Figure]:
    """Judge in how many workloads feedrate's setting is no slower than loadtune's, and is found sooner."""
    pairs = [(each, each.loadtune, each.stopped or each.feedrate) for each in tuned if each.loadtune]
    regrets = np.array(
        [
            [regret_pct(each.steps_per_s, advice.setting) for advice in (each.feedrate, stopped, theirs)]
            for each, theirs, stopped in pairs
        ]
    ).reshape(-1, 3)
    times = np.array([[each.feedrate.took_s, stopped.took_s] for each, _, stopped in pairs]).reshape(-1, 2)
    times /= np.array([[theirs.took_s] for _, theirs, _ in pairs]).reshape(-1, 1)
    good, sooner = regrets[:, :2] <= regrets[:, 2:] + EQUAL_PCT, times < 1
    equal = int((np.abs(regrets[:, 0] - regrets[:, 2]) <= EQUAL_PCT).sum())
    ends = f"its setting is as fast as loadtune's, within {EQUAL_PCT:g} %"
    for what, often, held, note in (
        (ends, True, good[:, 0], f"{equal} equal"),
        ("it takes less time than loadtune", False, sooner[:, 0], "median {:.1f} times as long"),
        ("both", False, good[:, 0] & sooner[:, 0], ""),
        ("both, where it is stopped within loadtune's time", False, good[:, 1] & sooner[:, 1], ""),
    ):
        target = f"in {100 * OFTEN:g} % of the workloads" if often else "in most of the workloads"
        if not pairs:
            yield Figure(f"feedrate tune: {what}", target, f"{LOADTUNE} could not be installed", None)
            continue
        said = f" ({note.format(np.median(times[:, 0]))})" if note else ""
        met = held.mean() >= OFTEN if often else held.mean() > 0.5
        yield Figure(f"feedrate tune: {what}", target, f"{held.sum()} of {len(held)}{said}", bool(met))
