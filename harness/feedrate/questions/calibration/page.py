"""Calibration on a suite's page: planted, measured, error; small effects, equal pairs, planted bottlenecks.

A suite that plants nothing shows nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from feedrate.analysis.blocks import KEYS
from feedrate.analysis.estimates import rows_of
from feedrate.charts.embed import folded
from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView
from feedrate.questions.calibration import analysis
from feedrate.schema import words
from feedrate.schema.axes import AXES
from feedrate.schema.metrics import CONFIRMED_OVER, SAME

QUANTITIES = {
    "read": "waiting to read",
    "decode": "decoding",
    "collate": "collating",
    "payload": "bytes carried along",
    "step": "step",
    "batch": "whole batch",
}
"""What is planted, in words; the order is the analysis' own."""
_RIGHT = {True: "yes", False: "<strong>no</strong>"}


def section(shown: RunView, suite: str) -> list[str]:
    """Say whether what a suite planted was read back.

    Args:
        shown: a run.
        suite: whose cells.

    Returns:
        Markdown and HTML; nothing where the suite planted nothing.
    """
    own = set(shown.judged.loc[shown.judged["suite"].eq(suite).fillna(False), "cell_id"])
    trials, mark = shown.trials, shown.mark
    costs = analysis.planted(trials)
    costs = costs[costs["cell_id"].isin(own)]
    if not len(costs):
        return []
    effects = _of(analysis.effects(trials), own)
    pairs = _of(analysis.same_pairs(trials), own)
    bound = analysis.bottlenecks(trials)
    bound = bound[bound["cell_id"].isin(own)].merge(shown.judged.drop(columns="bottleneck"), on=KEYS)
    return [
        markup.paragraph(_answer(costs, effects, pairs, bound), "fr-answer"),
        markup.heading(3, "Planted, measured, error", f"planted-{mark}"),
        _costs(costs),
        *_part("Small effects", f"effects-{mark}", _effects(effects)),
        *_part("Equal pairs", f"pairs-{mark}", _pairs(pairs)),
        *_part("Planted bottlenecks", f"bottlenecks-{mark}", _bottlenecks(bound)),
    ]


def _of(pairs: pd.DataFrame, own: set[str]) -> pd.DataFrame:
    return pairs[pairs["cell_a"].isin(own) & pairs["cell_b"].isin(own)]


def _part(title: str, name: str, content: str) -> list[str]:
    return [markup.heading(3, title, name), content] if content else []


def _answer(costs: pd.DataFrame, effects: pd.DataFrame, pairs: pd.DataFrame, bound: pd.DataFrame) -> str:
    """The page's question, answered in sentences made from the numbers."""
    size = costs["error_pct"].abs()
    worst: dict[Any, Any] = max(rows_of(costs), key=lambda row: abs(row["error_pct"]))
    said = [
        f"Of {words.plural(len(costs), 'planted cost')}, half are read back within {_pct(size.median())}; the worst "
        f"({QUANTITIES[worst['quantity']]}) is off by {descriptions.signed(worst['error_pct'], 2)}."
    ]
    if len(effects):
        none = int(effects["planted"].eq(1).sum())
        of_none = f" ({none} of them none at all)" if none else ""
        right = int(effects["right"].sum())
        said.append(
            f"Of {words.plural(len(effects), 'small effect')}{of_none}, {right} {'is' if right == 1 else 'are'} judged "
            "right."
        )
    if len(pairs):
        apart, called = int(pairs["different"].sum()), int(pairs["verdict"].isin(analysis.DIFFERENT).sum())
        said.append(
            f"Of {words.plural(len(pairs), 'equal pair')}, {apart} {'has' if apart == 1 else 'have'} an interval that "
            f"leaves out 1 (by chance, one in twenty has); {called} {'is' if called == 1 else 'are'} called different."
        )
    if len(bound):
        said.append(f"Of {words.plural(len(bound), 'planted bottleneck')}, {int(bound['right'].sum())} are named.")
    return " ".join(said)


def _pct(value: float) -> str:
    return f"{words.number(float(value), 2)}\u00a0%"


def _costs(costs: pd.DataFrame) -> str:
    """A row a quantity, and all of them unfolded."""
    rows = [
        (
            escape(QUANTITIES[row["quantity"]].capitalize()),
            _range(costs[costs["quantity"] == row["quantity"]]),
            f"{row['cells']}",
            _pct(row["median_pct"]),
            descriptions.signed(row["worst_pct"], 2),
            f"{row['n']}",
        )
        for row in rows_of(analysis.summary(costs))
    ]
    columns = ("Cost", "Planted", "Cells", "Half within", "Worst", "n")
    table = markup.table("How well planted costs are read back", columns, rows, columns[2:], stack=True)
    note = "n counts blocks, the fewest of any cell. What the stage costs by itself is taken off as it was measured."
    return table + markup.paragraph(note, "fr-note") + _every_cost(costs)


def _range(costs: pd.DataFrame) -> str:
    low, high = (words.number(float(value)) for value in (costs["planted"].min(), costs["planted"].max()))
    return f"{low if low == high else f'{low} – {high}'} {_unit(costs['unit'].iloc[0])}"


