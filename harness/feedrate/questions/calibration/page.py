"""Calibration on a suite's page: planted, measured, error; small effects, equal pairs, planted bottlenecks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd
from markupsafe import Markup

from feedrate.analysis.blocks import KEYS
from feedrate.analysis.estimates import rows_of
from feedrate.charts.embed import folded
from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView
from feedrate.pages.template import render, table
from feedrate.questions.calibration import analysis
from feedrate.questions.calibration.terminal import QUANTITIES, answer
from feedrate.schema import words
from feedrate.schema.axes import AXES
from feedrate.schema.metrics import CONFIRMED_OVER, SAME

_MOST_OPEN = 12
"""Rows of a table that are shown without being asked for."""
_SIGNED = partial(words.signed, places=2)
_RATIO: words.Write = "{:.4f}".format


def section(view: RunView, suite: str) -> Markup:
    """Say whether what a suite planted was read back in a run; empty where the suite planted nothing."""
    cell_ids = set(view.judged.loc[view.judged["suite"].eq(suite).fillna(False), "cell_id"])
    costs = analysis.planted(view.trials)
    costs = costs[costs["cell_id"].isin(cell_ids)]
    if not len(costs):
        return Markup("")
    effects, pairs = (
        compared[compared["cell_a"].isin(cell_ids) & compared["cell_b"].isin(cell_ids)]
        for compared in (analysis.effects(view.trials), analysis.same_pairs(view.trials))
    )
    bound = analysis.bottlenecks(view.trials)
    bound = bound[bound["cell_id"].isin(cell_ids)].merge(view.judged.drop(columns="bottleneck"), on=KEYS)
    return render(
        "calibration/section.md",
        mark=view.mark,
        answer=answer(costs, effects, pairs, bound),
        quantities=_quantities(costs),
        costs=_costs(costs),
        effects=_effects(effects),
        pairs=_pairs(pairs),
        bottlenecks=_bottlenecks(bound),
        margin=f"{100 * (CONFIRMED_OVER - 1):g}",
        clear=f"{100 * (SAME[1] - 1):g}",
    )


def _unit(unit: str) -> str:
    return unit.replace("us ", "µs ")


def _quantities(costs: pd.DataFrame) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for row in rows_of(analysis.summary(costs)):
        of_quantity = costs[costs["quantity"] == row["quantity"]]
        planted = of_quantity["planted"]
        low, high = (words.number(float(value)) for value in (planted.min(), planted.max()))
        rows.append(
            (
                QUANTITIES[row["quantity"]].capitalize(),
                f"{low if low == high else f'{low} – {high}'} {_unit(of_quantity['unit'].iloc[0])}",
                f"{row['cells']}",
                words.per_cent(row["median_pct"]),
                _SIGNED(row["worst_pct"]),
                f"{row['n']}",
            )
        )
    return rows


def _costs(costs: pd.DataFrame) -> Markup:
    settings = _settings(costs)
    rows = []
    for row in rows_of(costs):
        error = words.interval(row["error_lo"], row["error_hi"], write=_SIGNED)
        rows.append(
            (
                settings[row["cell_id"]],
                QUANTITIES[row["quantity"]],
                f"{words.number(float(row['planted']))} {_unit(row['unit'])}",
                markup.two_lines(words.number(float(row["measured"])), words.interval(row["lo"], row["hi"])),
                markup.two_lines(_SIGNED(row["error_pct"]), error),
                f"{row['n']}",
            )
        )
    title = f"All {len(rows):,} planted costs"
    columns = ("Setting", "Cost", "Planted", "Measured", "Error", "n")
    return Markup(folded(title, table(title, columns, rows, columns[2:], stack=True)))  # noqa: S704 - a table's cells are


def _settings(cells: pd.DataFrame) -> dict[str, str]:
    """cell_id to the axes in which the cells shown differ."""
    names = [axis.name for axis in AXES if axis.name in cells and cells[axis.name].nunique(dropna=False) > 1]
    key = "cell_id" if "cell_id" in cells else "cell_a"
    return {str(row[key]): descriptions.setting({name: row[name] for name in names}) for row in rows_of(cells)}


def _effects(effects: pd.DataFrame) -> Markup:
    rows = [
        (
            Markup("{} {} → {}").format(markup.code(row["axis"]), row["a_value"], row["b_value"]),
            _RATIO(row["planted"]),
            _RATIO(row["ratio"]),
            words.interval(row["lo"], row["hi"], write=_RATIO),
            _SIGNED(row["error_pct"]),
            row["verdict"],
            "yes" if row["right"] else Markup("<strong>no</strong>"),
        )
        for row in rows_of(effects.sort_values(["planted", "axis"], kind="stable"))
    ]
    columns = ("What differs", "Planted ratio", "Measured", "95 % interval", "Error", "Verdict", "Right")
    return _listed("Small planted effects", "small effects", columns, rows, columns[1:5])


def _pairs(pairs: pd.DataFrame) -> Markup:
    settings = _settings(pairs)
    rows = [
        (
            settings[row["cell_a"]],
            _RATIO(row["ratio"]),
            words.interval(row["lo"], row["hi"], write=_RATIO),
            f"{row['n']}",
            "yes" if row["different"] else "no",
            row["verdict"],
        )
        for row in rows_of(pairs)
    ]
    columns = ("Setting", "Ratio", "95 % interval", "n", "Leaves out 1", "Verdict")
    return _listed("Equal pairs", "equal pairs", columns, rows, columns[1:4])


def _bottlenecks(bound: pd.DataFrame) -> Markup:
    settings = _settings(bound)
    rows = [
        (
            settings[row["cell_id"]],
            words.number(float(row["planted_load"])),
            words.number(float(row["planted_compute"])),
            words.times(float(row["apart"])) if words.is_number(row["apart"]) else "–",
            row["truth"],
            row["bottleneck"] if row["right"] else Markup("<strong>{}</strong>").format(row["bottleneck"]),
        )
        for row in rows_of(bound.sort_values("apart", kind="stable"))
    ]
    columns = ("Setting", "Loader planted", "Step planted", "Apart", "Planted to be", "Found to be")
    return _listed("Planted bottlenecks", "planted bottlenecks", columns, rows, columns[1:4])


def _listed(
    caption: str, what: str, columns: Sequence[str], rows: Sequence[Sequence[object]], numeric: Sequence[str]
) -> Markup:
    """A table, folded where it is long; empty without rows."""
    if not rows:
        return Markup("")
    written = table(caption, columns, rows, numeric, stack=True)
    return written if len(rows) <= _MOST_OPEN else Markup(folded(f"All {len(rows)} {what}", written))  # noqa: S704
