"""Rules that a run keeps to as a whole: its trials with its manifest, its steps and samples with its trials.

``steps.parquet`` holds the first steps of each trial's window. Where it holds all of them, what they sum to must be
what the trial says; else they can only be a part of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feedrate.schema.axes import AXES, SCRIPT, TUNE, cell_id, lives
from feedrate.schema.columns import DEVICE_SPANS, OUTCOMES, PHASES, STEPS_KEPT, WORKER_STAGES
from feedrate.share.validation.findings import Finding, Rule, quote
from feedrate.share.validation.manifest import SCRIPT_COMMANDS
from feedrate.share.validation.parquet import Codes, Floats, Rows

CLOCK_MAY_STEP_S = 60.0
"""By how much a machine's clock may be set back during a run."""
AHEAD = timedelta(days=1)
"""By how much a machine's clock may be ahead of the reader's."""
SECONDS_WITHIN = 2e-3
"""Mean times of cells are kept in whole milliseconds."""
RUN_COLUMNS = (
    *("block", "position", "trial_wall_ns", "started_at"),
    *("cell_id", "outcome", "role", "suite", "data_hash", "workload", "script"),
)
"""Columns of the trials that ``RUN_RULES`` read."""
SEARCHED_COLUMNS = tuple(axis.name for axis in AXES if axis.of_scripts)
"""Those of a search's trials that they read, too."""
_SCRIPT_ENDS = {SCRIPT: ("ended", "interrupted"), TUNE: ("target", "budget", "interrupted")}
"""Suite of a script's run to why it may have stopped."""
Wrong = tuple[str, str, str]
"""Where, what came, what was expected."""


@dataclass(frozen=True, slots=True)
class RunRule(Rule):
    """A rule about all trials of one run and its manifest."""

    find: Callable[[Rows], Iterator[Wrong]]


def check_run(trials: Rows, where: str) -> Iterator[Finding]:
    """List what trials of one run, all of them and ``RUN_COLUMNS`` at least, break of ``RUN_RULES``: once a rule."""
    for rule in RUN_RULES:
        for place, got, expected in rule.find(trials):
            yield rule.finding(f"{where} {place}", got, expected)
            break


def _once(trials: Rows) -> Iterator[Wrong]:
    places = trials.number("block") * 2.0**21 + trials.number("position")
    if (twice := len(places) - len(np.unique(places))) > 0:
        yield "block and position", f"{twice} trials at a place that another has", "one trial at each place of a block"


def _outcomes(trials: Rows) -> Iterator[Wrong]:
    counts = {word: int(trials.text("outcome").one_of(word).sum()) for word in OUTCOMES}
    counts = {word: count for word, count in counts.items() if count}
    if counts != (own := trials.run.outcomes):
        yield "manifest.outcomes", quote(own), f"{counts} by the rows"


def _blocks(trials: Rows) -> Iterator[Wrong]:
    begun, own = len(np.unique(trials.number("block"))), trials.run.blocks
    if not 0 <= own <= begun:
        yield "manifest.blocks", str(own), f"at most {begun}, the blocks that have trials"


def _cells(trials: Rows) -> Iterator[Wrong]:
    measured = len(np.unique(trials.text("cell_id").codes[trials.text("role").one_of("cell")]))
    if measured > (own := trials.run.cells):
        yield "manifest.cells", str(own), f"at least {measured}, the cells of its rows"


def _cell_seconds(trials: Rows) -> Iterator[Wrong]:
    codes, known = trials.text("cell_id").codes, trials.text("cell_id").used()
    total = np.bincount(codes, np.nan_to_num(trials.number("trial_wall_ns")) / 1e9)
    mean = total / np.maximum(np.bincount(codes), 1)
    for cell, own in trials.run.cell_seconds.items():
        if cell not in known:
            yield "manifest.cell_seconds", f"{own:g} s for {quote(cell)}", "its own cells"
        elif not abs((seconds := float(mean[known[cell]])) - own) <= SECONDS_WITHIN:
            yield "manifest.cell_seconds", f"{own:g} s for {quote(cell)}", f"{seconds:.3f}, the mean of its trials"


