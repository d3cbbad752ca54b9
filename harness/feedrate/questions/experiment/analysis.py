"""The experiment that the sources' figures come from, as a run of the loader's suite repeats it: one knob at a time.

SRCNN on DIV2K (or what stands in for it), batches of 8 to 128, PNG files against LMDB, few workers against many, pinned
memory against pageable. Every ratio is a contrast of cells that differ in nothing else, paired by block.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from feedrate.analysis.blocks import successful
from feedrate.analysis.contrasts import contrasts, off_default
from feedrate.analysis.estimates import identities, rows_of
from feedrate.schema.axes import AXES, EMULATED_STEPS, PHOTOGRAPHS, Value

MINUTES = {8: 16.0, 16: 8.0, 32: 6.0, 64: 4.0, 128: 3.0}
"""Batch size to an epoch's time in the source's tables."""
SPOKEN_MINUTES = {8: 20.0, 128: 4.0}
"""The same in its text, which contradicts them."""
UTILIZATION = {8: 33, 16: 31, 32: 37, 64: 52, 128: 84}
"""Batch size to the GPU utilization that the source published, in per cent, without a spread."""
BATCHES = tuple(MINUTES)
TURNED = ("batch_size", "storage_format", "num_workers", "pin_memory")
"""The knobs that the experiment turns."""
SETTING = (
    *("workload", "mode", "step", "step_ms", "patch_size"),
    *("storage_format", "batch_size", "num_workers", "pin_memory"),
)
"""What may differ from one ratio to the next; everything else is at its default."""
COLUMNS = (*SETTING, "ratio", "lo", "hi", "n")


def experiment_contrasts(trials: pd.DataFrame) -> pd.DataFrame:
    """Take the contrasts of a run that belong to the experiment."""
    compared = contrasts(_own(trials))
    return compared[compared["axis"].isin(TURNED) & compared["n"].gt(0)]


def batch_sizes(trials: pd.DataFrame) -> int:
    """Count the batch sizes of the experiment with which a trial of a run ended well: contrasts take a while."""
    return int(successful(_own(trials))["batch_size"].nunique())


def _own(trials: pd.DataFrame) -> pd.DataFrame:
    """The trials whose cells belong to the experiment."""
    cells = identities(trials)
    belongs = cells["mode"].isin(["train", "load"]) & cells["workload"].isin(PHOTOGRAPHS)
    belongs &= off_default(cells, (axis for axis in AXES if axis.name not in SETTING)) == 0
    return trials[trials["cell_id"].isin(cells.loc[belongs, "cell_id"])]


def ratios_between(compared: pd.DataFrame, axis: str, a: Value, b: Value) -> pd.DataFrame:
    """Give the ratios of B to A for two values of an axis, whichever of them the contrast has first."""
    of_axis = compared[compared["axis"].eq(axis)]
    forth = of_axis[of_axis["a_value"].eq(a) & of_axis["b_value"].eq(b)]
    back = of_axis[of_axis["a_value"].eq(b) & of_axis["b_value"].eq(a)]
    both = pd.concat([forth, _inverted(back)]) if len(back) else forth
    return both.assign(**{axis: b})[list(COLUMNS)].reset_index(drop=True)


def epochs(compared: pd.DataFrame) -> pd.DataFrame:
    """Say how long an epoch takes with each batch size, against batches of 8.

    The start of the first epoch is left out: time is samples ÷ throughput, so that this is the ratio of throughputs
    turned over.
    """
    parts = [ratios_between(compared, "batch_size", BATCHES[0], batch) for batch in BATCHES[1:]]
    return _inverted(pd.concat(parts, ignore_index=True))


def _inverted(ratios: pd.DataFrame) -> pd.DataFrame:
    """Swap the sides: the ends of the intervals change places."""
    return ratios.assign(ratio=1 / ratios["ratio"], lo=1 / ratios["hi"], hi=1 / ratios["lo"])


def by_batch(
    compared: pd.DataFrame, axis: str = "batch_size"
) -> list[tuple[dict[str, Any], dict[int, dict[str, Any]]]]:
    """Put ratios of one run along an axis in rows of one setting each: its values, and batch size to ratio."""
    names = [name for name in SETTING if name not in (axis, "batch_size")]
    rows: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for row in rows_of(compared):
        key = tuple(None if pd.isna(row[name]) else row[name] for name in names)
        rows.setdefault(key, {})[int(row["batch_size"])] = row
    settings = [(dict(zip(names, key, strict=True)), ratios) for key, ratios in rows.items()]
    return sorted(settings, key=lambda setting: _order(setting[0]))


def _order(setting: dict[str, Any]) -> tuple[object, ...]:
    """Real training, emulated steps, the loader alone; then by workload, format, and numbers."""
    kind = int(setting["step"] in EMULATED_STEPS) if setting["mode"] == "train" else 2
    values = (setting.get(name) for name in ("step_ms", "patch_size", "num_workers", "pin_memory"))
    format_name = str(setting.get("storage_format", ""))
    numbers = (-1.0 if value is None else float(value) for value in values)
    return kind, str(setting["workload"]), format_name, *numbers
