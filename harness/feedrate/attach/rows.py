"""A script that was watched, as a run in the store: stretches of its loop are trials of one cell, a block each.

The cell is ``workload = script`` with the script's name and its loader's settings; what else a script does is not
known. A step's wait is its phase ``fetch``; what lies between is ``forward`` up to the first gradient, ``backward``,
``optimizer`` and ``other``. On CUDA ``device_idle_ns`` is the time for which the device had nothing to do when a batch
came. Whether a stretch is steady is not said, as the work of a script differs from step to step. What ``--headspace``
measured are cells of the modes ``compute`` and ``load``: ceilings of the training cell.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feedrate import __version__
from feedrate.attach import loop
from feedrate.attach.records import Loader, Records
from feedrate.attach.report import as_object
from feedrate.attach.run import Ended
from feedrate.machine.identity import Software, describe
from feedrate.machine.probes import gpu, noise
from feedrate.schema.axes import AXES, BY_NAME, SCRIPT, Cell, applicable, cell_id
from feedrate.schema.columns import PHASES, PROTOCOL_VERSION, STEPS_KEPT
from feedrate.store import runs
from feedrate.store.manifest import Protocol, RunManifest

CEILING_BLOCKS = 6
"""Stretches that a ceiling's steps are cut into."""
_SETTINGS = ("num_workers", "prefetch_factor", "start_method", "persistent_workers", "pin_memory")
_TIMED = tuple(phase for phase in PHASES if phase != "h2d")
"""Phases of a script's step; a copy to the device is not told from what follows."""
_WITHIN = ("backward_ns", "optimizer_ns", "forward_ns")
"""Parts of a step that are known of detailed ones alone."""
_STAGES = ("getitem", "collate")


def save(ended: Ended, results: Path, name: str) -> runs.StoredRun | None:
    """Write a script's run; None where its loop was too short to measure.

    Args:
        ended: the script.
        results: where runs are written.
        name: what the script is called in records (``axis.FREE_NAME``).

    Raises:
        InputError: the name is none.
        EnvironmentFault: it cannot be written.
    """
    BY_NAME["script"].checked(name, "--name")
    loader, pacing = ended.report.loader, ended.report.pacing
    if loader is None or pacing is None:
        return None
    rows = _Rows(ended, loader, name)
    trials = rows.trials
    manifest = RunManifest(
        feedrate_version=__version__,
        run_id=rows.run_id,
        machine=rows.machine,
        software=Software(**{name: text for name, text in ended.versions.items() if name in Software.model_fields}),
        device=rows.device,
        runtime={"cuda": ended.versions.get("cuda")},
        command=f"feedrate run -- {name}",
        profile=SCRIPT,
        suites={SCRIPT: {}},
        protocol=Protocol(
            warmup_s=0, window_s=0, min_steps=1, blocks=(loop.LEAST_STRETCHES, loop.MOST_STRETCHES), timeout_s=0
        ),
        budget_s=None,
        seed=0,
        combinations=1,
        cells=1,
        merged=(),
        excluded=(),
        substitutions=(),
        datasets=(),
        started_at=ended.started_at.isoformat(timespec="seconds"),
        ended_at=(ended.started_at + timedelta(seconds=ended.report.took_s)).isoformat(timespec="seconds"),
        blocks=pacing.stretches,
        stop_reason="interrupted" if ended.returncode < 0 else "ended",
        control=trials[0]["cell_id"],
        ceilings=len({trial["cell_id"] for trial in trials}) - 1,
        outcomes={"ok": len(trials)},
        cell_seconds={},
        parent_cpu_pct=ended.parent_cpu_pct,
    )
    folder = results / rows.machine.machine_id / rows.run_id
    tables = {"trials": trials, "steps": rows.steps, "telemetry": rows.telemetry()}
    report = json.dumps(as_object(ended.report), indent=1).encode() + b"\n"
    runs.write_run(folder, manifest, [tables], report)
    return runs.StoredRun(folder, manifest)


