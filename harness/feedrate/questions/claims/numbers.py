"""Every number of the Claims page with the cells and weights that it is made of, for a script that computes it anew.

The script beside this file, ``recompute.py``, imports nothing of feedrate. What it takes on trust is which cells make
up a claim, which runs count, and which trials were not as their cell says; it says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from feedrate.analysis.claim_values import parts
from feedrate.analysis.storage import doubtful
from feedrate.pages.verdicts import ClaimResult, Row, Verdicts
from feedrate.plan.claim import cell_on, terms
from feedrate.schema import words
from feedrate.schema.axes import cell_id
from feedrate.schema.metrics import METRICS

RECOMPUTE = Path(__file__).with_name("recompute.py")
_NUMBERS = ("ratio", "lo", "hi", "n", "a_value", "b_value")


def numbers(verdicts: Verdicts) -> str:
    """Write them as JSON: a list a machine and device, as they are pooled."""
    platforms = []
    for at, platform in enumerate(verdicts.platforms):
        results = [of_claim[at] for of_claim in verdicts.results.values() if of_claim[at].tested]
        effects = [number for result in results for number in _effects(result)]
        facts = [number for result in results for number in _facts(result)]
        runs = dict.fromkeys(run for number in (*effects, *facts) for run in number["runs"])
        trials = {run: verdicts.views[run].trials for run in runs}
        left_out = {run: rows.loc[doubtful(rows), "trial_id"].tolist() for run, rows in trials.items()}
        where = {"machine": platform.machine_id, "device": platform.manifest.device, "left_out": left_out}
        platforms.append({**where, "effects": effects, "facts": facts})
    return json.dumps(platforms, indent=1)


def _effects(result: ClaimResult) -> Iterator[dict[str, Any]]:
    """The effects of a claim: the one that decides, its cases, what it says besides, and what stands beside it."""
    rows: dict[tuple[str, int], Row] = {("effect", 0): result.row}
    rows |= {(row["role"], int(row["place"])): row for row in result.cases}
    rows |= {("aside", int(row["place"])): row for row in result.asides}
    for (role, index), effect, cases in parts(result.claim):
        row = rows.get((role, index), {})
        if not words.is_number(row.get("ratio")):
            continue
        metric = METRICS[effect.metric]
        up, down = (
            [[column] if isinstance(column, str) else column for column in side] for side in (metric.up, metric.down)
        )
        cells = terms(effect, result.device, row["photographs"], cases)
        yield {
            "name": f"{result.claim.id}, {role} {index}",
            "role": role,
            "runs": row["run_ids"],
            "weights": {term.cell_id: term.weight for term in cells},
            "up": up,
            "down": down,
            "least": metric.least,
            "figure": effect.figure if effect.level else None,
            **{name: float(row[name]) for name in _NUMBERS if words.is_number(row.get(name))},
        }


def _facts(result: ClaimResult) -> Iterator[dict[str, Any]]:
    """What the checks of a claim counted."""
    for row in result.cases if result.claim.facts else ():
        cell, _ = cell_on({"mode": "check", **result.claim.facts[int(row["place"])]}, result.device)
        runs = [view.manifest.run_id for view in result.views]
        value = {"n": int(row["n"]), "value": float(row["fact_value"])}
        yield {"name": f"{result.claim.id}, check {row['place']}", "runs": runs, "cell": cell_id(cell), **value}
