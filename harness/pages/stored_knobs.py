"""Knobs that single formats have, and the order of reading: what each changes, at the fewest workers."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd

from harness.analysis.contrasts import contrasts
from harness.analysis.rows import rows_of
from harness.analysis.storage import OWN
from harness.axes import BY_NAME
from harness.charts import _words as words
from harness.charts._folded import folded
from harness.charts._slices import LOAD
from harness.pages import described, markup

MOST_OPEN = 6
"""Rows that are shown without being asked for."""
_KNOBS = (*OWN, "access")


def section(trials: pd.DataFrame, mark: str) -> list[str]:
    """Compare every other value of a knob with its default, loading alone.

    Args:
        trials: rows of ``records.TRIALS`` of one run whose page cache is believed.
        mark: of the machine, for the heading's id.

    Returns:
        A heading and a table; nothing where no knob had two values.
    """
    found = contrasts(trials[trials["mode"].eq(LOAD)]) if len(trials) else pd.DataFrame({"axis": []})
    pairs = rows_of(found)
    pairs = [turned(row) for row in pairs if row["axis"] in _KNOBS and row["n"]]
    pairs = [row for row in pairs if row["a_value"] == BY_NAME[row["axis"]].default]
    if not pairs:
        return []
    fewest: dict[str, int] = {}
    for row in pairs:
        fewest[row["axis"]] = min(int(row["num_workers"]), fewest.get(row["axis"], int(row["num_workers"])))
    rows = sorted((row for row in pairs if int(row["num_workers"]) == fewest[row["axis"]]), key=_rank)
    lines = [
        (
            f"{described.code(row['axis'])} {escape(_value(row['a_value']))} → {escape(_value(row['b_value']))}",
            escape(str(row["storage_format"])),
            escape(_where(row)),
            f"{row['ratio']:.2f}",
            f"{row['lo']:.2f}\u00a0–\u00a0{row['hi']:.2f}" if words.known(row["lo"]) else "one block: none",
            str(row["n"]),
            escape(str(row["verdict"])),
        )
        for row in rows
    ]
    columns = ("From → to", "Format", "Where", "Times as fast", "95 % interval", "n", "Verdict")
    listing = markup.table("What knobs of single formats change", columns, lines, columns[3:6], stack=True)
    if len(lines) > MOST_OPEN:
        listing = folded(f"All {len(lines)} comparisons", listing)
    note = "Paired block by block; single intervals, not corrected for their number."
    return [markup.heading(3, "Knobs of single formats", f"knobs-{mark}"), listing, markup.paragraph(note, "fr-note")]


def turned(row: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a contrast round, where that makes its first side the default.

    Args:
        row: of ``contrasts``.
    """
    if row["b_value"] != BY_NAME[row["axis"]].default:
        return dict(row)
    verdict = {"faster": "slower", "slower": "faster"}.get(row["verdict"], row["verdict"])
    sides = {"a_value": row["b_value"], "b_value": row["a_value"], "verdict": verdict}
    return {**row, **sides, "ratio": 1 / row["ratio"], "lo": 1 / row["hi"], "hi": 1 / row["lo"]}


def _rank(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        _KNOBS.index(row["axis"]),
        str(row["workload"]),
        int(row["patch_size"]),
        str(row["storage_format"]),
        row["page_cache"] != "warm",
        _value(row["b_value"]),
    )


def _where(row: Mapping[str, Any]) -> str:
    workers = words.plural(int(row["num_workers"]), "worker")
    return f"{row['workload']}, {row['patch_size']} px, {row['page_cache']}, batch {row['batch_size']}, {workers}"


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
