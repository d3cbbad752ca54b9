"""How long does a training script of somebody's own wait for data?

``feedrate run -- python train.py`` measures it: what is here is how its run is shown. It does not show what other
settings would give (``feedrate tune`` measures that), nor what the script computes.
"""

from __future__ import annotations

from feedrate.plan.suite import Suite

SUITE = Suite(
    question="How long does this training script wait for data?",
    charts=("phases", "timeline"),
)
