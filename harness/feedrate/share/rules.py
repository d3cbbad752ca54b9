"""A run of others, judged: what each value may be, and identities by which whatever is derived is computed anew.

Rows are as ``parquet`` decodes them. The first thing that does not hold refuses a file. The docstrings of ``STATED``
stand on the methodology page.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feedrate.schema.axes import AXES, BY_NAME, SCRIPT, TUNE, Value, applicable, cell_id, lives
from feedrate.schema.columns import DEVICE_SPANS, FLAGS, OUTCOMES, PHASES, ROLES, STEPS_KEPT, WORKER_STAGES
from feedrate.schema.errors import InputError
from feedrate.schema.redaction import EVIDENCE_MOST, INVISIBLE, KIND_MOST, MOST
from feedrate.schema.window import STEADY
from feedrate.share.findings import FILES, MANIFEST_BYTES, RUN, TRIALS, Finding, Refused, Validated, quote
from feedrate.share.parquet import EXACT, MOMENT, Table, open_table, read, read_manifest
from feedrate.store.manifest import RunManifest

Rows = Any
"""A pandas DataFrame, whose stubs know less of categories and of iteration than it does."""


def judge(path: Path, *, in_place: bool = False) -> Validated:
    """Hold a file of trials, or a run's folder, against every rule; ``in_place``: its name and its machine's, too."""
    try:
        return _judged(path, in_place)
    except Refused as error:
        return Validated(str(path), findings=(Finding(*error.args),))


def _judged(path: Path, in_place: bool) -> Validated:
    files = _files(path)
    trials = open_table(files[TRIALS], "trials")
    run, where = trials.manifest, trials.where
    for rows in trials.frames():  # identities need sound values
        check_values(rows, where)
        check_names(rows, run, where)
        check_numbers(rows, where)
        check_cells(rows, where)
    require(trials.rows > 0, where, "no rows", "one trial at least")
    whole = trials.frame((*COLUMNS, *(TRACED if RUN in files else ())))
    for check in FACTS:
        check(whole, run)
    if RUN in files:
        names = path.absolute().parts[-2:] if not path.absolute().parent.is_symlink() else ("a link",)
        right = (run.machine.machine_id, run.run_id)
        require(not in_place or names == right, "the folder", "/".join(names), "/".join(right), "Move it there")
        tables = {name: open_table(files[f"{name}.parquet"], name) for name in ("steps", "telemetry")}
        manifests = [read_manifest(read(files[RUN], MANIFEST_BYTES), RUN), *(one.manifest for one in tables.values())]
        require(all(one == run for one in manifests), "the folder", "several manifests", "one in all of its files")
        for name, table in tables.items():
            check_traces(name, table, whole, run)
    return Validated(str(path), run.run_id, run.machine.machine_id, trials.rows)


def _files(path: Path) -> dict[str, Path]:
    """The files of a run's folder, or the one file of trials."""
    if path.is_symlink() or not path.is_dir():
        return {TRIALS: path}
    names = {entry.name for entry in islice(os.scandir(path), 100)}
    for name in sorted(names ^ set(FILES)):
        raise Refused("the folder", quote(name) if name in names else f"no {name}", f"{', '.join(FILES)} alone")
    return {name: path / name for name in FILES}


def require(holds: object, where: str, got: object, expected: str, *advice: str) -> None:
    """Refuse a file of which something does not hold."""
    if not holds:
        raise Refused(where, quote(got), expected, *advice)


def hold(rows: Rows, where: str, column: str, holds: Any, expected: str) -> None:
    """Refuse rows of which something does not hold, and name the first; ``holds`` is a truth a row."""
    wrong = ~np.asarray(holds, bool)
    if wrong.any():
        at, more = int(wrong.argmax()), int(wrong.sum()) - 1
        value, several = rows[column].iloc[at], f" and {more} more" if more else ""
        got = "nothing" if pd.isna(value) else quote(value)
        raise Refused(f"{where} column {column} row {rows.index[at]}{several}", got, expected)


_FILLED = ("started_at", "outcome", "workload", "mode", "block", "position", "t_ns", "in_window")
_SIGNED = ("fact_value", "worker_begun_ns", "worker_ended_ns", "gpu_temperature_c")
_BY_CORE = ("main_cpu_pct", "workers_cpu_pct", "foreign_cpu_pct")
"""Where 100 % is one core."""
_MOST_PCT = 101.0
"""Pressure is read from another clock than the window's."""
_FLAG = f"(?:{'|'.join(FLAGS)})"
_TEXTS = {
    "started_at": MOMENT,
    "outcome": "|".join(OUTCOMES),
    "role": "|".join(ROLES),
    "flags": f"{_FLAG}(?:,{_FLAG})*",
    "error_kind": f"[^{INVISIBLE}]{{0,{KIND_MOST}}}",
    "error_message": f"[^{INVISIBLE}]{{0,{MOST}}}",
    "evidence": f"[^{INVISIBLE}]{{0,{EVIDENCE_MOST}}}",
}
"""Column to the pattern of its texts; all others are axes, or follow from the manifest."""


