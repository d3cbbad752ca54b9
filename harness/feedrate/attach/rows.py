"""A script that was watched, as a run in the store: stretches of its loop are trials of one cell, a block each.

The cell is ``workload = script`` with the script's name and its loader's settings; what else a script does is not
known. A step's wait is its phase ``fetch``; what lies between is ``forward`` up to the last gradient, ``backward``,
``optimizer`` and ``other``. On CUDA ``device_idle_ns`` is the time for which the device had nothing to do when a batch
came. Whether a stretch is steady is not said, as the work of a script differs from step to step. What ``--headspace``
measured are cells of the modes ``compute`` and ``load``: ceilings of the training cell. Of a search each trial is one.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feedrate import __version__
from feedrate.attach import loop
from feedrate.attach.records import Loader, Records
from feedrate.attach.report import as_object
from feedrate.attach.run import Ended, Watched
from feedrate.attach.space import Setting
from feedrate.attach.trials import Trial
from feedrate.attach.tune import Session, Tuning
from feedrate.attach.tune_report import Result
from feedrate.machine.identity import Software, describe
from feedrate.machine.probes import gpu, noise
from feedrate.machine.probes.host import difference
from feedrate.plan.tuning import manifest_entry
from feedrate.schema.axes import AXES, BY_NAME, KNOBS, SCRIPT, TUNE, Cell, applicable, cell_id
from feedrate.schema.columns import PHASES, PROTOCOL_VERSION, STEPS_KEPT
from feedrate.schema.redaction import scrub
from feedrate.store import runs
from feedrate.store.manifest import Counted, Protocol, RunManifest

CEILING_BLOCKS = 6
"""Stretches that a ceiling's steps are cut into."""
NEAR = 0.25
"""Counters that were read within this share of a stretch from its ends are taken for those at its ends."""
_SETTINGS = tuple(axis.name for axis in AXES if axis.of_scripts and axis.name in KNOBS)
_TIMED = tuple(phase for phase in PHASES if phase != "h2d")
"""Phases of a script's step; a copy to the device is not told from what follows."""
_WITHIN = ("backward_ns", "optimizer_ns", "forward_ns")
"""Parts of a step that are known of detailed ones alone."""
_STAGES = ("getitem", "collate")


def save(ended: Ended, results: Path, name: str) -> runs.StoredRun | None:
    """Write a script's run; None where its loop was too short to measure.

    Raises:
        InputError: the name is none.
        EnvironmentFault: it cannot be written.
    """
    BY_NAME["script"].checked(name, "--name")
    loader, pacing = ended.report.loader, ended.report.pacing
    if loader is None or pacing is None:
        return None
    rows = _whole(ended, loader, name)
    blocks = (loop.LEAST_STRETCHES, loop.MOST_STRETCHES)
    return _write(
        rows,
        results,
        ended,
        as_object(ended.report),
        ended.report.took_s,
        command=f"feedrate run -- {name}",
        protocol=Protocol(warmup_s=0, window_s=0, min_steps=1, blocks=blocks, timeout_s=0),
        combinations=1,
        cells=1,
        blocks=pacing.stretches,
        stop_reason="interrupted" if ended.returncode < 0 else "ended",
        control=rows.trials[0]["cell_id"],
        ceilings=len({trial["cell_id"] for trial in rows.trials}) - 1,
    )


def save_search(
    session: Session, result: Result, results: Path, name: str, budget_s: float, report: Mapping[str, Any]
) -> runs.StoredRun:
    """Write the run of a search: every trial, and what they showed.

    Raises:
        EnvironmentFault: it cannot be written.
    """
    tuning, first = session.tuning, session.starts[0]
    rows = Rows(name, first.watched, first.started_at, "cuda" if tuning.cuda else "cpu", TUNE)
    rows.samples = chain.from_iterable(start.watched.samples for start in session.starts)
    positions = Counter[int]()
    for tried in tuning.tried:
        rows.watched = [one.watched for one in session.starts if one.watched.began_ns <= tried.ended_ns][-1]
        _add_tried(rows, tried, _search_cell(rows, tuning, tried.setting), positions[tried.block])
        positions[tried.block] += 1

    def identify(setting: Setting) -> str:
        return cell_id(_search_cell(rows, tuning, setting))

    reason, counted = "target" if result.outcome.settled else "budget", result.entry
    return _write(
        rows,
        results,
        session.ended,
        report,
        session.took_s,
        command=f"feedrate tune -- {name}",
        protocol=Protocol(warmup_s=0, window_s=tuning.window_s, min_steps=1, blocks=(1, 100), timeout_s=0),
        budget_s=budget_s if math.isfinite(budget_s) else None,
        seed=tuning.seed,
        combinations=counted.settings,
        cells=len({trial["cell_id"] for trial in rows.trials}),
        excluded=tuple(Counted(count=count, reason=reason) for reason, count in result.excluded.items()),
        blocks=len(positions),
        stop_reason="interrupted" if tuning.ended == "interrupted" else reason,
        control=identify(result.present),
        tuned=(
            manifest_entry(
                result.search, identify, settings=counted.settings, trials=counted.trials, gain=counted.gain
            ),
        ),
    )


