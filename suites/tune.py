"""Which settings of its DataLoader feed this training best?

`feedrate tune -- python train.py` searches in windows of the script's own loop. Each window is a measurement with other
settings. The search chooses the repetitions. This file says how the page of such a run shows the search. It does not
show settings that were set aside. It does not show the gain of settings outside the loader.
"""

from __future__ import annotations

from feedrate.plan.suite import Suite

SUITE = Suite(question="Which settings of its DataLoader feed this training best?", charts=("search", "timeline"))
