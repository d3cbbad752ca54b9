"""Runs trainings one after the other, as libraries take longer to import than these: python proofs FOLDER NAME….

Writes when each began and ended, and the stretches by its own clock, to ``FOLDER/NAME.json``.
"""

import json
import sys
import time
from importlib import import_module
from pathlib import Path

import torch

torch.set_num_threads(1)
for name in sys.argv[2:]:
    training, folder = import_module(name), Path(sys.argv[1]) / name
    folder.mkdir()
    begun = time.perf_counter_ns()
    clock = training.main(folder)
    folder.with_suffix(".json").write_text(json.dumps([begun, time.perf_counter_ns(), clock]))