def _search_cell(rows: Rows, tuning: Tuning, setting: Setting) -> Cell:
    """The axes of the script with the settings of a trial."""
    method = (tuning.loader.get("start_method") or "fork") if setting.num_workers else None
    size = setting.batch_size or int(tuning.loader.get("batch_size") or 1)
    return rows.cell({"start_method": method, "ranks": 1, **dict(setting.knobs())}, size)


def _add_tried(rows: Rows, tried: Trial, cell: Cell, position: int) -> None:
    """Add a trial of a search; one that failed is a row, too."""
    where, window = {"block": tried.block, "position": position}, tried.window
    if window is not None and len(steps := with_phases(window.steps)):
        rows.add_stretch(cell, steps, window.loader, **where)
        return
    error = {"outcome": "error", "error_kind": "LoaderFailed", "error_message": scrub(tried.error)}
    rows.add(cell, tried.told.get("begun_ns") or tried.ended_ns, error | {"trial_wall_ns": 0}, **where)


def _whole(ended: Ended, loader: Loader, name: str) -> Rows:
    """Rows of a script that ran as it is: stretches of its loop, and of its stages alone."""
    device = "cuda" if loader.steps["cuda"].any() else "cpu"
    rows = Rows(name, ended.watched, ended.started_at, device)
    # A sampler of batches may not say their size, or exceed it.
    size = max(int(loader.settings.get("batch_size") or 1), int(loader.batches["samples"].to_numpy().max(initial=1)))
    every = with_phases(loop.whole_steps(loader))
    for places in loop.stretches(every, loop.workers_of(loader)):
        rows.add_stretch(rows.cell(loader.settings, size), every.iloc[places], loader)
    for mode, phase in (("compute", "other"), ("load", "fetch")):
        if len(times := ended.alone.get(mode, ())) > CEILING_BLOCKS:
            rows.add_ceiling(rows.cell(loader.settings, size, mode), phase, np.asarray(times))
    return rows


def _write(
    rows: Rows, results: Path, ended: Ended, report: Mapping[str, Any], took_s: float, **fields: Any
) -> runs.StoredRun:
    """Write a run; its manifest holds ``own`` and what is alike of a script that was watched and one that was tuned."""
    manifest: dict[str, Any] = {
        "feedrate_version": __version__,
        "run_id": rows.run_id,
        "machine": rows.machine,
        "software": Software(**{k: text for k, text in ended.versions.items() if k in Software.model_fields}),
        "device": rows.device,
        "runtime": {"cuda": ended.versions.get("cuda")},
        "profile": rows.suite,
        "suites": {rows.suite: {}},
        "budget_s": None,
        "seed": 0,
        "merged": (),
        "excluded": (),
        "substitutions": (),
        "datasets": (),
        "started_at": rows.started_at.isoformat(timespec="seconds"),
        "ended_at": (rows.started_at + timedelta(seconds=took_s)).isoformat(timespec="seconds"),
        "outcomes": dict(Counter(trial["outcome"] for trial in rows.trials)),
        "cell_seconds": {},
        "parent_cpu_pct": ended.parent_cpu_pct,
    }
    return runs.write_run(
        runs.outbox(results) / rows.machine.machine_id / rows.run_id,
        RunManifest(**manifest | fields),
        [{"trials": rows.trials, "steps": rows.steps, "telemetry": rows.telemetry()}],
        json.dumps(report, indent=1).encode() + b"\n",
    )


