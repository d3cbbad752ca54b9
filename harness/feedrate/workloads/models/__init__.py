"""Networks: one file each, found by its name.

A file has ``REQUIRES`` and ``TASK``, as a workload has, and

- ``KNOBS: tuple[str, ...]``: a literal, the names of the axes that change the network itself, read without importing
  the file: elsewhere those axes do not apply;
- ``build(**knobs) -> torch.nn.Module``: takes each knob by keyword; a knob that is left out has its axis' default. A
  network for classification takes ``classes``, the workload's, before them.
  With equal seeds, networks that differ in a knob only begin with equal weights.
"""
