"""Planted costs, planted effects and equal cells: how far what was measured is from what was planted.

Every mark is measured ÷ planted - 1 with its 95 % interval over blocks, so that one scale serves costs in microseconds,
bytes and ratios alike. It is drawn from trials and not from estimates a cell: what is taken off is taken off by block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.charts.figure import Figure, Key, Row, Sheet, chart, listed, plain
from feedrate.charts.plot import BLOCKS, Fields, Looks, Plot, band, deviations, names
from feedrate.charts.theme import colour
from feedrate.questions.calibration.analysis import effects, planted, same_pairs
from feedrate.schema import words

PANELS = {
    "read": "Reading: a wait",
    "decode": "Decoding: CPU time",
    "collate": "Collating: CPU time",
    "payload": "Payload: bytes",
    "step": "Step: a wait",
    "batch": "Whole batches",
    "effect": "Planted effects",
    "equal": "Equal settings",
}
"""Quantities of ``analysis.calibration``, and the two kinds of ratio."""
_WITHIN = 1.0
"""Per cent of error that is shaded."""
_ORDER = ["num_workers", "batch_size", "mode", "read_us", "decode_us", "step_ms"]
_RIGHT = {True: "right", False: "wrong"}
_COLUMNS = {name: name for name in ("what", "setting", "replica", "unit", "planted", "measured")}
_COLUMNS |= {"low": "lo", "high": "hi", "error (%)": "error", "error: low": "error_lo", "error: high": "error_hi"}
_COLUMNS |= {name: name for name in ("n", "verdict", "judged")}
_LOOKS: Looks = {"right": (colour("accent"), "circle"), "wrong": (colour("source"), "diamond")}
_SHAPES = {"constant": "", "jittered": "~", "heavy_tailed": "^"}
_KEYS = (
    Key("error and its 95 % interval", *_LOOKS["right"]),
    Key("a verdict against the truth", *_LOOKS["wrong"]),
    Key("within 1 %", colour("heat-1")),
)
_NOTES = (
    "Settings: w workers, b batch_size, p prefetch_factor (where not 2); planted in ms: r reading a sample "
    "(~ jittered, ^ heavy-tailed), d decoding a sample, c collating a batch, s an emulated step; in kB: y payload of a "
    "sample.",
    "We subtract what was not planted, as settings without the cost show it, repetition by repetition.",
    "Shaded: errors within ±1 %. The scale is linear there and logarithmic beyond. The table has the replicas, too.",
)


@chart("What was planted, and what was measured", "How far is what feedrate measured from what was planted?")
def calibration(sheet: Sheet, trials: pd.DataFrame) -> Figure:
    """Draw the errors."""
    rows = list(_marks(trials))
    for what, title in PANELS.items():
        if of_kind := [row for row in rows if row["what"] == what]:
            counted = words.plural(len(of_kind), "pair" if what in ("effect", "equal") else "setting")
            subtitle = f"{counted}, {words.plural(min(row['n'] for row in of_kind), 'repetition')}"
            drawn = [row for row in of_kind if not row["replica"]]
            panel = _plot(drawn).panel(title, subtitle, _message(of_kind))
            sheet.add(panel, listed(of_kind, {}, _COLUMNS))
    for note in _NOTES:
        sheet.note(note)
    return sheet.figure(_KEYS, "Nothing was planted in this run: make sweep SUITE=calibration plants.")


def setting(cell: Mapping[str, Any]) -> str:
    """Name a planted cell by what differs between them, as the figure's notes explain."""
    values = {name: value for name, value in cell.items() if not pd.isna(value)}
    parts = [f"w{values.get('num_workers', 0)}", f"b{values['batch_size']}"]
    parts += [f"p{values['prefetch_factor']}"] if values.get("prefetch_factor", 2) != 2 else []
    for axis, letter in (("read_us", "r"), ("decode_us", "d"), ("collate_us", "c"), ("payload_bytes", "y")):
        if value := values.get(axis):
            parts.append(f"{letter}{value / 1000:g}{_SHAPES[values['read_shape']] if axis == 'read_us' else ''}")
    return " ".join(parts + ([f"s{values['step_ms']:g}"] if "step_ms" in values else []))


def _marks(trials: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Planted costs, planted effects and equal cells."""
    for row in rows_of(planted(trials).sort_values(_ORDER, kind="stable")):
        yield _mark(row["quantity"], setting(row), row, unit=row["unit"], replica=int(row["replica"]))
    for row in rows_of(effects(trials)):
        if row["axis"] != "replica":
            name, unit = row["axis"].rsplit("_", 1)
            label = f"{name} {row['a_value']:g} → {row['b_value']:g} {unit}"
            mark = {**row, "measured": row["ratio"]}
            yield _mark("effect", label, mark, verdict=row["verdict"], right=_RIGHT[bool(row["right"])])
    for row in rows_of(same_pairs(trials).sort_values(_ORDER, kind="stable")):
        mark = {**row, "planted": 1.0, "measured": row["ratio"]}
        verdict = "different" if row["different"] else "not different"
        yield _mark("equal", setting(row), mark, verdict=verdict, right=_RIGHT[not row["different"]])


def _mark(what: str, label: str, measured: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Planted and measured value with its interval, their errors in per cent, and what is particular."""
    mark = {"what": what, "setting": label, "unit": "B ÷ A", "replica": 0, "verdict": None, "right": "right", **more}
    mark |= {"planted": float(measured["planted"]), "n": int(measured["n"])}
    for name, error in (("measured", "error"), ("lo", "error_lo"), ("hi", "error_hi")):
        mark[name] = plain(measured[name])
        mark[error] = None if mark[name] is None else 100 * (mark[name] / mark["planted"] - 1)
    return {**mark, "judged": mark["verdict"] and mark["right"]}


def _plot(rows: Sequence[Row]) -> Plot:
    ends = ("error_lo", "error_hi")
    x = deviations(rows, "error", "measured ÷ planted − 1, %", ends)
    y = names("setting", (row["setting"] for row in rows))
    values: Fields = {"planted:Q": ("", ",.5~g"), "measured:Q": ("", ",.5~g"), "unit:N": ""}
    tooltip = {"setting:N": "", **values, "error:Q": ("error, %", "+,.3~g"), "verdict:N": "", **BLOCKS}
    behind = [band(x, "x", (-_WITHIN, _WITHIN), "heat-1", 0.5)]
    return Plot(rows, x, y, "right", _LOOKS, ends=ends, tooltip=tooltip, size=45, row=15, behind=behind)


def _message(rows: Sequence[Row]) -> str:
    """Median and worst error; of ratios, how many verdicts are right."""
    worst = max(rows, key=lambda row: abs(row["error"]))
    ends = worst["error"], worst["error_lo"], worst["error_hi"]
    far = f"{words.estimate(ends, n=worst['n'], write=words.signed)}, setting {worst['setting']}"
    wrong = sum(row["right"] == "wrong" for row in rows)
    if rows[0]["what"] == "equal":
        return words.sentence(
            f"{wrong} of {words.plural(len(rows), 'pair')} of equal settings differ by their intervals, where chance "
            f"makes one in twenty; the farthest is {far}"
        )
    if rows[0]["what"] == "effect":
        count = f"{len(rows) - wrong} of {words.plural(len(rows), 'planted effect')} get the right verdict"
        return words.sentence(f"{count}; the worst ratio is off by {far}")
    sizes = pd.Series([abs(row["error"]) for row in rows])
    return words.sentence(
        f"in {words.plural(len(rows), 'setting')} the median error is {words.number(sizes.median())}\u00a0% and the "
        f"worst {far}"
    )
