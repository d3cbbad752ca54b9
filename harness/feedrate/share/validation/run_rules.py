"""Rules that a run keeps to as a whole: its trials with its manifest, its steps and samples with its trials.

``steps.parquet`` holds the first steps of each trial's window. Where it holds all of them, what they sum to must be
what the trial says; else they can only be a part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from feedrate.schema.axes import AXES, SCRIPT, TUNE, cell_id, lives
from feedrate.schema.columns import DEVICE_SPANS, PHASES, STEPS_KEPT
from feedrate.share.validation.findings import Finding, Rule, quote
from feedrate.share.validation.manifest import SCRIPT_COMMANDS
from feedrate.share.validation.parquet import Rows
from feedrate.share.validation.rules import STAGES, RowRule, Wrong, broken

Misfit = tuple[str, str, str]
"""Where, what came, what was expected."""


@dataclass(frozen=True, slots=True)
class RunRule(Rule):
    """A rule about all trials of one run and its manifest."""

    find: Callable[[Rows], Iterator[Misfit]]


def check_run(trials: Rows, where: str) -> Iterator[Finding]:
    """List what all trials of a run break of ``RUN_RULES``: once a rule."""
    for rule in RUN_RULES:
        for place, got, expected in islice(rule.find(trials), 1):
            yield rule.finding(f"{where} {place}", got, expected)


CLOCK_MAY_STEP_S = 60.0
"""By how much a machine's clock may be set back during a run."""
AHEAD = timedelta(days=1)
"""By how much a machine's clock may be ahead of the reader's."""
SECONDS_WITHIN = 2e-3
"""Mean times of cells are kept in whole milliseconds."""
RUN_COLUMNS = (
    *("block", "position", "trial_wall_ns", "started_at", "cell_id", "outcome", "role", "suite", "data_hash"),
    *(axis.name for axis in AXES if axis.of_scripts),
    *("workload", "script"),
)
"""Columns of the trials that ``RUN_RULES`` read."""
_SCRIPT_ENDS = {SCRIPT: ("ended", "interrupted"), TUNE: ("target", "budget", "interrupted")}
"""Suite of a script's run to why it may have stopped."""


def _counts(trials: Rows) -> Iterator[Misfit]:
    run, frame = trials.run, trials.frame(RUN_COLUMNS)
    if twice := int(frame.duplicated(["block", "position"]).sum()):
        yield "block and position", f"{twice} trials at a place that another has", "one trial at each place of a block"
    if (counts := frame["outcome"].astype(str).value_counts().to_dict()) != run.outcomes:
        yield "manifest.outcomes", quote(run.outcomes), f"{counts} by the rows"
    if run.blocks > (begun := frame["block"].nunique()):
        yield "manifest.blocks", str(run.blocks), f"at most {begun}, the blocks that have trials"
    if (measured := frame.loc[frame["role"].eq("cell"), "cell_id"].nunique()) > run.cells:
        yield "manifest.cells", str(run.cells), f"at least {measured}, the cells of its rows"
    mean = (frame["trial_wall_ns"].fillna(0) / 1e9).groupby(frame["cell_id"].astype(str)).mean()
    for cell, seconds in run.cell_seconds.items():
        if cell not in mean.index or not abs(mean[cell] - seconds) <= SECONDS_WITHIN:
            yield "manifest.cell_seconds", f"{seconds:g} s for {quote(cell)}", "the mean of the cell's trials"


def _clock(trials: Rows) -> Iterator[Misfit]:
    run, frame = trials.run, trials.frame(RUN_COLUMNS)
    begun, ended = (_moments(pd.Series([text]))[0] for text in (run.started_at, run.ended_at))
    if not begun <= ended <= datetime.now(UTC) + AHEAD:
        got = f"{quote(run.started_at)} to {quote(run.ended_at)}"
        yield "manifest.ended_at", got, f"times in UTC in their order, at most {AHEAD.days} day in the future"
        return
    started = _moments(frame["started_at"].astype(str))
    step = pd.Timedelta(seconds=CLOCK_MAY_STEP_S)
    if not started.between(begun - step, ended + step).all():
        yield (
            "column started_at",
            "a trial that began before its run or after it",
            f"{run.started_at} to {run.ended_at}",
        )
    order = np.lexsort((frame["position"], frame["block"]))
    if (started.iloc[order].diff() < -step).any():
        yield "column started_at", "a trial that began before the one that came before it", "trials in their order"


def _moments(texts: Any) -> Any:
    """Read times in UTC, whose form is known to be right; NaT where there is no such day."""
    return pd.to_datetime(texts, utc=True, errors="coerce", format="ISO8601")


