"""Does ``feedrate tune`` find what is best?

It tunes planted workloads (``planted``) until a setting is known to be near enough to the best, at most for
``BUDGET_S``. The truth is measured by a process without feedrate: every setting once, and those that may be the best,
that was recommended or was present in many blocks. Regret is how much faster than the recommended setting the
best one is. The best of several measured means is too good by chance: so it is chosen by one half of the blocks and
measured by the other (``analysis.crossfit``).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.progress import track

from feedrate.analysis.crossfit import regret_pct
from feedrate.analysis.estimate import Floats
from feedrate.attach.space import Asked, Machine, Setting, settings
from feedrate.bench.scripts import OFTEN, Costs, Planted
from feedrate.bench.session import Figure, Session, judge_count, run_planted
from feedrate.machine.identity import usable_cores
from feedrate.store.bench_record import Advice, TunedWorkload

BUDGET_S = 120.0
"""After so long no other trial begins."""
SCREEN_S, BEST = 0.4, 3
"""Window of the block in which every setting runs, and how many of its fastest may be the best."""
WINDOW_S, BLOCKS = 1.0, 14
"""Those of the settings that may be the best."""
EPOCH_STEPS = 25_000
"""So many that starts of epochs do not count."""
REGRET_PCT = 3.0
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
    """Tune every planted workload and measure what its settings truly take; about 20 minutes."""
    planted = Planted(session.folder)
    session.console.print(f"Tuning: {len(COSTS)} planted workloads, and what their settings truly take ...")
    for costs in track(COSTS, "", console=session.console, transient=True):
        session.tuned.append(tune(planted, costs))
    return [judge(session.tuned)]


def tune(
    planted: Planted, costs: Costs, *, blocks: int = BLOCKS, seconds: tuple[float, float] = (SCREEN_S, WINDOW_S)
) -> TunedWorkload:
    """Have feedrate tune a workload, and measure what its settings truly take; a TrialError where either fails.

    ``seconds`` are those of a window: of the first block with all settings, and of the ``blocks`` of those that may be
    the best.
    """
    options, folder = planted.options(steps=EPOCH_STEPS, **costs.options), planted.script.parent
    words = ("--budget", f"{BUDGET_S:.0f}s", "--results", str(folder), "--json", str(folder / "tuned.json"))
    command = ("-m", "feedrate", "tune", *words, f"{planted.script}:make")
    ended = run_planted(*command, environment={"FEEDRATE_PLANTED": shlex.join(options)})
    tuned = json.loads((folder / "tuned.json").read_text(encoding="utf-8"))
    present, recommended = (_setting(tuned[name]) for name in ("present", "recommended"))
    choices = settings(present, Asked(), Machine(len(usable_cores()), None, None), cuda=False)
    screened = _truth(planted, options, choices, 1, seconds[0])[:, 0]
    fastest = (choices[at] for at in np.argsort(screened)[:BEST])
    measured = list(dict.fromkeys((present, recommended, *fastest)))
    logs = _truth(planted, options, measured, blocks, seconds[1])
    return TunedWorkload(
        costs=costs.label,
        present=str(present),
        settings=tuned["settings"],
        trials=tuned["trials"],
        bound_pct=tuned["bound_pct"],
        feedrate=Advice(setting=str(recommended), took_s=ended.took_s),
        blocks=blocks,
        steps_per_s={str(setting): tuple(np.exp(-row).tolist()) for setting, row in zip(measured, logs, strict=True)},
    )


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
    trials = np.median([workload.trials / workload.settings for workload in tuned])
    note = (
        f" (regret: median {np.median(regrets):.1f} %, worst {max(regrets):.1f} %; {trials:.1f} measurements a setting)"
    )
    what = f"feedrate tune recommends a setting within {REGRET_PCT:g} % of the best, planted workloads"
    return judge_count(what, OFTEN, "them", [regret <= REGRET_PCT for regret in regrets], note)
