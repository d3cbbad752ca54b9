"""What the methodology rests on: publications, and figures that were simulated here.

Simulated figures are those of the rule itself under normal log throughputs: they say how often a rule is right, and
nothing about any machine.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """A publication that a rule comes from."""

    cited: str
    """As the text names it."""
    full: str
    link: str | None
    """Where it can be read."""
    gives: str
    """What is taken from it."""


SOURCES = {
    "dsanalyzer": Source(
        "DS-Analyzer (Mohan and others 2021)",
        "J. Mohan, A. Phanishayee, A. Raniwala, V. Chidambaram: Analyzing and Mitigating Data Stalls in DNN Training. "
        "Proceedings of the VLDB Endowment 14(5), 2021",
        "https://arxiv.org/abs/2007.06775",
        "ceilings by differential analysis",
    ),
    "roofline": Source(
        "the roofline model (Williams and others 2009)",
        "S. Williams, A. Waterman, D. Patterson: Roofline: An Insightful Visual Performance Model for Multicore "
        "Architectures. Communications of the ACM 52(4), 2009",
        "https://doi.org/10.1145/1498765.1498785",
        "one roof for the cells of all tasks",
    ),
    "mlperf": Source(
        "MLPerf Storage",
        "MLCommons: MLPerf Storage benchmark suite, rules and source",
        "https://github.com/mlcommons/storage",
        "the emulated step, accelerator utilization (AU)",
    ),
    "student": Source(
        "Student (1908)",
        "Student: The Probable Error of a Mean. Biometrika 6(1), 1908",
        "https://doi.org/10.1093/biomet/6.1.1",
        "the interval of a mean",
    ),
    "welch": Source(
        "Welch (1947)",
        "B. L. Welch: The Generalization of ‘Student’s’ Problem when Several Different Population Variances are "
        "Involved. Biometrika 34(1–2), 1947",
        "https://doi.org/10.1093/biomet/34.1-2.28",
        "the interval of a difference between runs",
    ),
    "holm": Source(
        "Holm (1979)",
        "S. Holm: A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of Statistics 6(2), "
        "1979",
        None,
        "claims that are judged together",
    ),
    "fishman": Source(
        "Fishman (1978)",
        "G. S. Fishman: Grouping Observations in Digital Simulation. Management Science 24(5), 1978",
        None,
        "the spread within a window from batches of its steps",
    ),
    "pytorch": Source(
        "PyTorch",
        "PyTorch: torch.utils.data.dataloader, source of _MultiProcessingDataLoaderIter",
        "https://github.com/pytorch/pytorch/blob/main/torch/utils/data/dataloader.py",
        "the order of events in the model of the pipeline",
    ),
}


@dataclass(frozen=True, slots=True)
class Simulated:
    """A figure that was simulated, and the rule that rests on it."""

    found: str
    rule: str


SIMULATED = {
    "stopping": Simulated(
        "an interval that is checked after every block from 8 on, and stops when it is narrow, covers the truth in "
        "93 to 95 % of cases",
        "nothing stops before the fewest blocks",
    ),
    "same": Simulated(
        "at 15 blocks, two equal settings are told to be no different in 90 % of cases where paired ratios spread by "
        "3 %, in 7 % at a spread of 6 %, in 0.2 % at 8.5 %",
        "longer windows before more claims",
    ),
    "confirm": Simulated(
        "“over 1” confirms a true difference of 1 % in 72 % of cases at 60 blocks",
        "the margin of a verdict",
    ),
    "steps": Simulated(
        "with 10 trials of 200 steps and a spread of 3 % between trials, a “95 %” interval over steps covers the truth "
        "in 20 % of cases, one over trials in 95 %",
        "blocks are the unit of repetition",
    ),
    "certain": Simulated(
        "of runs with 30 claims that all lie right at a verdict’s margin, the worst case, looked at after every one of "
        "30 blocks, 2.7 % become certain of a wrong verdict",
        "claims stop when they are certain",
    ),
    "reach": Simulated(
        "of runs with 8 claims that all lie right at a verdict’s margin, whose last 40 turns go where a verdict is "
        "nearest, 3.1 % end with a wrong one",
        "time goes to the claims that it can decide",
    ),
    "order": Simulated(
        "under a drift of 5 % over a run, two equal settings are called different in 71 % of cases when they run one "
        "after the other, in 5.3 % when blocks are random and pairs compared",
        "a random order, and pairs by block",
    ),
    "pairs": Simulated(
        "a perfect test at 5 % calls more than 1 of 20 equal pairs different in 26 % of cases",
        "calibration allows 3 of 20",
    ),
}
"""Keys are those of ``site/pages/methodology.md``."""