class Rows:
    """Rows of the three tables of a script's run."""

    def __init__(self, name: str, watched: Watched, started_at: datetime, device: str, suite: str = SCRIPT) -> None:
        """Begin a run; ``suite`` is what its trials are measured for."""
        self.name, self.watched, self.started_at, self.device, self.suite = name, watched, started_at, device, suite
        self.samples: Iterable[Mapping[str, Any]] = watched.samples
        """Telemetry, that of other starts included where a script was started again."""
        self.began_ns = watched.began_ns
        """When it was started, on the monotonic clock."""
        self.machine = describe(gpu.installed())
        self.run_id = runs.new_id(started_at)
        self.trials: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []
        self._windows: list[tuple[int, int, str]] = []
        """Begin, end and trial of each, on the monotonic clock."""

    def cell(self, settings: Mapping[str, Any], batch_size: int, mode: str = "train") -> Cell:
        """Give the axes of the script with a loader's settings, or of one of its stages alone."""
        given = {axis: settings[axis] for axis in _SETTINGS if settings.get(axis) is not None}
        if (ranks := settings["ranks"]) > 1:
            given |= {"parallel": "ddp", "world_size": ranks}
        axes = {"workload": SCRIPT, "script": self.name, "mode": mode, "batch_size": batch_size}
        cell = applicable({axis.name: axis.default for axis in AXES} | given | axes, self.device)[0]
        # How a script copies is not known unless it was told.
        return {name: value for name, value in cell.items() if name != "non_blocking" or name in given}

    def add(
        self, cell: Cell, begun: int, row: Mapping[str, Any], block: int | None = None, position: int = 0
    ) -> dict[str, Any]:
        """Add a trial; by default it is a block of its own, as nothing else ran at its time."""
        block = len(self.trials) if block is None else block
        began = self.started_at + timedelta(microseconds=(begun - self.began_ns) / 1e3)
        whole = {
            "run_id": self.run_id,
            "machine_id": self.machine.machine_id,
            "suite": self.suite,
            "device": self.device,
            "protocol_version": PROTOCOL_VERSION,
            **cell,
            "trial_id": f"{self.run_id}-{block:03d}-{position:04d}",
            "cell_id": cell_id(cell),
            "role": "cell" if cell["mode"] == "train" else "ceiling",
            "block": block,
            "position": position,
            "started_at": began.astimezone(UTC).isoformat(timespec="milliseconds"),
            "outcome": "ok",
            **row,
        }
        self.trials.append(whole | {"flags": noise.flags(whole)})
        return self.trials[-1]

    def _add_timed(self, cell: Cell, begun: int, ended: int, row: Mapping[str, Any], **where: int) -> str:
        """Add a trial that ended well, and what the probes saw meanwhile."""
        seen = {
            "samples_per_s": 1e9 * row["samples"] / row["wall_ns"],
            "trial_wall_ns": row["wall_ns"],
            **_between(self.watched, begun, ended),
            **(gpu.window(self.watched.samples, begun, ended) if self.device == "cuda" else {}),
        }
        trial_id = str(self.add(cell, begun, {**seen, **row}, **where)["trial_id"])
        self._windows.append((begun, ended, trial_id))
        return trial_id

    def add_stretch(self, cell: Cell, stretch: pd.DataFrame, loader: Loader, **where: int) -> None:
        """Add a stretch of the loop (``with_phases``), and its first steps; by default as a block of its own."""
        wall = int(stretch["wall_ns"].sum())
        if not stretch["detailed"].all():  # a sum of some would not be that of all
            stretch = stretch.assign(
                **dict.fromkeys(_WITHIN, np.nan), other_ns=stretch["wall_ns"] - stretch["fetch_ns"]
            )
        begun, ended = _begin(stretch), int(stretch["ended_ns"].iloc[-1])
        row = {
            "steps": len(stretch),
            "samples": int(stretch["samples"].fillna(cell["batch_size"]).sum()) * int(loader.settings["ranks"]),
            "wall_ns": wall,
            "epochs": int(stretch["first"].sum()),
            "half_ratio": _half_ratio(stretch, loop.workers_of(loader)),
        }
        row |= {
            f"host_{phase}_ns": int(stretch[f"{phase}_ns"].sum())
            for phase in _TIMED
            if stretch[f"{phase}_ns"].notna().all()
        }
        if stretch["getitem_ns"].notna().all():
            row |= {f"worker_{stage}_ns": int(stretch[f"{stage}_ns"].sum()) for stage in _STAGES}
        else:
            stretch = stretch.assign(**dict.fromkeys((f"{stage}_ns" for stage in _STAGES), np.nan))
        if stretch["cuda"].all():
            row["device_idle_ns"] = int(stretch["starved_ns"].sum())
        if where or not self.trials:
            first = loader.steps.iloc[0]
            before = {
                "startup_ns": int(first["got_ns"] - first["made_ns"]),
                "warmup_ns": max(0, begun - int(first["got_ns"])),
            }
            steps = int((loader.steps["begun_ns"] < stretch["begun_ns"].iloc[0]).sum())
            row |= before | {"warmup_steps": steps, "trial_wall_ns": wall + sum(before.values())}
        trial_id = self._add_timed(cell, begun, ended, row, **where)
        self._add_steps(stretch.head(STEPS_KEPT), begun, trial_id)

    def _add_steps(self, stretch: pd.DataFrame, zero_ns: int, trial_id: str) -> None:
        names = {
            **{f"{phase}_ns": f"{phase}_ns" for phase in _TIMED},
            **({"device_idle_ns": "starved_ns"} if self.device == "cuda" else {}),
            **{f"worker_{stage}_ns": f"{stage}_ns" for stage in _STAGES},
            **{f"worker_{end}_ns": f"prepared_{end}_ns" for end in ("begun", "ended")},
            "batches_ready": "lying",
            "worker": "worker",
        }
        table = stretch.assign(
            **{name: stretch[name].where(stretch[name] >= 0) for name in ("lying", "worker")},
            **{name: stretch[name] - zero_ns for name in ("prepared_begun_ns", "prepared_ended_ns")},
        )
        key = {"run_id": self.run_id, "trial_id": trial_id}
        columns = [table[column].to_numpy(np.float64, na_value=np.nan).tolist() for column in names.values()]
        for step, values in enumerate(zip(*columns, strict=True)):
            counts = (None if math.isnan(value) else int(value) for value in values)
            self.steps.append(key | {"step": step} | dict(zip(names, counts, strict=True)))

    def add_ceiling(self, cell: Cell, phase: str, times: Records) -> None:
        """Add what the step, or the loader, did alone: when each step or batch began."""
        for chunk in np.array_split(np.arange(len(times) - 1), CEILING_BLOCKS):
            begun, ended = int(times[chunk[0]]), int(times[chunk[-1] + 1])
            wall = {"wall_ns": ended - begun, f"host_{phase}_ns": ended - begun}
            row = {"steps": len(chunk), "samples": len(chunk) * int(str(cell["batch_size"])), **wall}
            self._add_timed(cell, begun, ended, row)

    def telemetry(self) -> list[dict[str, Any]]:
        """Samples of the probes, each of the trial that was running or had run last."""
        windows, rows = sorted(self._windows), []
        starts = [begun for begun, _, _ in windows]
        for sample in self.samples if windows else ():
            begun, ended, trial_id = windows[max(0, int(np.searchsorted(starts, sample["t_ns"], side="right")) - 1)]
            fields = {"t_ns": sample["t_ns"] - self.began_ns, "in_window": begun <= sample["t_ns"] <= ended}
            rows.append({"run_id": self.run_id, "trial_id": trial_id, **sample, **fields})
        return rows


