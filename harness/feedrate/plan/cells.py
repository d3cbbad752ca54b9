"""A matrix → a plan: which combinations are cells on this machine, and why every other one is none.

What cannot run here is left out with its reason (``plan.obstacles``), a sentence that the plan prints and the run
records; a cell is never changed. Loads neither torch nor pandas, so that a plan is there in the time that it takes to
read it.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from feedrate.plan import claim_selection, suite
from feedrate.plan.matrix import Matrix, SuiteSlice
from feedrate.plan.obstacles import impossible
from feedrate.plan.schedule import Host, Plan, PlannedCell
from feedrate.schema import axes
from feedrate.schema.axes import AXES, Value, applicable, cell_id
from feedrate.schema.errors import InputError
from feedrate.store.manifest import Counted, Protocol

MOST_COMBINATIONS = 100_000
"""More than this need ``--yes``: nobody sweeps a million cells on purpose."""


def expand(matrix: Matrix, host: Host, *, yes: bool = False) -> Plan:
    """Expand a matrix on a machine; ``InputError`` where it is too large, or no cell can run here."""
    total = sum(math.prod(len(values) for values in one.axes.values()) for one in matrix.slices)
    if total > MOST_COMBINATIONS and not yes:
        raise InputError(
            f"{matrix.path}: profile {matrix.profile} expands to {total:,} combinations; expected at most "
            f"{MOST_COMBINATIONS:,}. Leave values out, or say --yes if you mean it"
        )
    slices = [_with_stand_ins(one, host) for one in matrix.slices]
    substitutions = tuple(_substitutions(matrix.slices, host))
    cells: dict[str, PlannedCell] = {}
    merged, excluded = Counter[str](), Counter[str]()
    for one in slices:
        for combination in _combinations(one):
            cell, inapplicable = applicable(combination, host.device)
            key = cell_id(cell)
            if one.device not in (None, host.device):
                excluded[f"wanted on {one.device} only; this machine has {host.device}"] += 1
            elif key in cells:
                merged[_why_merged(one, inapplicable)] += 1
            elif why := impossible(cell, host, matrix.protocol):
                excluded[why] += 1
            else:
                cells[key] = PlannedCell(key, cell, one.suite)
    claims, untestable = claim_selection.plan_claims(
        claim_selection.claims_of(one.suite for one in matrix.slices),
        cells,
        host.device,
        host.photographs,
        lambda cell: impossible(cell, host, matrix.protocol),
        host.cores,
    )
    tested = {cell for claim in claims for cell in claim.cells}
    for key in [key for key, cell in cells.items() if suite.for_claims(cell.suite) and key not in tested]:
        del cells[key]
        excluded["of a claim that cannot be tested here"] += 1
    if not cells:
        reasons = [f"{count} × {reason}" for reason, count in excluded.most_common()] or ["no combination at all"]
        raise InputError(f"{matrix.path}: profile {matrix.profile}: no setting can run here: {'; '.join(reasons)}")
    return Plan(
        matrix=matrix,
        host=host,
        combinations=total,
        cells=tuple(cells.values()),
        ceilings=_ceilings(cells.values(), host, matrix.protocol),
        merged=_counted(merged),
        excluded=_counted(excluded),
        substitutions=substitutions,
        claims=claims,
        untestable=untestable,
    )


def _counted(reasons: Counter[str]) -> tuple[Counted, ...]:
    return tuple(Counted(count=count, reason=reason) for reason, count in reasons.most_common())


def _combinations(suite_slice: SuiteSlice) -> Iterator[dict[str, Value]]:
    values = [suite_slice.axes.get(axis.name, (axis.default,)) for axis in AXES]
    for chosen in itertools.product(*values):
        yield dict(zip((axis.name for axis in AXES), chosen, strict=True))


def _with_stand_ins(suite_slice: SuiteSlice, host: Host) -> SuiteSlice:
    """Put the images that are at hand in the place of those that are not."""
    workloads = suite_slice.axes.get("workload", ())
    if not host.stand_ins.keys() & set(workloads):
        return suite_slice
    there = dict.fromkeys(host.stand_ins.get(str(workload), workload) for workload in workloads)
    return replace(suite_slice, axes={**suite_slice.axes, "workload": tuple(there)})


def _substitutions(slices: Iterable[SuiteSlice], host: Host) -> Iterator[str]:
    asked = {workload for suite_slice in slices for workload in suite_slice.axes.get("workload", ())}
    how = {"div2k": "make div2k fetches", "imagefolder": "--data DIR reads"}
    for workload, stand_in in host.stand_ins.items():
        if workload in asked and workload != stand_in:
            synthetic = f"synthetic images ({how[workload]} real ones)"
            images = synthetic if host.data is None else "the photographs that --data names"
            yield f"{stand_in} replaces {workload}: {images}"


def _why_merged(suite_slice: SuiteSlice, reasons: Mapping[str, str]) -> str:
    """Name the swept axes that do not apply, grouped by reason; a repetition of another slice otherwise."""
    grouped: dict[str, list[str]] = {}
    for axis, reason in reasons.items():
        if len(suite_slice.axes.get(axis, ())) > 1:
            grouped.setdefault(reason, []).append(axis)
    merged = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in grouped.items())
    return merged or "the same setting stands in another slice"


def _ceilings(cells: Iterable[PlannedCell], host: Host, protocol: Protocol) -> tuple[PlannedCell, ...]:
    """The stages that training cells are judged against and that the matrix does not ask for, each once."""
    ceilings: dict[str, PlannedCell] = {}
    for cell in cells:
        if cell.axes["mode"] == "train" and not suite.for_claims(cell.suite):
            for stage in axes.ceilings(cell.axes, host.device).values():
                key = cell_id(stage)
                if not impossible(stage, host, protocol):
                    ceilings.setdefault(key, PlannedCell(key, stage, cell.suite, "ceiling"))
    asked = {cell.cell_id for cell in cells}
    return tuple(cell for key, cell in ceilings.items() if key not in asked)