def _named(trials: Rows) -> Iterator[Misfit]:
    run = trials.run
    hashes = {dataset.data_hash for dataset in run.datasets}
    for name, listed in (("data_hash", hashes), ("suite", run.suites.keys())):
        if other := set(trials[name].dropna()) - listed:
            yield f"column {name}", quote(min(other)), "one of the manifest"
    if run.device == "cuda" and not (run.machine.gpu_name and run.machine.gpu_count):
        yield "manifest.device", quote(run.device), "a GPU among the machine's facts"


def _script(trials: Rows) -> Iterator[Misfit]:
    """Find what makes a run both one of a script and one of a sweep."""
    run, of_script = trials.run, trials["workload"].eq(SCRIPT)
    suite = next((suite for suite, command in SCRIPT_COMMANDS.items() if run.command.startswith(command)), None)
    if suite is None:
        if of_script.any() or run.stop_reason == "ended":
            got = f"{int(of_script.sum())} trials of scripts, {quote(run.stop_reason)}"
            yield "column workload", got, f"no script, as the command is {quote(run.command)}"
        return
    name, ends = run.command.removeprefix(SCRIPT_COMMANDS[suite]), _SCRIPT_ENDS[suite]
    if other := int((~of_script | trials["script"].ne(name) | trials["suite"].ne(suite)).sum()):
        yield "columns workload, script and suite", f"{other} trials of another", f"{quote(name)}, as the command says"
    if set(run.suites) != {suite} or run.profile != suite or run.stop_reason not in ends:
        got = f"{quote(', '.join(run.suites))}, {quote(run.profile)}, {quote(run.stop_reason)}"
        yield "manifest.suites, profile and stop_reason", got, f"{suite}, {suite}, {' or '.join(ends)}"


def _tuned(trials: Rows) -> Iterator[Misfit]:
    """Find what a search cannot have found among its trials."""
    run = trials.run
    if run.script and len(run.tuned) != (TUNE in run.suites):
        yield "manifest.tuned", f"{len(run.tuned)} entries", "one of a search, none of a script as it is"
        return
    cells = set(_stood_for(trials)) if run.search else set(trials["cell_id"].dropna())
    for entry in run.tuned:
        named = {entry.recommended, entry.present or entry.recommended, *(audit.cell_id for audit in entry.audits)}
        if other := named - cells:
            yield "manifest.tuned", quote(min(other)), "a cell of its trials, whether its workers live on or not"
        if entry.trials > len(trials) or (run.search and entry.trials != len(trials)):
            yield "manifest.tuned.trials", str(entry.trials), f"{len(trials)} by the rows"
        if (entry.bound_pct is not None and entry.bound_pct <= entry.within_pct) is not entry.known:
            yield "manifest.tuned.known", str(entry.known), "whether bound_pct is within_pct at most"
        if entry.gain and not 0 < entry.gain[1] <= entry.gain[0] <= entry.gain[2]:
            yield "manifest.tuned.gain", quote(entry.gain), "a ratio between the ends of its interval"
        if (aside := sum(counted.count for counted in entry.aside)) > entry.settings:
            yield "manifest.tuned.aside", f"{aside:,} settings", f"at most {entry.settings:,}, all that there are"


def _stood_for(trials: Rows) -> Iterator[str]:
    """Ids of the cells that a trial may stand for."""
    axes = [axis for axis in AXES if axis.of_scripts]
    for values in trials.frame(axis.name for axis in axes).drop_duplicates().to_dict("records"):
        cell = {axis.name: axis.type(values[axis.name]) for axis in axes if pd.notna(values[axis.name])}
        yield from map(cell_id, lives(cell))


RUN_RULES = (
    RunRule(
        "counts",
        "No two trials have the same place in a block; the manifest counts outcomes as the rows do, no more whole "
        "blocks than have trials and no fewer cells than were measured; mean times of cells are computed anew.",
        _counts,
    ),
    RunRule(
        "clock",
        f"Trials began in their order, between the run's beginning and its end, which lies at most {AHEAD.days} day in "
        "the future, as clocks may be wrong.",
        _clock,
    ),
    RunRule(
        "named", "Data sets and suites of the rows are those of the manifest, and a run on a GPU says which.", _named
    ),
    RunRule(
        "script",
        "A run of a script is of that one alone: its command, its suite, its rows and why it stopped say so; no sweep "
        "has a script among its rows.",
        _script,
    ),
    RunRule(
        "tuned",
        "What a search found names cells of its trials and counts them as the rows do; it is known where its bound is "
        "within the tolerance, and a gain lies in its interval.",
        _tuned,
    ),
)

ROUNDED_NS = 1e3
_SUMMED = {
    **{f"{phase}_ns": f"host_{phase}_ns" for phase in PHASES},
    **{f"device_{span}_ns": f"device_{span}_ns" for span in DEVICE_SPANS},
    **{name: name for name in STAGES},
}
"""Column of a step to the column of its trial that it is summed in."""
_EXACT = [name for name in _SUMMED if not name.startswith("device_") and name != "other_ns"]
"""Columns whose sum over all steps is the trial's: ``other`` of a trial has the last synchronisation too, and a span
lies between two steps."""
TRACE_COLUMNS = ("trial_id", "steps", "num_workers", "prefetch_factor", *_SUMMED.values())
"""Columns of the trials that their steps and samples are held against."""