def _between(watched: Watched, begun: int, ended: int) -> dict[str, Any]:
    """What host and processes did in a stretch, as columns of trials; nothing where it was too short to be seen."""
    counters = [counter for counter in watched.counters if counter.main_cpu_ns is not None]
    if len(counters) < 2:
        return {}
    times = np.array([counter.machine.t_ns for counter in counters])
    first, last = (int(np.abs(times - moment).argmin()) for moment in (begun, ended))
    near = max(abs(int(times[first]) - begun), abs(int(times[last]) - ended)) <= NEAR * (ended - begun)
    held = [columns for moment, columns in watched.memory if begun <= moment <= ended]
    return (difference(counters[first], counters[last]) if near and first < last else {}) | (held[-1] if held else {})


def _begin(stretch: pd.DataFrame) -> int:
    """When the first of some steps began, the making of its iterator included."""
    first = stretch.iloc[0]
    return int(first["made_ns"] if first["first"] else first["begun_ns"])


def with_phases(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps with the phases that the tables have, which fill each step; what is no other phase is ``other_ns``."""
    prepared = steps["prepared_ended_ns"] - steps["prepared_begun_ns"]
    phased, left = steps.assign(fetch_ns=steps["wait_ns"], getitem_ns=prepared - steps["collate_ns"]), steps["wall_ns"]
    # An optimizer that steps before the first gradient does so within ``forward``.
    for name in ("fetch_ns", *_WITHIN):
        phased[name] = np.minimum(phased[name], left)
        left = left - phased[name].fillna(0)
    return phased.assign(other_ns=left)


def _half_ratio(stretch: pd.DataFrame, num_workers: int) -> float | None:
    """Throughput of the second half of some steps over that of the first; halves end on a multiple of the workers."""
    turn = max(1, num_workers)
    middle = len(stretch) // 2 // turn * turn
    first, second = stretch["wall_ns"].iloc[:middle], stretch["wall_ns"].iloc[middle:]
    return float(first.mean() / second.mean()) if middle else None
