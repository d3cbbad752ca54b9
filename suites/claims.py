"""Which of the sources' claims hold on this machine?

Sentences of widely read documents and of common advice say what makes training faster. Each is a claim of the
suite that it belongs to (loader, storage, transfer, collate, workers, caching, training, parallel, loaders). It is two
settings that differ in what the sentence is about, or a check of a fact. This suite measures the cells of all of
them; claims that are certain make room for those that are not.

It does not show how large an effect is elsewhere. A verdict is of one machine, and of the settings that are named.
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
