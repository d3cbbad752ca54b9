"""How long does a training script of somebody's own wait for data?

`feedrate run -- python train.py` measures it, as it is: the script is the workload, and stretches of its loop are the
blocks. What is here is how the page of its run shows the loop. It does not show what the script computes, and what it
says of other settings is predicted by a model, not measured.
"""

from __future__ import annotations

from feedrate.plan.suite import Suite

SUITE = Suite(question="How long does this training script wait for data?", charts=("timeline", "phases"))
