"""Runs of searches that never ran: trials of made-up scripts, chosen by the real search, kept by the real journal."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import fake_kind
import fake_script

from feedrate.attach import journal, loop, rows, space, tune_report
from feedrate.attach.run import Ended
from feedrate.attach.space import Setting
from feedrate.attach.trials import Trial, Window
from feedrate.attach.tune import Session, Tuning

CORES = 4.0
TRIAL_S = 1
"""How long after one another trials begin."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a made-up search is like."""

    name: str = "train.py"
    present: int = 0
    """Workers that the script has."""
    most: int = 4
    """Workers, of those to choose from."""
    blocks: int = 40
    """After so many the budget is used up."""
    fails: int = -1
    """Workers with which every trial fails."""
    prepare_ms: float = 20.0
    steps: int = 120
    """Of each of the two epochs of a trial."""


def write(results: Path, search: Search = Search()) -> Path:
    """Write a made-up run below ``results`` and return its folder."""
    machine = fake_kind.machine(fake_kind.Fake())
    with patch.object(journal, "describe", lambda _: machine), patch.object(rows, "describe", lambda _: machine):
        kept = journal.Journal(results / machine.machine_id, search.name, [search.name], fresh=True)
        tuning, ended = _searched(search, kept)
        session = Session(tuning, ended, 60.0)
        found = tune_report.result(session)
        if found is None:
            raise ValueError(f"{search}: no trial ended well")
        said = list(tune_report.text(session, found, "python train.py --secret=1"))
        return kept.write(session, found, math.inf, tune_report.as_object(session, found) | {"said": said}).folder


def _searched(search: Search, kept: journal.Journal) -> tuple[Tuning, Ended]:
    """Run the search to its end, or for as many blocks as it has."""
    asked = space.Asked(most_workers=search.most)
    tuning = Tuning(asked, within=math.log(1.03), seed=1, cores=CORES)
    tuning.machine = space.Machine(CORES, 2**34, 2**30, epoch_steps=search.steps)
    tuning.present = Setting(search.present, 2 if search.present else None)
    tuning.made = [["/home/somebody/private/train.py", 80, "main"]]
    tuning.loader = {"batch_size": fake_script.BATCH_SIZE, "start_method": "fork"}
    block, order, ended = 0, [tuning.present], fake_script.ended(fake_script.Script())
    while order and block < search.blocks:
        for setting in order:
            ended = _tried(search, kept, tuning, block, setting)
        block += 1
        order = tuning.search.next_block(block) if tuning.search else []
    tuning.ended = "budget" if order else "known"
    return tuning, ended


def _tried(search: Search, kept: journal.Journal, tuning: Tuning, block: int, setting: Setting) -> Ended:
    """Make up a trial, and have search and journal take it over."""
    workers, now = setting.num_workers, fake_script.BEGAN + len(tuning.tried) * TRIAL_S * 10**9
    script = fake_script.Script(
        workers=workers, prepare_ms=search.prepare_ms, steps=search.steps, hour=len(tuning.tried) % 24
    )
    with patch.object(fake_script, "BEGAN", now), patch.object(fake_script, "PREFETCH", setting.prefetch_factor or 2):
        ended = fake_script.ended(script)
    loader = ended.report.loader
    if loader is None:
        raise ValueError(f"{script}: no loader")
    # The first one of a session says when that began.
    with patch.object(journal.time, "perf_counter_ns", lambda: now):
        tried = Trial(
            block, setting, error="OSError: too many open files at /home/somebody" * (workers == search.fails)
        )
        window = None
        if not tried.error:
            steps = loader.steps
            begun, end = int(steps["begun_ns"].iloc[5]), int(steps["ended_ns"].iloc[-1])
            inside = loop.whole_steps(loader, (begun, end))
            fit = loop.fit(loader, inside, CORES)
            wall = int((inside["ended_ns"] - inside["begun_ns"]).sum())
            told = {"wall_ns": wall, "steps": len(inside), "starts_ns": [30 * fake_script.MS], "bytes": 2**20}
            told |= {"begun_ns": begun, "ended_ns": end, "whole": False, "foreign": False}
            tried = replace(tried, told=told, fit=fit, preparing_ns=float((fit.wait_ns + fit.compute_ns).mean()))
            window = Window(loader, inside)
        tuning.tried.append(tried)
        kept.keep(tuning, ended.watched, tried, window)
        tuning._learn(tried)
    return ended
