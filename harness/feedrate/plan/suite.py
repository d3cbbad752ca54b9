"""A suite: one question, the slice of axes that answers it, and the charts that show the answer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from feedrate.plan.claim import NEVER, Claim, Needs, validate
from feedrate.schema import plugins
from feedrate.schema.axes import SCRIPT, TUNE
from feedrate.schema.errors import InputError

MAIN = "loader"
"""The suite that ``make sweep`` runs by itself: a machine's main numbers."""
CLAIMS = "claims"
"""The suite that asks whether what others say holds here: the cells of all suites' claims."""
CALIBRATION = "calibration"
"""The suite that asks about feedrate and not about a machine: its cells are no settings to choose from."""
SCALING = "scaling"
"""The suite of nodes that sweep together: it asks about a cluster and not about one of its machines."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One file under ``suites/`` holds one of these as ``SUITE``."""

    question: str
    """What a reader wants to know, ending in a question mark."""
    charts: tuple[str, ...]
    """File names under ``questions/*/charts``, in the order of its page."""
    slices: tuple[dict[str, Any], ...] = ()
    """Axis to values, as in matrix.yaml; used where matrix.yaml does not name the suite."""
    budget: str | None = None
    """Wall clock that its own slices take, such as 10m; counts where ``--suite`` names it and nothing else does."""
    cuda_budget: str | None = None
    """The same on CUDA, where each trial opens a context first; None is no other."""
    window_s: float = 0
    """Least wall clock of its windows, where what is loaded varies much; a matrix may have longer ones."""
    claims: tuple[Claim, ...] = ()
    """What the sources say about its question."""
    utilization_along: str | None = None
    """The axis along which its charts draw GPU utilization: training that varies in it has windows for NVML."""
    claims_only: bool = False
    """Whether its cells are there for claims alone: no other contrasts are asked about, no ceilings are added."""

    def budget_on(self, device: str) -> str | None:
        """Wall clock that its own slices take on a device."""
        return self.cuda_budget or self.budget if device == "cuda" else self.budget


def claims_suite(
    question: str, charts: tuple[str, ...], claims: tuple[Claim, ...], cuda_budget: str | None = None
) -> Suite:
    """Make a suite that measures the cells of its claims and nothing else."""
    return Suite(question, charts, slices_of(claims), "10m", cuda_budget, claims=claims, claims_only=True)


@cache
def load(name: str) -> Suite:
    """Load a suite by its file's name; ``InputError`` where it holds none, or a claim that cannot be tested."""
    suite = getattr(plugins.load("feedrate.suites", name), "SUITE", None)
    if not isinstance(suite, Suite):
        raise InputError(f"suites/{name}.py: holds no SUITE; expected SUITE = Suite(question=…, charts=…)")
    for claim in suite.claims:
        validate(claim, f"suites/{name}.py")
    return replace(suite, claims=tuple(map(_one_line_each, suite.claims)))


def _one_line_each(claim: Claim) -> Claim:
    """Its sentences, which stand as paragraphs in a suite's file."""
    design, not_shown, figures = (re.sub(r"\n *", " ", t) for t in (claim.design, claim.not_shown, claim.figures))
    return replace(claim, design=design, not_shown=not_shown, figures=figures)


def for_claims(name: str) -> bool:
    """Whether a suite's cells are there for claims alone; one that this version lacks is taken to ask for itself."""
    return name in plugins.names("feedrate.suites") and load(name).claims_only


def for_machines(name: str) -> bool:
    """Whether a suite's cells are settings to choose from; not so for claims, feedrate, a cluster or one script."""
    return name not in (CALIBRATION, SCALING, SCRIPT, TUNE) and not for_claims(name)


def claims() -> dict[str, tuple[str, Claim]]:
    """List the claims of all suites: id to the suite and the claim, in the order of the suites' names.

    Raises:
        InputError: a claim that cannot be tested, or two of one id.
    """
    listed: dict[str, tuple[str, Claim]] = {}
    for name in plugins.names("feedrate.suites"):
        for claim in load(name).claims if name != CLAIMS else ():
            if claim.id in listed:
                raise InputError(f"suites/{name}.py: claim {claim.id}: stands in suites/{listed[claim.id][0]}.py too")
            listed[claim.id] = name, claim
    return listed


def slices_of(claims: Iterable[Claim]) -> tuple[dict[str, Any], ...]:
    """The cells of claims as slices of a suite, one value an axis."""
    slices: list[dict[str, Any]] = []
    for claim in claims:
        if claim.needs in NEVER:
            continue
        slices += [{**_device(claim.needs), "mode": "check", **values} for values in claim.facts]
        for effect, needs in claim.effects():
            device = {"device": "cpu"} if claim.on_cuda and effect is claim.effect else _device(needs)
            slices += [device | values for values in effect.settings()]
    return tuple(slices)


def _device(needs: Needs) -> dict[str, Any]:
    return {"device": "cuda"} if needs in ("cuda", "gpus") else {}