def check_traces(name: str, tables: Iterable[Rows], trials: pd.DataFrame) -> Iterator[Finding]:
    """List what is wrong with the rows of ``steps`` or ``telemetry``, by the first that break a rule.

    Args:
        name: of the table.
        tables: its rows, some at a time, in their order.
        trials: all trials of the run, ``TRACE_COLUMNS`` at least.
    """
    where = f"{name}.parquet"
    ids = pd.Index(trials["trial_id"].astype(str))
    limits = trials[["steps", "num_workers", "prefetch_factor"]].fillna(0)
    last = np.full(len(ids) + 1, -1.0)  # the last one: of rows that are of no trial
    sums = pd.DataFrame(0.0, range(len(ids)), list(_SUMMED))
    for rows in tables:
        at = np.append(ids.get_indexer(rows["trial_id"].cat.categories), -1)[rows["trial_id"].cat.codes]
        counted = rows["step" if name == "steps" else "t_ns"]
        before = counted.groupby(at).shift()
        rows.columns |= {"trial": pd.Series(at), "before": before.where(before.notna(), last[at])}
        rows.columns |= {f"trial_{name}": pd.Series(limits[name].to_numpy()[at]) for name in limits}
        last[at] = counted  # of several the last one counts
        if findings := list(broken(TRACE_RULES if name == "steps" else TRACE_RULES[:2], rows, where)):
            yield findings[0]
            return
        if name == "steps":
            sums = sums.add(rows.frame(name for name in _SUMMED if name in rows).groupby(at).sum(), fill_value=0)
    if name == "steps":
        yield from _check_sums(sums, last[:-1] + 1, trials, where)


def _of_run(rows: Rows) -> Iterator[Wrong]:
    yield "trial_id", rows["trial"] < 0, "a trial of the run"
    yield "run_id", rows["run_id"].ne(rows.run.run_id), "the run"


def _in_order(rows: Rows) -> Iterator[Wrong]:
    if rows.name == "telemetry":
        yield "t_ns", rows["t_ns"] < rows["before"], "a time that is not before that of its trial's row before"
        return
    yield "step", rows["step"] != rows["before"] + 1, "0, 1, 2 … of its window, each once"
    most = rows["trial_steps"].clip(upper=STEPS_KEPT)
    yield "step", rows["step"] >= most, f"less than its trial has steps, {STEPS_KEPT} at most"


def _prepared(rows: Rows) -> Iterator[Wrong]:
    workers, begun, ended = (rows[name] for name in ("trial_num_workers", "worker_begun_ns", "worker_ended_ns"))
    yield "worker", rows["worker"] >= workers, "one of num_workers"
    # Stages share one clock with both ends, and lie between them: nothing but rounding is left open.
    longer = rows.sum(STAGES) > ended - begun + ROUNDED_NS
    yield "worker_ended_ns", longer | (begun > ended), "worker_begun_ns and all stages later, or more"
    most = workers * rows["trial_prefetch_factor"]
    yield "batches_ready", rows["batches_ready"] > most, "at most num_workers × prefetch_factor"


SUMS = Rule("sums", "Steps sum to no more than their trial says, and to just that where all of its steps are there.")
TRACE_RULES = (
    RowRule("trace_of_run", "Steps and samples name the run and one of its trials.", _of_run),
    RowRule(
        "trace_order",
        f"Steps of a window count from 0, each once, to {STEPS_KEPT} at most; samples come in the order of their time.",
        _in_order,
    ),
    RowRule(
        "prepared",
        "A batch has a worker that there is, was begun before it was ended, and its stages take no longer; no more "
        "batches lie ready than workers may prepare ahead.",
        _prepared,
    ),
)


def _check_sums(sums: pd.DataFrame, count: Any, trials: pd.DataFrame, where: str) -> Iterator[Finding]:
    complete = count == trials["steps"].to_numpy()
    for name, column in _SUMMED.items():
        recorded, summed = trials[column].fillna(0).to_numpy(), sums[name].to_numpy()
        wrong = summed > recorded + ROUNDED_NS
        if name in _EXACT:
            wrong |= complete & (np.abs(summed - recorded) > ROUNDED_NS)
        if wrong.any():
            row = int(wrong.argmax())
            place = f"{where} column {name} trial '{trials['trial_id'].iloc[row]}'"
            yield SUMS.finding(place, f"a sum of {summed[row]:.0f}", f"{recorded[row]:.0f}, its {column}")
            return
