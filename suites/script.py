"""How long does a training script of somebody's own wait for data?

`feedrate run -- python train.py` measures the script as it is. The script is the workload, and stretches of its loop
are the repetitions. This file says how the page of such a run shows the loop. It does not show the results of the
script. A model predicts the effect of other settings. This effect is not measured.
"""

from __future__ import annotations

from feedrate.plan.suite import Suite

SUITE = Suite(question="How long does this training script wait for data?", charts=("timeline", "phases"))
