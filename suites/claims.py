"""Which of the sources' claims hold on this machine?

Widely read documents and common advice say how to make training faster. Each sentence is a claim of one suite (loader,
storage, transfer, collate, workers, caching, training, parallel, loaders). A claim compares two settings that differ in
the subject of the sentence, or it checks a fact. This suite measures the settings of all claims. Claims that are
certain make room for claims that are not.

It does not show how large an effect is elsewhere. A verdict holds for one machine, and for the settings that are named.
"""

from __future__ import annotations

from feedrate.plan.suite import Suite, claims, slices_of

SUITE = Suite(
    question="Which of the sources' claims hold on this machine?",
    charts=("claims",),
    budget="31m",
    cuda_budget="1h35m",
    slices=slices_of(claim for _, claim in claims().values()),
    claims_only=True,
)
