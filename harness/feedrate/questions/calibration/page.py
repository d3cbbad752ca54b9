"""Calibration on a suite's page: planted, measured, error; small effects, equal pairs, planted bottlenecks."""

from __future__ import annotations

from collections.abc import Iterator

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
    costs = analysis.planted(view.trials)
    costs = costs[costs["cell_id"].isin(cells["cell_id"])]
    if costs.empty:
        return Markup()
    effects, pairs = (
        compared[compared[["cell_a", "cell_b"]].isin(set(cells["cell_id"])).all(axis=1)]
        for compared in (analysis.effects(view.trials), analysis.same_pairs(view.trials))
    )
    bound = analysis.bottlenecks(view.trials).merge(cells.drop(columns="bottleneck"), on=KEYS)
    return render(
        "calibration/section.md",
        mark=view.mark,
        answer=answer(costs, effects, pairs, bound),
        quantities=list(_quantities(costs)),
        effects=len(effects),
        pairs=len(pairs),
        bottlenecks=len(bound),
        misnamed=list(_misnamed(bound)),
        margin=f"{100 * (CONFIRMED_OVER - 1):g}",
        clear=f"{100 * (SAME[1] - 1):g}",
    )


def _quantities(costs: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    for row in rows_of(analysis.summary(costs)):
        of_quantity = costs[costs["quantity"] == row["quantity"]]
        planted, unit = of_quantity["planted"], of_quantity["unit"].iloc[0].replace("us ", "µs ")
        ends = dict.fromkeys(words.number(float(value)) for value in (planted.min(), planted.max()))
        errors = words.per_cent(row["median_pct"]), words.signed(row["worst_pct"], 2)
        yield PANELS[row["quantity"]], f"{' – '.join(ends)} {unit}", row["cells"], *errors, row["n"]


def _misnamed(bound: pd.DataFrame) -> Iterator[str]:
    """Settings that are held back by something else than was planted, by the axes that tell them apart."""
    names = [axis.name for axis in AXES if bound[axis.name].nunique(dropna=False) > 1]
    for row in rows_of(bound[~bound["right"].astype(bool)]):
        yield f"{descriptions.setting({name: row[name] for name in names})}: {row['bottleneck']}, not {row['truth']}"
