"""A search in the store: every trial is kept when it ends, an interrupted search resumes, one that ended is a run."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from feedrate import __version__
from feedrate.attach.rows import Rows, script_cell, with_phases
from feedrate.attach.run import Watched
from feedrate.attach.space import Setting
from feedrate.attach.trials import Trial, Window
from feedrate.attach.tune import Session, Tuning
from feedrate.attach.tune_report import Result
from feedrate.machine.identity import Software, describe
from feedrate.machine.probes import gpu
from feedrate.plan.tuning import told
from feedrate.schema.axes import TUNE, cell_id
from feedrate.schema.redaction import scrub
from feedrate.store import runs
from feedrate.store.manifest import Counted, Protocol, RunManifest


class Journal:
    """The trials of a search, as they end."""

    def __init__(self, machine_folder: Path, name: str, key: Sequence[str], *, fresh: bool) -> None:
        """Resume the unfinished search of the same command, or begin one.

        Args:
            machine_folder: where the machine's runs lie.
            name: what the script is called in records.
            key: what must be equal for a search to be the same.
            fresh: leave an unfinished one alone.
        """
        self.name, self.resumed = name, list[Trial]()
        own = hashlib.sha256("\0".join((*key, __version__)).encode()).hexdigest()[:16]
        found = [path for path, begun in runs.unfinished(machine_folder) if begun["key"] == own and not fresh]
        now = datetime.now(UTC)
        if found:
            self.folder = found[-1]
            begun = json.loads((self.folder / "plan.json").read_text(encoding="utf-8"))
        else:
            begun = {"key": own, "seed": secrets.randbits(32), "started_at": now.isoformat(timespec="seconds")}
            self.folder = runs.begin(machine_folder, runs.new_id(now), begun)
        self.seed, self.started_at = int(begun["seed"]), str(begun["started_at"])
        self._journal = runs.Journal(self.folder)
        for entry in self._journal.entries():
            kept = entry["tried"]
            self.resumed.append(Trial(**kept | {"setting": Setting(*kept["setting"])}))
        self._rows: Rows | None = None
        self._sampled_ns = 0

    def keep(self, tuning: Tuning, watched: Watched, tried: Trial, window: Window | None) -> None:
        """Keep a trial that has ended; returns when the disk has it."""
        rows = self._rows = self._rows or self._begin(tuning, watched)
        rows.watched = watched
        before = len(rows.steps)
        position = sum(each.block == tried.block for each in tuning.tried) - 1
        place = {"block": tried.block, "position": position}
        cell = rows.cell(self._settings(tuning, tried.setting), self._size(tuning, tried.setting))
        if window is None or not len(part := with_phases(window.steps)):
            error = {"outcome": "error", "error_kind": "LoaderFailed", "error_message": scrub(tried.error)}
            rows.add(cell, tried.told.get("begun_ns") or time.perf_counter_ns(), error | {"trial_wall_ns": 0}, **place)
        else:
            rows.add_stretch(cell, part, window.loader, **place)
        trial = rows.trials[-1]
        samples = [each for each in watched.samples if each["t_ns"] > self._sampled_ns]
        self._sampled_ns = max((each["t_ns"] for each in samples), default=self._sampled_ns)
        begun, ended = (tried.told.get(end, 0) for end in ("begun_ns", "ended_ns"))
        key = {"run_id": rows.run_id, "trial_id": trial["trial_id"]}
        telemetry = [
            key | sample | {"t_ns": sample["t_ns"] - rows.began_ns, "in_window": begun <= sample["t_ns"] <= ended}
            for sample in samples
        ]
        kept = {"block": tried.block, "setting": list(tried.setting), "error": tried.error, "told": dict(tried.told)}
        kept["preparing_ns"] = tried.preparing_ns
        self._journal.append({"trial": trial, "steps": rows.steps[before:], "telemetry": telemetry, "tried": kept})

    def _begin(self, tuning: Tuning, watched: Watched) -> Rows:
        started_at = datetime.fromisoformat(self.started_at)
        rows = Rows(self.name, watched, started_at, "cuda" if tuning.cuda else "cpu", TUNE)
        # The clock of this session, at the moment when the first one began: trials of all lie one after the other.
        rows.began_ns = time.perf_counter_ns() - int(1e9 * (datetime.now(UTC) - started_at).total_seconds())
        rows.run_id = self.folder.name
        return rows

    def _settings(self, tuning: Tuning, setting: Setting) -> dict[str, Any]:
        """A loader's settings with those of a trial."""
        given = {name: value for name, value in setting._asdict().items() if value is not None}
        method = tuning.loader.get("start_method") or "fork"
        return {"start_method": method if setting.num_workers else None, "ranks": 1, **given}

    def _size(self, tuning: Tuning, setting: Setting) -> int:
        return setting.batch_size or int(tuning.loader.get("batch_size") or 1)

    def close(self) -> None:
        """Let go of the file; what it holds can be resumed."""
        self._journal.close()

    def discard(self) -> None:
        """Leave nothing: no trial had ended."""
        self.close()
        runs.discard(self.folder)

    def write(self, session: Session, found: Result, budget_s: float, report: Mapping[str, Any]) -> runs.StoredRun:
        """Make a run of the search, which has ended."""
        self.close()
        tuning, ended = session.tuning, session.ended
        machine = describe(gpu.installed())
        entries = [entry for chunk in runs.journal_chunks(self.folder) for entry in chunk]
        trials = [entry["trial"] for entry in entries]
        others = {name: [row for entry in entries for row in entry[name]] for name in ("steps", "telemetry")}
        device = "cuda" if tuning.cuda else "cpu"

        def identify(setting: Setting) -> str:
            size = self._size(tuning, setting)
            return cell_id(script_cell(self.name, self._settings(tuning, setting), size, "train", device))

        manifest = RunManifest(
            feedrate_version=__version__,
            run_id=self.folder.name,
            machine=machine,
            software=Software(**{k: v for k, v in ended.versions.items() if k in Software.model_fields}),
            device=device,
            runtime={"cuda": ended.versions.get("cuda")},
            command=f"feedrate tune -- {self.name}",
            profile=TUNE,
            suites={TUNE: {}},
            protocol=Protocol(warmup_s=0, window_s=tuning.window_s, min_steps=1, blocks=(1, 100), timeout_s=0),
            budget_s=budget_s if math.isfinite(budget_s) else None,
            seed=self.seed,
            combinations=found.settings,
            cells=len({trial["cell_id"] for trial in trials}),
            merged=(),
            excluded=tuple(Counted(count=count, reason=reason) for reason, count in found.excluded.items()),
            substitutions=(),
            datasets=(),
            started_at=self.started_at,
            ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
            blocks=len({trial["block"] for trial in trials}),
            stop_reason="target" if found.outcome.known else "budget",
            control=identify(found.present),
            outcomes=dict(Counter(trial["outcome"] for trial in trials)),
            cell_seconds={},
            parent_cpu_pct=ended.parent_cpu_pct,
            tuned=(told(found.search, identify, settings=found.settings, trials=found.trials, gain=found.gain_ends),),
        )
        return runs.write_run(
            self.folder, manifest, [{"trials": trials, **others}], json.dumps(report, indent=1).encode() + b"\n"
        )