def _unit(unit: str) -> str:
    return escape(unit.replace("us ", "µs "))


def _every_cost(costs: pd.DataFrame) -> str:
    settings = _settings(costs)
    rows = [
        (
            escape(settings[row["cell_id"]]),
            escape(QUANTITIES[row["quantity"]]),
            f"{words.number(float(row['planted']))} {_unit(row['unit'])}",
            _between(row["measured"], row["lo"], row["hi"]),
            _error(row),
            f"{row['n']}",
        )
        for row in rows_of(costs)
    ]
    columns = ("Setting", "Cost", "Planted", "Measured", "Error", "n")
    return _folded(f"All {len(rows):,} planted costs", columns, rows, columns[2:])


def _between(value: float, lo: float, hi: float) -> str:
    spread = f'<br><span class="fr-kind">{descriptions.spread(float(lo), float(hi))}</span>'
    return words.number(float(value)) + spread


def _error(row: Mapping[Any, Any]) -> str:
    ends = [descriptions.signed(row[f"error_{end}"], 2) for end in ("lo", "hi")]
    spread = " to ".join(ends) if words.known(row["error_lo"]) else "one block"
    return f'{descriptions.signed(row["error_pct"], 2)}<br><span class="fr-kind">{spread}</span>'


def _settings(cells: pd.DataFrame) -> dict[str, str]:
    """cell_id to the axes in which the cells shown differ."""
    names = [axis.name for axis in AXES if axis.name in cells and cells[axis.name].nunique(dropna=False) > 1]
    key = "cell_id" if "cell_id" in cells else "cell_a"
    return {str(row[key]): descriptions.setting({name: row[name] for name in names}) for row in rows_of(cells)}


def _effects(effects: pd.DataFrame) -> str:
    rows = [
        (
            f"{markup.code(row['axis'])} {escape(str(row['a_value']))} → {escape(str(row['b_value']))}",
            f"{row['planted']:.4f}",
            f"{row['ratio']:.4f}",
            _ends(row),
            descriptions.signed(row["error_pct"], 2),
            escape(row["verdict"]),
            _RIGHT[bool(row["right"])],
        )
        for row in rows_of(effects.sort_values(["planted", "axis"], kind="stable"))
    ]
    columns = ("What differs", "Planted ratio", "Measured", "95 % interval", "Error", "Verdict", "Right")
    table = markup.table("Small planted effects", columns, rows, columns[1:5], stack=True)
    margin, clear = 100 * (CONFIRMED_OVER - 1), 100 * (SAME[1] - 1)
    note = (
        f"Ratios of throughputs, B ÷ A. Neither faster nor slower may be said of an effect of up to {margin:g} %; "
        f"beyond {clear:g} % it must be; between the two either is right."
    )
    return _open_or_folded("small effects", table, len(rows)) + markup.paragraph(note, "fr-note") if rows else ""


def _ends(row: Mapping[Any, Any]) -> str:
    return f"{row['lo']:.4f} – {row['hi']:.4f}" if words.known(row["lo"]) else "one block: none"


def _pairs(pairs: pd.DataFrame) -> str:
    settings = _settings(pairs)
    rows = [
        (
            escape(settings[row["cell_a"]]),
            f"{row['ratio']:.4f}",
            _ends(row),
            f"{row['n']}",
            "yes" if row["different"] else "no",
            escape(row["verdict"]),
        )
        for row in rows_of(pairs)
    ]
    columns = ("Setting", "Ratio", "95 % interval", "n", "Leaves out 1", "Verdict")
    if not rows:
        return ""
    told = markup.paragraph("The same cell twice under two names: whatever tells them apart is chance or a mistake.")
    table = markup.table("Equal pairs", columns, rows, columns[1:4], stack=True)
    return told + _open_or_folded("equal pairs", table, len(rows))


def _bottlenecks(bound: pd.DataFrame) -> str:
    settings = _settings(bound)
    rows = [
        (
            escape(settings[row["cell_id"]]),
            words.number(float(row["planted_load"])),
            words.number(float(row["planted_compute"])),
            words.times(float(row["apart"])) if words.known(row["apart"]) else "–",
            escape(row["truth"]),
            escape(row["bottleneck"]) if row["right"] else f"<strong>{escape(row['bottleneck'])}</strong>",
        )
        for row in rows_of(bound.sort_values("apart", kind="stable"))
    ]
    columns = ("Setting", "Loader planted", "Step planted", "Apart", "Planted to be", "Found to be")
    if not rows:
        return ""
    table = markup.table("Planted bottlenecks", columns, rows, columns[1:4], stack=True)
    told = markup.paragraph("Loader or step is planted to be the slower, and must be called what holds the cell back.")
    note = "Planted: samples a second that each stage alone would do, no core being short."
    return told + _open_or_folded("planted bottlenecks", table, len(rows)) + markup.paragraph(note, "fr-note")


_MOST_OPEN = 12
"""Rows that are shown without being asked for."""


def _open_or_folded(what: str, table: str, count: int) -> str:
    return table if count <= _MOST_OPEN else folded(f"All {count} {what}", table)


def _folded(summary: str, columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[str]) -> str:
    return folded(summary, markup.table(summary, columns, rows, numeric, stack=True))