def check_values(rows: Rows, where: str) -> None:
    """Numbers are not negative and of an exact size. Shares are no more than a whole. Texts are words or one line."""
    right = partial(hold, rows, where)
    for name in rows.columns.intersection(_FILLED):
        right(name, rows[name].notna(), "a value in every row")
    numbers = rows.select_dtypes("number")
    low = pd.Series({name: -EXACT if name in _SIGNED else 0.0 for name in numbers})
    high = pd.Series({n: _MOST_PCT if n.endswith("_pct") and n not in _BY_CORE else EXACT for n in numbers})
    wrong = numbers.lt(low) | numbers.gt(high)
    for name in wrong.columns[wrong.any()]:
        right(name, ~wrong[name], f"{low[name]:g} to {high[name]:g}")
    for name in rows.columns.intersection(_TEXTS):
        pattern = _TEXTS[name]
        other = [text for text in rows[name].cat.categories if not re.fullmatch(pattern, text)]
        words = f"a text such as {pattern}" if pattern.isprintable() else "one short line of plain text"
        right(name, ~rows[name].isin(other), words)


RATE_WITHIN, ROUNDED_NS = 1e-6, 1e3
"""A stored rate is a float, what it is computed from whole nanoseconds."""
OPEN_SHARE, OPEN_NS = 0.1, 5e6
"""What the phases may leave of the wall clock: ``other`` is stamped by itself, and the system may step in between."""
_CONSECUTIVE = ["wall_ns", "warmup_ns", "startup_ns", "compile_ns"]
"""What a trial does one after the other; a cache that it reads was filled by the first trial that read it."""


def check_names(rows: Rows, run: RunManifest, where: str) -> None:
    """Measurements are of the run, of its suites and data sets. Their numbers are repetition and position."""
    hashes = [dataset.data_hash for dataset in run.datasets]
    for name, values in {
        "run_id": [run.run_id],
        "machine_id": [run.machine.machine_id],
        "device": [run.device],
        "protocol_version": [run.protocol_version],
        "suite": [*run.suites, None],
        "data_hash": [*hashes, None],
    }.items():
        hold(rows, where, name, rows[name].isin(values), "what the manifest says")
    places = zip(rows["block"], rows["position"], strict=True)
    ids = [f"{run.run_id}-{int(block):03d}-{int(position):04d}" for block, position in places]
    hold(rows, where, "trial_id", rows["trial_id"].astype(str) == ids, "run_id, block and position, joined")


def check_numbers(rows: Rows, where: str) -> None:
    """Failed measurements have an error. Those that ended well have a window, or a fact.

    On a CPU there is no device's time. Samples are steps × batch_size × world_size, or fewer of a script. samples_per_s
    is samples ÷ wall_ns. A window is steady by half_ratio. host_*_ns sum to wall_ns, but for time that the system takes
    in between. A measurement lasted as long as its parts one after the other.
    """
    right = partial(hold, rows, where)
    ok, script, wall = rows["outcome"].eq("ok"), rows["workload"].eq(SCRIPT), rows["wall_ns"]
    timed, samples = ok & rows["mode"].ne("check"), rows["samples"]
    right("error_kind", rows["error_kind"].isna() == ok, "a kind where a trial failed, and only there")
    right("fact", rows["fact"].notna() == (ok & ~timed), "a value where a check ended well, and only there")
    for name in ("steps", "samples", "wall_ns", "samples_per_s"):
        right(name, rows[name].notna() == timed, "a value where a window was timed, and only there")
    for name in ("host_h2d_ns", *(f"device_{span}_ns" for span in DEVICE_SPANS)):
        right(name, rows[name].isna() | rows["device"].ne("cpu"), "nothing, on a CPU")
    most = rows["steps"] * rows["batch_size"].fillna(1) * rows["world_size"].fillna(1)
    right("samples", ~timed | samples.eq(most) | (script & samples.lt(most)), "steps × batch_size × world_size")
    rate = np.isclose(rows["samples_per_s"] * wall / 1e9, samples, RATE_WITHIN, 0)
    right("samples_per_s", ~timed | rate, "samples ÷ wall_ns")
    steady = rows["half_ratio"].between(STEADY, 1 / STEADY, "neither")
    right("steady", rows["steady"].isna() | rows["steady"].eq(steady), f"whether half_ratio is within {STEADY:g}")
    phases = rows[[f"host_{phase}_ns" for phase in PHASES]].sum(axis=1)
    closes = phases.between((1 - OPEN_SHARE) * wall - OPEN_NS, wall + ROUNDED_NS)
    right("wall_ns", ~timed | closes, f"the sum of host_*_ns, or {OPEN_SHARE:.0%} and {OPEN_NS / 1e6:g} ms more")
    lasted = rows[_CONSECUTIVE].sum(axis=1) <= rows["trial_wall_ns"] * (1 + RATE_WITHIN)
    right("trial_wall_ns", ~timed | lasted, f"{' + '.join(_CONSECUTIVE)}, or more")