class _Rows:
    """Rows of the three tables."""

    def __init__(self, ended: Ended, loader: Loader, name: str) -> None:
        self._ended, self._loader, self._name = ended, loader, name
        self._settings = self._loader.settings
        # A sampler of batches may not say their size, or exceed it.
        self._size = max(
            int(self._settings.get("batch_size") or 1), int(loader.batches["samples"].to_numpy().max(initial=1))
        )
        self.machine = describe(gpu.installed())
        self.device = "cuda" if self._loader.steps["cuda"].any() else "cpu"
        self.run_id = runs.new_id(ended.started_at)
        self.trials: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []
        self._windows: list[tuple[int, int, str]] = []
        """Begin, end and trial of each, on the monotonic clock."""
        every = _with_phases(loop.whole_steps(self._loader))
        for places in loop.stretches(every, loop.workers_of(self._loader)):
            self._add_stretch(every.iloc[places])
        for mode, phase in (("compute", "other"), ("load", "fetch")):
            if len(times := ended.alone.get(mode, ())) > CEILING_BLOCKS:
                self._add_ceiling(mode, phase, np.asarray(times))

    def _cell(self, mode: str) -> Cell:
        """The axes of the script, or of one of its stages alone."""
        told = {name: self._settings[name] for name in _SETTINGS if self._settings.get(name) is not None}
        if (ranks := self._settings["ranks"]) > 1:
            told |= {"parallel": "ddp", "world_size": ranks}
        own = {"workload": SCRIPT, "script": self._name, "mode": mode, "batch_size": self._size}
        return applicable({axis.name: axis.default for axis in AXES} | told | own, self.device)[0]

    def _add(self, mode: str, begun: int, ended: int, row: Mapping[str, Any]) -> str:
        """Add a trial that ended well: a block of its own, as nothing else ran at its time."""
        block = len(self.trials)
        cell, trial_id = self._cell(mode), f"{self.run_id}-{block:03d}-0000"
        began = self._ended.started_at + timedelta(microseconds=(begun - self._ended.watched.began_ns) / 1e3)
        whole = {
            "run_id": self.run_id,
            "machine_id": self.machine.machine_id,
            "suite": SCRIPT,
            "device": self.device,
            "protocol_version": PROTOCOL_VERSION,
            **cell,
            "trial_id": trial_id,
            "cell_id": cell_id(cell),
            "role": "cell" if mode == "train" else "ceiling",
            "block": block,
            "position": 0,
            "started_at": began.astimezone(UTC).isoformat(timespec="milliseconds"),
            "outcome": "ok",
            "samples_per_s": 1e9 * row["samples"] / row["wall_ns"],
            "trial_wall_ns": row["wall_ns"],
            **self._ended.watched.between(begun, ended),
            **(gpu.window(self._ended.watched.samples, begun, ended) if self.device == "cuda" else {}),
            **row,
        }
        self.trials.append(whole | {"flags": noise.flags(whole)})
        self._windows.append((begun, ended, trial_id))
        return trial_id

    def _add_stretch(self, part: pd.DataFrame) -> None:
        """Add a stretch of the loop, and its first steps."""
        wall = int(part["wall_ns"].sum())
        if not part["detailed"].all():  # a sum of some would not be that of all
            part = part.assign(**dict.fromkeys(_WITHIN, np.nan), other_ns=part["wall_ns"] - part["fetch_ns"])
        begun, ended = _begin(part), int(part["ended_ns"].iloc[-1])
        row = {
            "steps": len(part),
            "samples": int(part["samples"].fillna(self._size).sum()) * int(self._settings["ranks"]),
            "wall_ns": wall,
            "epochs": int(part["first"].sum()),
            "half_ratio": _half_ratio(part, loop.workers_of(self._loader)),
        }
        row |= {
            f"host_{phase}_ns": int(part[f"{phase}_ns"].sum()) for phase in _TIMED if part[f"{phase}_ns"].notna().all()
        }
        if part["getitem_ns"].notna().all():
            row |= {f"worker_{stage}_ns": int(part[f"{stage}_ns"].sum()) for stage in _STAGES}
        else:
            part = part.assign(**dict.fromkeys((f"{stage}_ns" for stage in _STAGES), np.nan))
        if part["cuda"].all():
            row["device_idle_ns"] = int(part["starved_ns"].sum())
        if not self.trials:
            first = self._loader.steps.iloc[0]
            before = {
                "startup_ns": int(first["got_ns"] - first["made_ns"]),
                "warmup_ns": max(0, begun - int(first["got_ns"])),
            }
            steps = int((self._loader.steps["begun_ns"] < part["begun_ns"].iloc[0]).sum())
            row |= before | {"warmup_steps": steps, "trial_wall_ns": wall + sum(before.values())}
        trial_id = self._add("train", begun, ended, row)
        self._add_steps(part.head(STEPS_KEPT), begun, trial_id)

    def _add_steps(self, part: pd.DataFrame, zero_ns: int, trial_id: str) -> None:
        names = {
            **{f"{phase}_ns": f"{phase}_ns" for phase in _TIMED},
            **({"device_idle_ns": "starved_ns"} if self.device == "cuda" else {}),
            **{f"worker_{stage}_ns": f"{stage}_ns" for stage in _STAGES},
            **{f"worker_{end}_ns": f"prepared_{end}_ns" for end in ("begun", "ended")},
            "batches_ready": "lying",
            "worker": "worker",
        }
        own = part.assign(
            **{name: part[name].where(part[name] >= 0) for name in ("lying", "worker")},
            **{name: part[name] - zero_ns for name in ("prepared_begun_ns", "prepared_ended_ns")},
        )
        frame = pd.DataFrame({name: own[column] for name, column in names.items()}).astype("Int64").astype(object)
        key = {"run_id": self.run_id, "trial_id": trial_id}
        rows = frame.where(frame.notna(), None).to_dict("records")
        self.steps += [
            key | {"step": step, **{str(name): value for name, value in row.items()}} for step, row in enumerate(rows)
        ]

    def _add_ceiling(self, mode: str, phase: str, times: Records) -> None:
        """Add what the step, or the loader, did alone: when each step or batch began."""
        for part in np.array_split(np.arange(len(times) - 1), CEILING_BLOCKS):
            begun, ended = int(times[part[0]]), int(times[part[-1] + 1])
            wall = {"wall_ns": ended - begun, f"host_{phase}_ns": ended - begun}
            row = {"steps": len(part), "samples": len(part) * self._size, **wall}
            self._add(mode, begun, ended, row)

    def telemetry(self) -> list[dict[str, Any]]:
        """Samples of the probes, each of the trial that was running or had run last."""
        windows, rows = sorted(self._windows), []
        starts = [begun for begun, _, _ in windows]
        for sample in self._ended.watched.samples:
            begun, ended, trial_id = windows[max(0, int(np.searchsorted(starts, sample["t_ns"], side="right")) - 1)]
            own = {"t_ns": sample["t_ns"] - self._ended.watched.began_ns, "in_window": begun <= sample["t_ns"] <= ended}
            rows.append({"run_id": self.run_id, "trial_id": trial_id, **sample, **own})
        return rows


def _begin(part: pd.DataFrame) -> int:
    """When the first of some steps began, the making of its iterator included."""
    first = part.iloc[0]
    return int(first["made_ns"] if first["first"] else first["begun_ns"])


def _with_phases(steps: pd.DataFrame) -> pd.DataFrame:
    """Steps with the phases that the tables have, which fill each step; what is no other phase is ``other_ns``."""
    prepared = steps["prepared_ended_ns"] - steps["prepared_begun_ns"]
    found, left = steps.assign(fetch_ns=steps["wait_ns"], getitem_ns=prepared - steps["collate_ns"]), steps["wall_ns"]
    # An optimizer that steps before the first gradient does so within ``forward``.
    for name in ("fetch_ns", *_WITHIN):
        found[name] = np.minimum(found[name], left)
        left = left - found[name].fillna(0)
    return found.assign(other_ns=left)


def _half_ratio(part: pd.DataFrame, num_workers: int) -> float | None:
    """Throughput of the second half of some steps over that of the first; halves end on a multiple of the workers."""
    turn = max(1, num_workers)
    middle = len(part) // 2 // turn * turn
    first, second = part["wall_ns"].iloc[:middle], part["wall_ns"].iloc[middle:]
    return float(first.mean() / second.mean()) if middle else None
