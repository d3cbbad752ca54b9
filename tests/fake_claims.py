"""What a made-up run of the claims measures: the cells of claims that a device can test, with effects by formula.

Every cell is faster or slower by a factor of its own, so that claims come out either way; the numbers stand for no
machine, and confirm or refute nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import fake_storage

from feedrate.plan import suite
from feedrate.plan.claim import cell_on, terms, untestable
from feedrate.schema.axes import Value

PHOTOGRAPHS = "div2k_standin"
_TOLD_APART = 0.35
"""Spread of the factors, as a log."""


def cells(device: str, suites: Sequence[str]) -> list[dict[str, Value]]:
    """List the cells of the claims of some suites that can be tested on a device."""
    asked = [claim for owner, claim in suite.claims().values() if owner in suites and untestable(claim, device) is None]
    checks = [cell_on({"mode": "check", **values}, device, PHOTOGRAPHS)[0] for claim in asked for values in claim.facts]
    effects = [effect for claim in asked for effect, _ in claim.effects()]
    return [*checks, *(term.cell for effect in effects for term in terms(effect, device, PHOTOGRAPHS))]


def factor(cell_id: str) -> float:
    """How much longer than usual a cell takes; every third takes as long as usual."""
    place = int(cell_id[:6], 16)
    return 1.0 if place % 3 == 0 else math.exp(_TOLD_APART * (place / 0xFFFFFF - 0.5))


def checked(cell: Mapping[str, Value]) -> dict[str, Any]:
    """What a check of a fact reports."""
    fact = len(str(cell)) % 2 == 0
    return {
        "fact": fact,
        "fact_value": 0.75 if fact else 0.0,
        "evidence": f"Made up: {'seen' if fact else 'not seen'}.",
    }


def columns(cell: Mapping[str, Value], steps: int) -> dict[str, Any]:
    """What claims about other things than throughput are told from."""
    samples = steps * int(cell.get("batch_size", 1))
    stored: dict[str, Any] = {"stored_bytes": 10**9, "read_bytes": 10**9 * samples // int(cell.get("n_samples", 1))}
    stored["cached_after_pct"] = fake_storage.cached_after_pct(cell, steps) if "n_samples" in cell else 100.0
    return {
        **(stored if cell.get("page_cache") in ("cold", "full") else {}),
        **({"cached_before_pct": 0.0} if cell.get("page_cache") == "cold" else {}),
        "workers_uss_start_bytes": 10**8,
        "workers_uss_end_bytes": 10**8 + 40 * samples,
        "voluntary_switches": samples // 2,
        "involuntary_switches": samples // 4 + 1,
        "mem_available_bytes": 10**10,
    }