def check_cells(rows: Rows, where: str) -> None:
    """A setting's id follows from its options. Each has a value that it can have, off its default where it applies."""
    names = [axis.name for axis in AXES if rows[axis.name].notna().any()]
    distinct = rows[[*names, "cell_id", "device"]].drop_duplicates()
    for at, values in zip(distinct.index, distinct.to_dict("records"), strict=True):
        column, expected = _wrong(tuple(_cell(values, names).items()), values["device"], values["cell_id"])
        require(not column, f"{where} column {column} row {at}", values.get(column), expected)


def _cell(values: Mapping[Any, Any], names: Iterable[str]) -> dict[str, Value]:
    return {name: BY_NAME[name].type(values[name]) for name in names if pd.notna(values[name])}


@lru_cache(maxsize=1 << 16)
def _wrong(cell: tuple[tuple[str, Value], ...], device: str, recorded: str) -> tuple[str, str]:
    """The column that is wrong of a cell, by the axes that it sets, and what was expected; empty where none is."""
    axes = dict(cell)
    _, idle = applicable({axis.name: axis.default for axis in AXES} | axes, device)
    for name, value in cell:
        try:
            BY_NAME[name].checked(value, name)
        except InputError as error:
            return name, str(error).rpartition("; expected ")[2]
        if name in idle and value != BY_NAME[name].default:
            return name, f"nothing: {idle[name]}"
    wanted = cell_id(axes)
    return ("", "") if wanted == recorded else ("cell_id", f"{wanted} by its axes")


CLOCK_MAY_STEP, AHEAD = timedelta(minutes=1), timedelta(days=1)
"""By how much a machine's clock may be set back during a run, and be ahead of the reader's."""
SECONDS_WITHIN = 2e-3
"""Mean times of cells are kept in whole milliseconds."""
_OF_SCRIPTS = [axis.name for axis in AXES if axis.of_scripts]
# What ``FACTS`` need of all trials.
COLUMNS = ("block", "position", "trial_wall_ns", "started_at", "cell_id", "outcome", "role", "suite", *_OF_SCRIPTS)


def counts(trials: Rows, run: RunManifest) -> None:
    """No two measurements share a place. Outcomes, repetitions, settings and mean times are the rows'."""
    twice = int(trials.duplicated(["block", "position"]).sum())
    require(not twice, "block and position", f"{twice} trials in the place of another", "one at each place of a block")
    outcomes = {name: count for name, count in trials["outcome"].value_counts().items() if count}
    require(outcomes == run.outcomes, "manifest.outcomes", run.outcomes, f"{outcomes} by the rows")
    blocks = trials["block"].nunique()
    require(run.blocks <= blocks, "manifest.blocks", run.blocks, f"at most {blocks}, the blocks that have trials")
    measured = trials.loc[trials["role"].eq("cell"), "cell_id"].nunique()
    require(run.cells >= measured, "manifest.cells", run.cells, f"at least {measured}, the cells of its rows")
    means = (trials["trial_wall_ns"].fillna(0) / 1e9).groupby(trials["cell_id"], observed=True).mean()
    for cell, seconds in run.cell_seconds.items():
        near = abs(means.get(cell, -1.0) - seconds) <= SECONDS_WITHIN
        require(near, f"manifest.cell_seconds.{cell}", seconds, "the mean of the cell's trials")


def clock(trials: Rows, run: RunManifest) -> None:
    """A run ended after it began, a day in the future at most, and its measurements began in between."""
    span, texts = f"{run.started_at} to {run.ended_at}", trials["started_at"].cat.categories
    try:
        begun, ended, *started = map(datetime.fromisoformat, (run.started_at, run.ended_at, *texts))
    except ValueError as error:
        raise Refused("manifest.ended_at", span, "days that there are, a day in the future at most") from error
    right = begun <= ended <= datetime.now(UTC) + AHEAD
    require(right, "manifest.ended_at", span, "times in their order, a day in the future at most")
    within = begun - CLOCK_MAY_STEP <= min(started) <= max(started) <= ended + CLOCK_MAY_STEP
    require(within, "column started_at", "a trial outside of its run", span)


