"""What the scripts of the page Compare are told: tables and margins, so that theirs cannot differ from Python's."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from harness import registry, suite
from harness.analysis.blocks import CONFIDENCE
from harness.analysis.ceilings import BALANCED_WITHIN, MOST, STAGES
from harness.analysis.compared import KINDS
from harness.analysis.compared_stages import STAGES as LOOKED_AT
from harness.analysis.compared_stages import encoded_formats
from harness.analysis.machines import CELL, ROUNDING, SAME_IN_BOTH
from harness.analysis.summary import CONDITIONS, MEMORY_STEP
from harness.axes import AXES
from harness.margins import CONFIRMED_OVER, REFUTED_UNDER, SAME
from harness.records import DEVICE_SPANS, PHASES
from harness.window import COLD, WARM

_FIRST = ("run_id", "block", "outcome", "samples_per_s", "cached_before_pct")
_MORE = ("suite", "role", "samples", "wall_ns", "pss_peak_bytes")


def apart() -> list[str]:
    """Name the suites whose cells are no settings to choose from: there for claims, or for feedrate itself."""
    return [name for name in registry.names("suites") if not suite.for_machines(name)]


def rules() -> dict[str, Any]:
    """Everything that ``site/assets/compare_all.js`` is told, fit for JSON.

    Returns:
        ``axes`` (name, frozen default), ``conditions``, ``apart``, ``kinds``, ``ceilings`` and ``stages``; ``shares``
        (name of a share of the wall clock to its column); ``encoded`` (formats that store image files); what must agree
        (``same_in_both``); margins and limits by name; and ``columns``: those that the ``first`` part of a comparison
        reads, and those that ``more`` reads besides.
    """
    shares = {phase: f"host_{phase}_ns" for phase in PHASES}
    shares |= {f"device_{span}": f"device_{span}_ns" for span in DEVICE_SPANS}
    first = dict.fromkeys((*_FIRST, *CELL, *SAME_IN_BOTH, *(axis.name for axis in AXES)))
    stamps = [stage.column for stage in LOOKED_AT if stage.column]
    return {
        "axes": [{"name": axis.name, "default": axis.default} for axis in AXES],
        "conditions": list(CONDITIONS),
        "apart": apart(),
        "kinds": list(KINDS),
        "ceilings": list(STAGES),
        "stages": [asdict(stage) for stage in LOOKED_AT],
        "shares": shares,
        "encoded": list(encoded_formats()),
        "same_in_both": list(SAME_IN_BOTH),
        "same": list(SAME),
        "confirmed_over": CONFIRMED_OVER,
        "refuted_under": REFUTED_UNDER,
        "confidence": CONFIDENCE,
        "rounding": ROUNDING,
        "balanced_within": BALANCED_WITHIN,
        "most": MOST,
        "memory_step": MEMORY_STEP,
        "cold": COLD,
        "warm": WARM,
        "columns": {"first": list(first), "more": list(dict.fromkeys((*_MORE, *shares.values(), *stamps)))},
    }
