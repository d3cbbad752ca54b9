"""Which settings of its DataLoader feed this training best?

`feedrate tune -- python train.py` searches in windows of the script's own loop. Each window is a measurement with
other settings, in repetitions that the search chooses. What is here is how the page of such a run shows it. It does
not show settings that were set aside, nor what others than those of the loader would give.
"""

from __future__ import annotations

from feedrate.plan.suite import Suite

SUITE = Suite(question="Which settings of its DataLoader feed this training best?", charts=("search", "timeline"))