def origin(trials: Rows, run: RunManifest) -> None:
    """A run on a GPU says which; trials, suites and searches of scripts are those that the command says."""
    named = run.device != "cuda" or (run.machine.gpu_name and run.machine.gpu_count)
    require(named, "manifest.device", run.device, "a GPU among the machine's facts")
    _, kind, *rest = run.command.split()
    suite, scripts = {"run": SCRIPT, "tune": TUNE}.get(kind, ""), trials["workload"].eq(SCRIPT)
    of_suite = scripts & trials["script"].eq(rest[-1]) & trials["suite"].eq(suite) if suite else ~scripts
    alone = {*run.suites} == {suite} if suite else SCRIPT not in run.suites  # a sweep may have a suite called tune
    right = of_suite.all() and alone and (not suite or len(run.tuned) == (suite == TUNE))
    require(right, "columns workload, script, suite; manifest.suites, tuned", "others", f"those of {run.command}")


def searches(trials: Rows, run: RunManifest) -> None:
    """A search names settings of its measurements and counts these. It is known only if its bound is narrow enough."""
    there = {*trials["cell_id"].cat.categories}
    if run.search:  # a trial of a script may stand for two cells
        rows = trials[_OF_SCRIPTS].drop_duplicates().to_dict("records")
        there = {cell_id(cell) for values in rows for cell in lives(_cell(values, _OF_SCRIPTS))}
    for entry in run.tuned:
        named = {entry.recommended, entry.present or entry.recommended, *(audit.cell_id for audit in entry.audits)}
        require(named <= there, "manifest.tuned", min(named - there, default=""), "cells of its trials")
        whole = entry.trials == len(trials) if run.search else entry.trials <= len(trials)
        require(whole, "manifest.tuned.trials", entry.trials, f"{len(trials)} by the rows")
        near = not entry.compared if entry.bound_pct is None else entry.bound_pct <= entry.within_pct
        require(near or not entry.known, "manifest.tuned.known", entry.known, "false, by bound_pct over within_pct")


FACTS = (counts, clock, origin, searches)
_SUMMED = {
    **{f"{phase}_ns": f"host_{phase}_ns" for phase in PHASES},
    **{f"device_{span}_ns": f"device_{span}_ns" for span in DEVICE_SPANS},
    **{f"worker_{stage}_ns": f"worker_{stage}_ns" for stage in (*WORKER_STAGES, "getitem")},
}
"""Column of a step to the column of its trial that it is summed in."""
_EXACT = [not name.startswith("device_") and name != "other_ns" for name in _SUMMED]
"""Whether all steps sum to the trial's: ``other`` of a trial has the last synchronisation too, and a span lies between
two steps."""
TRACED = ("trial_id", "steps", *_SUMMED.values())


def check_traces(name: str, table: Table, trials: Rows, run: RunManifest) -> None:
    """Steps and samples are of the run's measurements. Steps count from 0. All of them sum to their measurement."""
    ids = pd.Index(trials["trial_id"].astype(str))
    count, sums = np.zeros(len(ids)), np.zeros((len(ids), len(_SUMMED)))
    for rows in table.frames():
        texts = rows["trial_id"].cat
        at = np.append(ids.get_indexer(texts.categories), -1)[texts.codes]
        check_values(rows, table.where)
        right = partial(hold, rows, table.where)
        right("trial_id", at >= 0, "a trial of the run")
        right("run_id", rows["run_id"].eq(run.run_id), "what the manifest says")
        if name == "steps":
            right("step", rows["step"].eq(count[at] + rows.groupby(at).cumcount()), "0, 1, 2 … of its trial")
            count += np.bincount(at, minlength=len(ids))
            np.add.at(sums, at, rows[list(_SUMMED)].fillna(0).to_numpy())
    recorded, steps = trials[list(_SUMMED.values())].fillna(0).to_numpy(), trials["steps"].fillna(0).to_numpy()
    for row in np.flatnonzero(count > np.minimum(steps, STEPS_KEPT)):
        expected = f"no more than {steps[row]:.0f}, and {STEPS_KEPT}"
        raise Refused(f"{table.where} trial {quote(ids[row])}", f"{count[row]:.0f} steps", expected)
    whole = (count == steps)[:, None] & np.array(_EXACT) & (name == "steps")
    wrong = (sums > recorded + ROUNDED_NS) | (whole & (np.abs(sums - recorded) > ROUNDED_NS))
    for row, column in np.argwhere(wrong):
        index, of = list(_SUMMED.items())[column]
        where = f"{table.where} column {index} trial {quote(ids[row])}"
        raise Refused(where, f"a sum of {sums[row, column]:.0f}", f"{recorded[row, column]:.0f}, its {of}")


STATED = (check_values, check_names, check_numbers, check_cells, *FACTS, check_traces)
"""Whose docstrings say what holds of every run that is shown."""
