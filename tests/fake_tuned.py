"""Runs of searches that never ran: trials of made-up scripts, chosen by the real search."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import fake_kind
import fake_script

from feedrate.attach import loop, predictions, rows, space, tune_report
from feedrate.attach.run import Ended
from feedrate.attach.space import Setting
from feedrate.attach.trials import Trial, Window
from feedrate.attach.tune import Session, Tuning

CORES = 4.0
TRIAL_S = 20
"""How long after one another trials begin."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a made-up search is like."""

    most: int = 4
    """Workers, of those to choose from."""
    blocks: int = 40
    """After so many the budget is used up."""
    fails: int = -1
    """Workers with which every trial fails."""
    steps: int = 120
    """Of each of the two epochs of a trial."""


def write(results: Path, search: Search = Search()) -> Path:
    """Write a made-up run below ``results`` and return its folder."""
    machine = fake_kind.machine(fake_kind.Fake())
    session = _searched(search)
    found = tune_report.result(session)
    if found is None:
        raise ValueError(f"{search}: no trial ended well")
    said = list(tune_report.text(session, found, "python train.py --secret=1"))
    with patch.object(rows, "describe", lambda _: machine):
        report = tune_report.as_object(session, found) | {"said": said}
        return rows.save_search(session, found, results, "train.py", math.inf, report).folder


def _searched(search: Search) -> Session:
    """Run the search to its end, or for as many blocks as it has."""
    asked = space.Asked(most_workers=search.most)
    tuning = Tuning(asked, within=math.log(1.03), seed=1, cores=CORES)
    tuning.machine = space.Machine(CORES, 2**34, 2**30, epoch_steps=search.steps)
    tuning.present = Setting(0)
    tuning.made = [["/home/somebody/private/train.py", 80, "main"]]
    tuning.loader = {"batch_size": fake_script.BATCH_SIZE, "start_method": "fork"}
    block, order, starts = 0, [tuning.present], list[Ended]()
    while order and block < search.blocks:
        for setting in order:
            starts.append(_tried(search, tuning, block, setting))
        block += 1
        order = tuning.search.next_block(block) if tuning.search else []
    tuning.ended = "budget" if order else "known"
    return Session(tuning, starts, len(starts) * TRIAL_S)


def _tried(search: Search, tuning: Tuning, block: int, setting: Setting) -> Ended:
    """Make up a trial in a start of its own, and have the search take it over."""
    workers, now = setting.num_workers, fake_script.BEGAN + len(tuning.tried) * TRIAL_S * 10**9
    hour = len(tuning.tried) % 24
    script = fake_script.Script(workers=workers, prepare_ms=20.0, steps=search.steps, hour=hour)
    with patch.object(fake_script, "BEGAN", now), patch.object(fake_script, "PREFETCH", setting.prefetch_factor or 2):
        ended = fake_script.ended(script)
    loader = ended.report.loader
    if loader is None:
        raise ValueError(f"{script}: no loader")
    begun, end = int(loader.steps["begun_ns"].iloc[5]), int(loader.steps["ended_ns"].iloc[-1])
    tried = Trial(block, setting, error="OSError: too many open files at /home/somebody", ended_ns=end)
    if workers != search.fails:
        inside = loop.whole_steps(loader, (begun, end))
        fit = predictions.fit(loader, inside, CORES)
        wall = int((inside["ended_ns"] - inside["begun_ns"]).sum())
        told = {"wall_ns": wall, "steps": len(inside), "starts_ns": [30 * fake_script.MS], "bytes": 2**20}
        told |= {"begun_ns": begun, "ended_ns": end, "whole": False, "restart": False, "foreign": False}
        preparing_ns = float((fit.wait_ns + fit.compute_ns).mean())
        window = Window(loader, inside)
        tried = replace(tried, told=told, error="", fit=fit, preparing_ns=preparing_ns, window=window)
    tuning.tried.append(tried)
    tuning._learn(tried)
    return ended
