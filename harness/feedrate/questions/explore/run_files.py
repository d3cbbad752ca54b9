"""One file a run, with every cell and every measure in columns: what the pages Explore and Compare read.

A page fetches the files of the runs that it shows, and no others. Every name stands once. The same records give the
same bytes; a file's address carries a hash of its content, so that an index never meets files of another build.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.estimate import half_width
from feedrate.analysis.estimates import AXIS_NAMES
from feedrate.analysis.measures import COLUMNS, MEASURES, Measure, estimate_measures
from feedrate.analysis.summary import EMULATED
from feedrate.charts.figure import plain
from feedrate.pages import descriptions
from feedrate.pages.runs import RunView
from feedrate.questions.runs.facts import suites
from feedrate.schema.axes import EMULATED_STEPS
from feedrate.store.runs import rows

FORMAT = 1
"""Of all files that these pages read: a script of another build refuses what it does not know."""
RAN = {
    "train": "real training",
    EMULATED: "emulated step, no model",
    "load": "loading alone",
    "compute": "computing alone",
    "copy": "copying alone",
}
"""What ran, which is never drawn together: name in links to words."""
GIVEN = ("machine", "run", "tier", "device", "suite", "protocol_version", "workload_version", "data_hash", "ran")
"""What tells cells apart beside their axes."""
FACTS = (
    ("device", "device"),
    ("began", "started_at"),
    ("processor", "machine.cpu_model"),
    ("hardware threads", "machine.cores_logical"),
    ("cores", "machine.cores_physical"),
    ("cores by quota", "machine.cpu_quota_cores"),
    ("memory, bytes", "machine.memory_bytes"),
    ("memory limit, bytes", "machine.memory_limit_bytes"),
    ("GPU", "machine.gpu_name"),
    ("GPUs", "machine.gpu_count"),
    ("GPU memory, bytes", "machine.gpu_memory_bytes"),
    ("virtual machine", "machine.virtualised"),
    ("architecture", "machine.architecture"),
    ("system", "machine.distribution"),
    ("kernel", "machine.kernel"),
    ("file system of the data", "machine.storage.file_system"),
    ("disk of the data", "machine.storage.device_class"),
    ("I/O scheduler of the disk", "machine.storage.scheduler"),
    ("read-ahead of the disk, bytes", "machine.storage.read_ahead_bytes"),
    ("feedrate", "feedrate_version"),
    ("shortest window, seconds", "protocol.window_s"),
    ("repetitions", "blocks"),
    ("profile", "profile"),
)
"""What of a manifest is held against another's: name for people, path. All of ``software`` and ``runtime`` is, too."""


def json_text(value: object) -> str:
    """Write JSON, the same bytes for the same value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False) + "\n"


def about(view: RunView) -> dict[str, Any]:
    """Say what lists show of a run."""
    run = view.manifest
    return {
        "run": run.run_id,
        "machine": view.machine_id,
        "name": view.name,
        "device": run.device,
        "tier": view.beside.tier,
        "label": view.beside.label or run.script or "",
        "day": descriptions.day(run.started_at),
        "suites": sorted(suites(view)),
        "blocks": run.blocks,
        "page": view.page.replace(".md", ".html"),
    }


def path_of(view: RunView) -> str:
    """Say where the file of a run lies on the site."""
    return f"runs/{view.slug}/cells.json"


def run_file(view: RunView) -> str:
    """Write a run's file; empty for a run that timed nothing."""
    trials = rows([view.run.folder], [*COLUMNS, "role", "data_hash"])
    cells = estimate_measures(trials)
    if not len(cells):
        return ""
    hashes = trials.groupby("cell_id")["data_hash"].first()
    sleeps = cells["mode"].eq("train") & cells["step"].isin(EMULATED_STEPS)
    cells = cells.assign(
        machine=view.machine_id,
        run=view.manifest.run_id,
        tier=view.beside.tier,
        data_hash=cells["cell_id"].map(hashes),
        ran=cells["mode"].astype(object).where(~sleeps.astype(bool), EMULATED),
    )
    manifest = view.manifest.model_dump(mode="json")
    return json_text(
        {
            "format": FORMAT,
            "about": about(view),
            "facts": [[name, _fact(manifest, path)] for name, path in FACTS],
            "versions": {**manifest["software"], **manifest["runtime"]},
            "cell": cells["cell_id"].astype(str).tolist(),
            "dims": {name: _coded(cells[name]) for name in (*GIVEN, *AXIS_NAMES) if cells[name].notna().any()},
            "measures": {
                measure.name: _measured(cells, measure)
                for measure in MEASURES
                if cells[f"{measure.name}_n"].gt(0).any()
            },
            "logs": _logs(cells),
        }
    )


def settings(file: Mapping[str, Any]) -> list[str]:
    """Name the settings of a run as Compare does: the loops of a script have its name, whatever is set there."""
    cells = zip(column(file, "device"), file["cell"], column(file, "script"), column(file, "mode"), strict=True)
    return sorted({f"{device} {f'{script}, {mode}' if script else cell}" for device, cell, script, mode in cells})


def column(file: Mapping[str, Any], name: str) -> list[Any]:
    """Give a column of a run's file, a value a cell; None where it does not apply."""
    held = file["dims"].get(name, {"values": [], "codes": -1})
    codes = held["codes"] if isinstance(held["codes"], list) else [held["codes"]] * len(file["cell"])
    return [None if code < 0 else held["values"][code] for code in codes]


def _fact(manifest: Any, path: str) -> Any:
    for name in path.split("."):
        manifest = (manifest or {}).get(name)
    return manifest


def _coded(values: pd.Series) -> dict[str, Any]:
    """Write a column as its different values and, for each row, the place of its value; -1 is not applicable."""
    codes, names = pd.factorize(values)
    one = len(set(codes.tolist())) == 1
    return {"values": [plain(name) for name in names], "codes": int(codes[0]) if one else codes.tolist()}


def _measured(cells: pd.DataFrame, measure: Measure) -> dict[str, Any]:
    """Write a measure: means, their reach (a factor or a difference), and n where it differs from throughput's."""
    mean, low, high = (cells[f"{measure.name}{end}"].to_numpy() for end in ("", "_lo", "_hi"))
    with np.errstate(invalid="ignore", divide="ignore"):
        reach = high / mean if measure.logs else np.maximum(mean - low, high - mean)
    columns: dict[str, Any] = {"mean": _numbers(mean), "reach": _numbers(reach)}
    counts = cells[f"{measure.name}_n"]
    if measure.name == "samples_per_s" or not counts.equals(cells["n"]):
        columns["n"] = counts.tolist()
    return columns


def _numbers(values: npt.NDArray[np.float64], digits: int = 5) -> list[float | None]:
    """Round numbers to significant digits; what is not known is null."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values.tolist()]


def _logs(cells: pd.DataFrame) -> dict[str, list[float | None]]:
    """Moments of the logs of throughput, from which a comparison starts; nine digits, so that a ratio has three."""
    n = cells["n"].to_numpy(dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean, high = (np.log(cells[name].to_numpy(dtype=np.float64)) for name in ("samples_per_s", "samples_per_s_hi"))
        sd = (high - mean) / half_width(np.ones_like(n), n)
    return {"mean": _numbers(mean, 9), "sd": _numbers(sd, 9)}
