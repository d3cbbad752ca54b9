"""What numbers are worth under noise that intervals do not assume: tables of the page, which tests compute again."""

from __future__ import annotations

from collections.abc import Mapping

SPREADS = (0.03, 0.06, 0.085)
"""Of paired log ratios, on a two-core machine."""
CLAIMS = 30
"""Of each simulated run."""
FAULT_SPREAD = 0.04
"""Standard deviation of paired log ratios, before faults are added."""
SIMULATED: Mapping[str, tuple[float, float, float, float]] = {
    "normal": (0.94, 0.024, 0.0, 0.024),
    "heavy tail on one side": (0.922, 0.029, 0.0, 0.029),
    "two modes": (0.86, 0.028, 0.443, 0.02),
    "autocorrelated, ρ = 0.5": (0.734, 0.193, 0.995, 0.001),
    "autocorrelated, ρ = 0.8": (0.45, 0.731, 1.0, 0.0),
}
"""Kind of noise → shares: of contrasts whose 95 % interval holds the truth, early stopping included; of runs with any
wrong verdict, had none been withheld; of runs that are withheld; of runs with a wrong verdict that are not."""
FAULTS_SIMULATED: Mapping[tuple[str, int], tuple[float, ...]] = {
    ("normal", 7): (0.951, 0.013, 0.004, 0.001, 0.013, 0.009),
    ("normal", 12): (0.951, 0.015, 0.001, 0.003, 0.015, 0.015),
    ("normal", 30): (0.949, 0.026, 0.0, 0.003, 0.026, 0.022),
    ("5 % of B’s measurements 3 times as slow", 7): (0.398, 0.832, 0.936, 0.001, 0.054, 0.345),
    ("5 % of B’s measurements 3 times as slow", 12): (0.463, 0.993, 0.959, 0.001, 0.041, 0.68),
    ("5 % of B’s measurements 3 times as slow", 30): (0.784, 0.999, 0.991, 0.008, 0.009, 0.746),
    ("5 % of both sides’ measurements 3 times as slow", 7): (0.976, 0.004, 1.0, 0.0, 0.0, 0.004),
    ("5 % of both sides’ measurements 3 times as slow", 12): (0.983, 0.003, 1.0, 0.001, 0.0, 0.003),
    ("5 % of both sides’ measurements 3 times as slow", 30): (0.972, 0.002, 1.0, 0.007, 0.0, 0.002),
    ("20 % of B’s measurements 1.25 times as slow", 7): (0.85, 0.203, 0.852, 0.001, 0.041, 0.076),
    ("20 % of B’s measurements 1.25 times as slow", 12): (0.917, 0.29, 0.985, 0.004, 0.006, 0.107),
    ("20 % of B’s measurements 1.25 times as slow", 30): (0.939, 0.269, 1.0, 0.004, 0.0, 0.085),
    ("autocorrelated, ρ = 0.5", 7): (0.767, 0.212, 1.0, 0.011, 0.001, 0.059),
    ("autocorrelated, ρ = 0.5", 12): (0.752, 0.291, 1.0, 0.065, 0.0, 0.059),
    ("autocorrelated, ρ = 0.5", 30): (0.739, 0.511, 1.0, 0.27, 0.0, 0.082),
    ("autocorrelated, ρ = 0.8", 7): (0.502, 0.809, 1.0, 0.028, 0.0, 0.173),
    ("autocorrelated, ρ = 0.8", 12): (0.468, 0.93, 1.0, 0.188, 0.0, 0.109),
    ("autocorrelated, ρ = 0.8", 30): (0.461, 0.99, 1.0, 0.409, 0.0, 0.134),
}
"""Fault and number of blocks → shares: of contrasts whose interval holds the truth after all blocks; of runs as above,
with any wrong verdict and withheld; of claims withheld for their own cells; of runs with a wrong verdict that neither
look withholds; the same where only a third of the claims have the fault."""