def _clock(trials: Rows) -> Iterator[Wrong]:
    run, started = trials.run, _seconds(trials)
    begun, ended = moment(run.started_at), moment(run.ended_at)
    if begun is None or ended is None or ended < begun:
        yield "manifest.started_at", f"{quote(run.started_at)} to {quote(run.ended_at)}", "two times in UTC, in order"
        return
    if ended > datetime.now(UTC) + AHEAD:
        yield "manifest.ended_at", quote(run.ended_at), f"a time at most {AHEAD.days} day in the future"
    early, late = begun.timestamp() - CLOCK_MAY_STEP_S, ended.timestamp() + CLOCK_MAY_STEP_S
    if len(started) and not (early <= started.min() and started.max() <= late):
        got = "a trial that began before its run or after it"
        yield "column started_at", got, f"{run.started_at} to {run.ended_at}"
    order = np.lexsort((trials.number("position"), trials.number("block")))
    if len(order) > 1 and np.diff(started[order]).min() < -CLOCK_MAY_STEP_S:
        yield "column started_at", "a trial that began before the one that came before it", "trials in their order"


def _seconds(trials: Rows) -> Codes:
    """Read ``started_at``, whose form is known to be right, in seconds since 1970; -1 where there is no such day."""
    texts = trials.text("started_at")
    moments = pc.utf8_slice_codeunits(texts.words, 0, 19)
    parsed = pc.strptime(moments, format="%Y-%m-%dT%H:%M:%S", unit="s", error_is_null=True)
    seconds = pc.fill_null(parsed.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return np.append(seconds, -1)[texts.codes].astype(np.int64)


def moment(text: str) -> datetime | None:
    """Read a time of a manifest; None where it has no time zone or there is no such day in UTC."""
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(UTC) if time.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _named(trials: Rows) -> Iterator[Wrong]:
    run = trials.run
    hashes = {dataset.data_hash for dataset in run.datasets}
    if other := trials.text("data_hash").used().keys() - hashes:
        yield "column data_hash", quote(min(other)), "the hash of a data set of the manifest"
    if other := trials.text("suite").used().keys() - run.suites.keys():
        yield "column suite", quote(min(other)), "a suite of the manifest"


def _facts(trials: Rows) -> Iterator[Wrong]:
    run, machine = trials.run, trials.run.machine
    if not (0 < machine.cores_logical <= 4096 and 0 < machine.memory_bytes < 2**53 and 0 <= machine.gpu_count <= 1024):
        got = f"{machine.cores_logical} cores, {machine.memory_bytes} bytes"
        yield "manifest.machine", got, "a machine that can be"
    if run.device == "cuda" and not (machine.gpu_name and machine.gpu_count):
        yield "manifest.device", quote(run.device), "a GPU among the machine's facts"


def _script(trials: Rows) -> Iterator[Wrong]:
    """Find what makes a run both one of a script and one of a sweep."""
    run, own = trials.run, trials.text("workload").one_of(SCRIPT)
    suite = next((suite for suite, command in SCRIPT_COMMANDS.items() if run.command.startswith(command)), None)
    if suite is None:
        if own.any():
            yield "column workload", quote(SCRIPT), f"no script, as the command is {quote(run.command)}"
        if run.stop_reason == "ended":
            yield "manifest.stop_reason", quote(run.stop_reason), "why a sweep stopped"
        return
    name, ends = run.command.removeprefix(SCRIPT_COMMANDS[suite]), _SCRIPT_ENDS[suite]
    own &= trials.text("script").one_of(name) & trials.text("suite").one_of(suite)
    if not own.all():
        got = f"{int((~own).sum())} trials that are not of the script {quote(name)}"
        yield "columns workload, script and suite", got, "all of them, as the command says"
    if set(run.suites) != {suite} or run.profile != suite or run.stop_reason not in ends:
        got = f"{quote(', '.join(run.suites))}, {quote(run.profile)}, {quote(run.stop_reason)}"
        yield "manifest.suites, profile and stop_reason", got, f"{suite}, {suite}, {' or '.join(ends)}"


def _tuned(trials: Rows) -> Iterator[Wrong]:
    """Find what a search cannot have found among its trials."""
    run = trials.run
    if run.script and len(run.tuned) != (TUNE in run.suites):
        yield "manifest.tuned", f"{len(run.tuned)} entries", "one of a search, none of a script as it is"
        return
    own = set(_measured(trials)) if run.search else trials.text("cell_id").used().keys()
    for found in run.tuned:
        named = {found.recommended, found.present or found.recommended, *(each.cell_id for each in found.audits)}
        if other := named - own:
            yield "manifest.tuned", quote(min(other)), "a cell of its trials, whether its workers live on or not"
        if found.trials > len(trials) or (run.search and found.trials != len(trials)):
            yield "manifest.tuned.trials", str(found.trials), f"{len(trials)} by the rows"
        bound = math.inf if found.bound_pct is None else found.bound_pct
        if (bound <= found.within_pct) is not found.known:
            yield "manifest.tuned.known", str(found.known), "whether bound_pct is within_pct at most"
        if found.gain and not 0 < found.gain[1] <= found.gain[0] <= found.gain[2]:
            yield "manifest.tuned.gain", quote(found.gain), "a ratio between the ends of its interval"
        if (left := sum(part.count for part in found.aside)) > found.settings:
            yield "manifest.tuned.aside", f"{left:,} settings", f"at most {found.settings:,}, all that there are"


def _measured(trials: Rows) -> Iterator[str]:
    """Ids of the cells that a trial may stand for."""
    codes = trials.text("cell_id").codes
    for row in np.unique(codes, return_index=True)[1].tolist():
        values = {axis.name: trials.axis(axis, row) for axis in AXES if axis.of_scripts}
        for cell in lives({name: value for name, value in values.items() if value is not None}):
            yield cell_id(cell)


RUN_RULES = (
    RunRule("once", "No two trials have the same place in a block.", _once),
    RunRule("outcomes", "The manifest counts its trials by outcome as the rows do.", _outcomes),
    RunRule("blocks", "The manifest counts no more whole blocks than have trials.", _blocks),
    RunRule("cells", "The manifest counts no fewer cells than were measured.", _cells),
    RunRule("cell_seconds", "Mean times of cells are computed anew from their trials.", _cell_seconds),
    RunRule(
        "clock",
        f"Trials began in their order, between the run's beginning and its end, which lies at most {AHEAD.days} day in "
        "the future, as clocks may be wrong.",
        _clock,
    ),
    RunRule("named", "Data sets and suites of the rows are those of the manifest.", _named),
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
    RunRule("facts", "A run on a GPU says which, and a machine has cores and memory.", _facts),
)

HALVES_WITHIN = 0.15
"""Share by which the ratio of a window's halves may differ from the one that the steps' phases give."""
ROUNDED_NS = 1e3
_SUMMED = {
    **{f"{phase}_ns": f"host_{phase}_ns" for phase in PHASES},
    **{f"device_{span}_ns": f"device_{span}_ns" for span in DEVICE_SPANS},
    **{f"worker_{stage}_ns": f"worker_{stage}_ns" for stage in (*WORKER_STAGES, "getitem")},
}
"""Column of a step to the column of its trial that it is summed in."""
_EXACT = tuple(
    name for name in _SUMMED if not name.startswith("device_") and name != "other_ns"
)  # the trial's ``other`` has the last synchronisation too, and a span lies between two steps
"""Columns whose sum over all steps is the trial's."""
TRACE_COLUMNS = (
    *("trial_id", "device", "world_size", "steps", "num_workers", "prefetch_factor"),
    *("epoch_steps", "vary_shapes", "half_ratio"),
    *_SUMMED.values(),
)
"""Columns of the trials that their steps and samples are held against."""

OF_RUN = Rule("trace_of_run", "Steps and samples name the run and one of its trials.")
IN_ORDER = Rule("trace_order", "Steps count from 0, each once, and samples of a trial come in the order of their time.")
SUMS = Rule("sums", "Steps sum to no more than their trial says, and to just that where all of its steps are there.")
HALVES = Rule(
    "half_ratio",
    f"Where all steps are there, on a CPU, the ratio of the halves is computed anew, within {100 * HALVES_WITHIN:g} %.",
)
WORKER = Rule("worker", "A batch has a worker that there is, and was begun before it was ended.")
READY = Rule("ready", "No more batches lie ready than workers may prepare ahead: prefetch_factor of each.")
STAGES = Rule(
    "stages",
    "The stages of a batch, which come one after the other, take no longer than from its beginning to its end.",
)
TRACE_RULES = (OF_RUN, IN_ORDER, SUMS, HALVES, WORKER, READY, STAGES)


class Traces:
    """Holds the steps and the samples of some runs against their trials."""

    def __init__(self, trials: Rows) -> None:
        """Take all trials of the runs, ``TRACE_COLUMNS`` at least."""
        self._trials = trials
        self._ids = trials.column("trial_id").cast(pa.string())

    def check(self, table: str, parts: Iterable[Rows]) -> Iterator[Finding]:
        """List what is wrong with the rows of ``steps`` or ``telemetry``, which come in parts and in their order."""
        checks = {"steps": self._check_steps, "telemetry": self._check_samples}
        for rule, place, got, expected in checks[table](parts):
            yield rule.finding(f"{table}.parquet {place}", got, expected)

    def _check_steps(self, parts: Iterable[Rows]) -> Iterator[tuple[Rule, str, str, str]]:
        size, middle = len(self._ids), self._middle()
        workers, ahead = (np.nan_to_num(self._trials.number(name)) for name in ("num_workers", "prefetch_factor"))
        sums = {name: np.zeros(size) for name in _SUMMED}
        count, first_half, last = np.zeros(size), np.zeros(size), np.full(size, -1.0)
        keys: list[Codes] = []
        for rows in parts:
            at = self._places(rows)
            yield from self._strangers(rows, at)
            if at.min(initial=0) < 0:
                return
            step = rows.number("step")
            keys.append((at * STEPS_KEPT + step.astype(np.int64))[step < STEPS_KEPT])
            np.maximum.at(last, at, step)
            for name in _SUMMED:
                sums[name] += np.bincount(at, np.nan_to_num(rows.number(name)), size)
            count += np.bincount(at, minlength=size)
            early = np.sum([np.nan_to_num(rows.number(f"{phase}_ns")) for phase in PHASES], axis=0)
            first_half += np.bincount(at, np.nan_to_num(early) * (step < middle[at]), size)
            yield from self._check_workers(rows, workers[at])
            ready, most = rows.number("batches_ready"), (workers * ahead)[at]
            if (over := ready > most).any():
                row = int(np.argmax(over))
                place = f"column batches_ready row {rows.first + row}"
                yield READY, place, f"{ready[row]:g}", f"at most {most[row]:g}, num_workers × prefetch_factor"
        if keys:
            yield from self._check_counts(np.concatenate(keys), count, last)
        yield from self._check_sums(sums, count)
        yield from self._check_halves(np.sum([sums[f"{phase}_ns"] for phase in PHASES], axis=0), first_half, count)

    def _places(self, rows: Rows) -> Codes:
        """For each row the place of its trial; -1 where there is none."""
        texts = rows.text("trial_id")
        places = pc.fill_null(pc.index_in(texts.words, value_set=self._ids), -1).to_numpy(zero_copy_only=False)
        return np.append(places, -1)[texts.codes].astype(np.int64)

    def _strangers(self, rows: Rows, at: Codes) -> Iterator[tuple[Rule, str, str, str]]:
        """Find a row of no trial, or of another run."""
        for name, wrong in (("trial_id", at < 0), ("run_id", ~rows.text("run_id").one_of(rows.run.run_id))):
            if wrong.any():
                row = int(np.argmax(wrong))
                place = f"column {name} row {rows.first + row}"
                yield OF_RUN, place, quote(rows.text(name).text(row)), "the run, and a trial of it"
                return

    def _check_workers(self, rows: Rows, workers: Floats) -> Iterator[tuple[Rule, str, str, str]]:
        worker, begun, ended = (rows.number(name) for name in ("worker", "worker_begun_ns", "worker_ended_ns"))
        wrong = (worker >= workers) | (begun > ended)
        if wrong.any():
            row = int(np.argmax(wrong))
            got = f"worker {worker[row]:g} from {begun[row]:g} to {ended[row]:g} ns"
            yield WORKER, f"row {rows.first + row}", got, "one of num_workers, begun before it was ended"
        stamped = np.sum(
            [np.nan_to_num(rows.number(f"worker_{stage}_ns")) for stage in (*WORKER_STAGES, "getitem")], axis=0
        )
        # Stages share one clock with both ends, and lie between them: nothing but rounding is left open.
        if (longer := stamped > ended - begun + ROUNDED_NS).any():
            row = int(np.argmax(longer))
            place, got = f"columns worker_*_ns row {rows.first + row}", f"{stamped[row]:.0f} ns"
            yield STAGES, place, got, f"at most {ended[row] - begun[row]:.0f} ns, from its beginning to its end"

    def _check_counts(self, keys: Codes, count: Floats, last: Floats) -> Iterator[tuple[Rule, str, str, str]]:
        """Find a step that is there twice, or a trial whose steps do not count from 0."""
        each, times = np.unique(keys, return_counts=True)
        if (times > 1).any():
            at, step = divmod(int(each[np.argmax(times > 1)]), STEPS_KEPT)
            yield IN_ORDER, self._trial(at), f"step {step} is there twice", "each once"
            return
        most = np.minimum(np.nan_to_num(self._trials.number("steps")), STEPS_KEPT)
        wrong = (last + 1 != count) | (count > most)
        if wrong.any():
            at = int(np.argmax(wrong))
            got = f"{count[at]:g} steps, the last one {last[at]:g}"
            yield IN_ORDER, self._trial(at), got, f"0, 1, 2 … of its window, {STEPS_KEPT} at most"

    def _check_sums(self, sums: dict[str, Floats], count: Floats) -> Iterator[tuple[Rule, str, str, str]]:
        complete = count == self._trials.number("steps")
        for name, column in _SUMMED.items():
            own, summed = np.nan_to_num(self._trials.number(column)), sums[name]
            wrong = summed > own + ROUNDED_NS
            if name in _EXACT:
                wrong |= complete & (np.abs(summed - own) > ROUNDED_NS)
            if wrong.any():
                at = int(np.argmax(wrong))
                place = f"column {name} {self._trial(at)}"
                yield SUMS, place, f"a sum of {summed[at]:.0f}", f"{own[at]:.0f}, its {column}"
                return

    def _middle(self) -> Floats:
        """The step at which the second half of each window begins: whole epochs, or rounds of the workers."""
        number = self._trials.number
        epoch, workers = np.nan_to_num(number("epoch_steps")), np.nan_to_num(number("num_workers"))
        turn = np.where(epoch > 0, epoch, np.maximum(workers, 1))
        middle: Floats = np.nan_to_num(number("steps")) // 2 // turn * turn
        return middle

    def _check_halves(self, total: Floats, first_half: Floats, count: Floats) -> Iterator[tuple[Rule, str, str, str]]:
        """Compute the ratio of the halves anew where a trial ran on a CPU, in one process that trained."""
        number, middle = self._trials.number, self._middle()
        steps, own = number("steps"), number("half_ratio")
        plain = self._trials.text("device").one_of("cpu", null=True) & ~(number("world_size") > 1)
        plain &= (np.nan_to_num(number("vary_shapes")) == 0) & (count == steps) & (middle > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = ((steps - middle) / (total - first_half)) / (middle / first_half)
            wrong = plain & (np.abs(ratio / own - 1) > HALVES_WITHIN)
        if wrong.any():
            at = int(np.argmax(wrong))
            place = f"column half_ratio {self._trial(at)}"
            yield HALVES, place, f"{own[at]:.4g}", f"{ratio[at]:.4g} by its steps"

    def _trial(self, at: int) -> str:
        return f"trial {quote(self._ids[at].as_py())}"

    def _check_samples(self, parts: Iterable[Rows]) -> Iterator[tuple[Rule, str, str, str]]:
        last = np.full(len(self._ids) + 1, -np.inf)  # the last one: of rows that are of no trial
        for rows in parts:
            at = self._places(rows)
            yield from self._strangers(rows, at)
            order = np.argsort(at, kind="stable")
            trial, moments = at[order], rows.number("t_ns")[order]
            first = np.append(True, trial[1:] != trial[:-1])
            before = np.where(first, last[trial], np.roll(moments, 1))
            if (back := moments < before).any():
                row = int(order[back].min())
                expected = "the order of time"
                yield IN_ORDER, f"row {rows.first + row}", "a time before that of its trial's row before", expected
                return
            last[trial] = moments
