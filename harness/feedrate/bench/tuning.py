"""Does ``feedrate tune`` find what is best, and does it beside loadtune 0.3.0 (Marija Efremova, MIT)?

It tunes planted workloads (``planted``) until a setting is known to be near enough to the best, at most for
``BUDGET_S``. So does loadtune, with its defaults and from the same setting; then feedrate once more, within the time
that loadtune took. The truth is measured by a process without feedrate: every setting once, and those that may be the
best, that was recommended or was present in many blocks. Regret is how much faster than the recommended setting the
best one is. The best of several measured means is too good by chance: so it is chosen by one half of the blocks and
measured by the other (``analysis.crossfit``).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from feedrate.analysis.crossfit import regret_pct
from feedrate.analysis.estimate import Floats
from feedrate.attach.space import Asked, Machine, Setting, settings
from feedrate.bench.scripts import Costs, Planted
from feedrate.bench.session import Figure, Session, run_planted
from feedrate.machine.identity import usable_cores
from feedrate.store.bench_record import Advice, TunedWorkload

LOADTUNE = "loadtune==0.3.0"
BUDGET_S, SHARE = 120.0, 0.7
"""After so long feedrate begins no other trial, or after so much of loadtune's time: its last trial is to end within
that."""
SCREEN_S, BEST = 0.4, 3
"""Window of the block in which every setting runs, and how many of its fastest may be the best."""
WINDOW_S, BLOCKS = 1.0, 14
"""Those of the settings that may be the best."""
EPOCH_STEPS = 25_000
"""So many that starts of epochs do not count."""
REGRET_PCT, OFTEN = 3.0, 0.95
COSTS = (
    Costs("samples sleep 4 ms; step sleeps 4 ms", {"sample-ms": 4, "step-ms": 4, "workers": 2}),
    Costs("samples compute 1.5 ms; step sleeps 5 ms", {"sample-ms": 1.5, "computes": 1}),
    Costs("samples sleep 2 ms and compute 0.5 ms; step sleeps 6 ms", {"sample-ms": 2.5, "computes": 0.2, "step-ms": 6}),
    Costs("samples sleep 1 ms, collating computes 8 ms; step sleeps 5 ms", {"collate-ms": 8, "workers": 1}),
    Costs(
        "samples sleep 3 ms, heavy-tailed; step computes 8 ms",
        {"sample-ms": 3, "shape": "heavy", "step-ms": 8, "step-computes": True, "workers": 2},
    ),
    Costs(
        "samples compute 0.02 ms; step computes 10 ms",
        {"sample-ms": 0.02, "computes": 1, "step-ms": 10, "step-computes": True, "workers": 4},
    ),
)


def measure(session: Session) -> list[Figure]:
    """Tune every planted workload and measure what its settings truly take; about 35 minutes."""
    planted = Planted(session.folder)
    packages = session.folder / "loadtune"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(packages), LOADTUNE]
    if subprocess.run(install, capture_output=True, check=False).returncode:
        session.console.print(f"{LOADTUNE} could not be installed: feedrate tune stands alone.")
    session.console.print(f"Tuning: {len(COSTS)} planted workloads, and what their settings truly take ...")
    for costs in track(COSTS, "", console=session.console, transient=True):
        session.tuned.append(tune(planted, costs, packages if packages.is_dir() else None))
    return [judge(session.tuned)]


def tune(
    planted: Planted,
    costs: Costs,
    loadtune: Path | None,
    *,
    blocks: int = BLOCKS,
    seconds: tuple[float, float] = (SCREEN_S, WINDOW_S),
) -> TunedWorkload:
    """Have feedrate tune a workload, and measure what its settings truly take; a TrialError where either fails.

    ``loadtune`` is the folder that it was installed in: it tunes the same workload. ``seconds`` are those of a window:
    of the first block with all settings, and of the ``blocks`` of those that may be the best.
    """
    options = planted.options(steps=EPOCH_STEPS, **costs.options)
    tuned, advice = _feedrate(planted, options, BUDGET_S)
    present = _setting(tuned["present"])
    other = _loadtune(planted, options, present, loadtune) if loadtune else None
    stopped = _feedrate(planted, options, SHARE * other.took_s)[1] if other else None
    choices = settings(present, Asked(), Machine(len(usable_cores()), None, None), cuda=False)
    screened = _truth(planted, options, choices, 1, seconds[0])[:, 0]
    fastest = {str(choices[at]) for at in np.argsort(screened)[:BEST]}
    asked = {str(present), *fastest, *(tuner.setting for tuner in (advice, other, stopped) if tuner)}
    measured = [setting for setting in choices if str(setting) in asked]
    logs = _truth(planted, options, measured, blocks, seconds[1])
    return TunedWorkload(
        costs=costs.label,
        present=str(present),
        settings=tuned["settings"],
        trials=tuned["trials"],
        bound_pct=tuned["bound_pct"],
        feedrate=advice,
        loadtune=other,
        stopped=stopped,
        blocks=blocks,
        steps_per_s={str(setting): tuple(np.exp(-row).tolist()) for setting, row in zip(measured, logs, strict=True)},
    )


def _feedrate(planted: Planted, options: Sequence[str], budget_s: float) -> tuple[dict[str, Any], Advice]:
    """Have feedrate tune a workload for so long: its report, and the setting whose window is measured."""
    folder = planted.script.parent
    words = ("--budget", f"{budget_s:.0f}s", "--results", str(folder), "--json", str(folder / "tuned.json"))
    command = ("-m", "feedrate", "tune", *words, f"{planted.script}:make")
    ended = run_planted(*command, environment={"FEEDRATE_PLANTED": shlex.join(options)})
    tuned: dict[str, Any] = json.loads((folder / "tuned.json").read_text(encoding="utf-8"))
    return tuned, Advice(setting=str(_setting(tuned["recommended"])), took_s=ended.took_s)


def _loadtune(planted: Planted, options: Sequence[str], present: Setting, packages: Path) -> Advice:
    """Have loadtune tune it from the present setting, which stays where it prints nothing faster."""
    words = ("--workers", str(present.num_workers), "--no-plots", "--out", str(planted.script.parent / "loadtune.md"))
    paths = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH"))))
    environment = {"FEEDRATE_PLANTED": shlex.join(options), "PYTHONPATH": paths}
    ended = run_planted("-m", "loadtune.cli", "tune", str(planted.script), *words, environment=environment)
    best = re.search(r"best overall: workers=(\d+)(?:, prefetch=(\d+))?", ended.stdout)
    setting = _setting({"num_workers": int(best[1]), "prefetch_factor": int(best[2] or 2)}) if best else present
    return Advice(setting=str(setting), took_s=ended.took_s)


def _setting(knobs: Mapping[str, Any]) -> Setting:
    """The setting whose window is measured."""
    workers = knobs["num_workers"]
    return Setting(workers, (knobs.get("prefetch_factor") or 2) if workers else None)


def _truth(planted: Planted, options: Sequence[str], asked: Sequence[Setting], blocks: int, seconds: float) -> Floats:
    """Measure settings: logs of the seconds that a step takes, settings × blocks."""
    pairs = json.dumps([(setting.num_workers, setting.prefetch_factor) for setting in asked])
    run_planted(str(planted.script), *options, "--settings", pairs, "--blocks", str(blocks), "--seconds", str(seconds))
    return np.log(np.array(planted.written(), dtype=np.float64))


def judge(tuned: Sequence[TunedWorkload]) -> Figure:
    """Judge in how many workloads feedrate recommends a good setting."""
    regrets = [regret_pct(workload.steps_per_s, workload.feedrate.setting) for workload in tuned]
    good = [regret <= REGRET_PCT for regret in regrets]
    trials = np.median([workload.trials / workload.settings for workload in tuned])
    return Figure(
        f"feedrate tune recommends a setting within {REGRET_PCT:g} % of the best, planted workloads",
        f"in {100 * OFTEN:g} % of them",
        f"{sum(good)} of {len(good)} (regret: median {np.median(regrets):.1f} %, worst {max(regrets):.1f} %; "
        f"{trials:.1f} trials a setting)",
        sum(good) >= OFTEN * len(good),
    )
