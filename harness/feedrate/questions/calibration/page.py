"""Calibration on a suite's page: planted, measured, error; small effects, equal pairs, planted bottlenecks."""

from __future__ import annotations

import pandas as pd
from markupsafe import Markup

from feedrate.analysis.blocks import KEYS
from feedrate.analysis.estimates import rows_of
from feedrate.pages import descriptions
from feedrate.pages.runs import RunView
from feedrate.pages.template import render
from feedrate.questions.calibration import analysis
from feedrate.questions.calibration.charts import PANELS
from feedrate.questions.calibration.terminal import answer
from feedrate.schema import words
from feedrate.schema.axes import AXES
from feedrate.schema.metrics import CONFIRMED_OVER, SAME


def section(view: RunView, suite: str) -> Markup:
    """Say whether what a suite planted was read back in a run; empty where the suite planted nothing."""
    cells = view.judged[view.judged["suite"].eq(suite).fillna(False)]
    cell_ids, costs = set(cells["cell_id"]), None
    if cells["workload"].eq("synthetic").any():
        costs = analysis.planted(view.trials)
        costs = costs[costs["cell_id"].isin(cell_ids)]
    if costs is None or not len(costs):
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
        effects=len(effects),
        pairs=len(pairs),
        bottlenecks=len(bound),
        misnamed=_misnamed(bound),
        margin=f"{100 * (CONFIRMED_OVER - 1):g}",
        clear=f"{100 * (SAME[1] - 1):g}",
    )


def _quantities(costs: pd.DataFrame) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for row in rows_of(analysis.summary(costs)):
        of_quantity = costs[costs["quantity"] == row["quantity"]]
        planted, unit = of_quantity["planted"], of_quantity["unit"].iloc[0].replace("us ", "µs ")
        low, high = (words.number(float(value)) for value in (planted.min(), planted.max()))
        rows.append(
            (
                PANELS[row["quantity"]],
                f"{low if low == high else f'{low} – {high}'} {unit}",
                f"{row['cells']}",
                words.per_cent(row["median_pct"]),
                words.signed(row["worst_pct"], 2),
                f"{row['n']}",
            )
        )
    return rows


def _misnamed(bound: pd.DataFrame) -> list[str]:
    """Settings that are held back by something else than was planted, by the axes that tell them apart."""
    names = [axis.name for axis in AXES if axis.name in bound and bound[axis.name].nunique(dropna=False) > 1]
    wrong = rows_of(bound[~bound["right"].astype(bool)])
    settings = (descriptions.setting({name: row[name] for name in names}) for row in wrong)
    return [f"{setting}: {row['bottleneck']}, not {row['truth']}" for setting, row in zip(settings, wrong, strict=True)]
