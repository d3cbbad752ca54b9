"""Which claims a plan asks about, and why it cannot test the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from harness import suite
from harness.asking import Asked
from harness.axes import Cell, cell_id
from harness.claim import Claim, Term, Values, cells_of, terms, untestable


def asked_by(suites: Iterable[str]) -> dict[str, Claim]:
    """List the claims that some suites ask about: their own, and for the suite of all claims everybody's.

    Args:
        suites: names, as a matrix has them.
    """
    wanted = set(filter(suite.for_claims, suites))
    if not wanted:
        return {}
    return {name: claim for name, (owner, claim) in suite.claims().items() if suite.CLAIMS in wanted or owner in wanted}


def plan(
    claims: Iterable[Claim],
    cells: Collection[str],
    device: str,
    photographs: str,
    impossible: Callable[[Cell], str | None],
    cores: int = 1,
) -> tuple[tuple[Asked, ...], dict[str, str]]:
    """Find the cells of claims among those that are planned.

    Args:
        claims: what is asked.
        cells: ids of the cells that run.
        device: ``cpu`` or ``cuda``.
        photographs: the workload that stands in div2k's place.
        impossible: cell → why it cannot run here.
        cores: of this machine.

    Returns:
        The claims all of whose deciding cells run; and for each other the reason.
    """
    asked, reasons = [], {}
    for claim in (each.on(device) for each in claims):
        decide = _deciding(claim, device, photographs)
        missing = [term.cell for term in decide if term.cell_id not in cells]
        if claim.most_cores and cores > claim.most_cores:
            reasons[claim.id] = f"its sides are for {claim.most_cores} cores at most; this machine has {cores}"
        elif reason := untestable(claim, device) or next(filter(None, map(impossible, missing)), None):
            reasons[claim.id] = reason
        elif missing:
            reasons[claim.id] = "this run leaves out cells of it"
        else:
            beside = (term.cell_id for aside in claim.asides for term in terms(aside.effect, device, photographs))
            checks = (_check(values, device, photographs).cell_id for values in claim.facts)
            weights = {term.cell_id: term.weight for term in decide}
            everything = frozenset((*weights, *beside, *checks)) & frozenset(cells)
            asked.append(Asked(claim.id, claim.effect.metric if claim.effect else None, weights, everything))
    return tuple(asked), reasons


def _deciding(claim: Claim, device: str, photographs: str) -> list[Term]:
    if claim.effect:
        return terms(claim.effect, device, photographs)
    return [_check(claim.facts[0], device, photographs)]


def _check(values: Values, device: str, photographs: str) -> Term:
    cell, _ = cells_of({"mode": "check", **values}, device, photographs)
    return Term(1.0, cell_id(cell), cell)
