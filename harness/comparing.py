"""Two runs compared: everything that they say of each other, B held against A.

A name may stand for a machine with many runs. Of all pairs that two names allow, the two runs with most cells in common
are taken, of equals the newest; a reader who wants others names the runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness import registry, suite
from harness.analysis import noise
from harness.analysis.ceilings import judged
from harness.analysis.claimed_runs import Measured, answered
from harness.analysis.compared import Compared, believable, claims, compared
from harness.claim import Claim, Claims
from harness.compare_named import Named, named
from harness.compare_rules import apart
from harness.errors import InputError
from harness.manifest import RunManifest
from harness.redaction import one_line

_MOST_CELLS, _MOST_ESTIMATES = 20_000, 20_000_000
"""Of a run that is compared: all its cells and blocks lie in the memory at once."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs."""

    manifest: RunManifest
    trials: pd.DataFrame
    """Rows of ``records.TRIALS``."""
    grade: str
    """How quiet its machine was: A to D."""
    tier: str
    """Who vouches for it."""
    notes: tuple[str, ...]
    """Why this run was taken, and what speaks against it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs, B held against A."""

    a: Side
    b: Side
    found: Compared
    claims: pd.DataFrame
    """A row a claim that both tested: ``analysis.compared.CLAIM_COLUMNS``."""
    asked: Mapping[str, Claim]
    """Claims by id."""


def compare(a: str, b: str, results: Path) -> Comparison:
    """Compare what two names stand for.

    Args:
        a: see ``compare_named``.
        b: likewise; it is held against A.
        results: where runs lie.

    Raises:
        InputError: a name stands for nothing, a file is not valid, both are one run, versions of the protocol differ,
            a run is empty or too large, or no cell can be compared.
    """
    first, second = _chosen(named(a, "A", results), named(b, "B", results))
    _same_protocol(first[0].manifest, second[0].manifest)
    one, other = _side("A", *first), _side("B", *second)
    believed = [believable(side.trials) for side in (one, other)]
    runs = [(trials, judged(trials)) for trials in believed]
    found = compared(runs[0], runs[1], apart())
    if not len(found.cells):
        raise _nothing(found, one, other)
    asked = suite.claims()
    told = claims(_verdicts(one, asked), _verdicts(other, asked))
    return Comparison(one, other, found, told, {name: claim for name, (_, claim) in asked.items()})


def _chosen(a: Sequence[Named], b: Sequence[Named]) -> tuple[tuple[Named, str], tuple[Named, str]]:
    """The two runs with most cells in common, and of each why it was taken, where its name allows for others."""
    pairs = [(one, other) for one in a for other in b if one.manifest.run_id != other.manifest.run_id]
    if not pairs:
        raise InputError(f"A and B are the same run, {a[0].run_id}; expected two. make sweep makes another")
    one, other = max(pairs, key=_rank) if len(pairs) > 1 else pairs[0]
    return (one, _why("A", one, len(a))), (other, _why("B", other, len(b)))


def _rank(pair: tuple[Named, Named]) -> tuple[object, ...]:
    """Most cells in common first, then the newest, B after A."""
    begun = [(run.manifest.started_at, run.manifest.run_id) for run in pair]
    return len(pair[0].cells & pair[1].cells), max(begun), min(begun), begun[1]


def _why(letter: str, run: Named, of: int) -> str:
    if of == 1:
        return ""
    return (
        f"{letter} names a machine: of its {of} newest runs that were not withdrawn, {run.run_id} has most cells in "
        "common with the other side, or is the newest of those that have as many."
    )


def _same_protocol(a: RunManifest, b: RunManifest) -> None:
    if a.protocol_version == b.protocol_version:
        return
    older = min(a, b, key=lambda run: run.protocol_version)
    raise InputError(
        f"A (run {one_line(a.run_id)}) was measured by version {a.protocol_version} of the protocol, B (run "
        f"{one_line(b.run_id)}) by version {b.protocol_version}; expected one version: what was measured in different "
        f"ways is not compared. Repeat run {one_line(older.run_id)} with a newer feedrate"
    )


def _side(letter: str, run: Named, note: str) -> Side:
    trials, withdrawn = run.trials(), run.about.withdrawn
    cells, blocks = trials["cell_id"].nunique(), trials["block"].nunique()
    if not cells or cells > _MOST_CELLS or cells * blocks > _MOST_ESTIMATES:
        raise InputError(
            f"{letter}: run {run.run_id} holds {cells:,} cells in {blocks:,} blocks; expected 1 to {_MOST_CELLS:,} "
            f"cells, and cells × blocks of at most {_MOST_ESTIMATES:,}. Compare another run"
        )
    notes = [note] if note else []
    if withdrawn:
        notes.append(f"{letter}'s run was withdrawn on {withdrawn.on}: {withdrawn.why}")
    grade = noise.grade(trials, run.manifest.control).letter
    return Side(run.manifest, trials, grade, run.about.tier, tuple(notes))


def _nothing(found: Compared, a: Side, b: Side) -> InputError:
    counts = found.unmatched["reason"].value_counts()
    reasons = "; ".join(f"{count} {reason}" for reason, count in counts.items())
    return InputError(
        f"A (run {one_line(a.manifest.run_id)}) and B (run {one_line(b.manifest.run_id)}) have no cell in common that "
        f"can be compared: {one_line(reasons)}. {_what_helps(a.manifest, b.manifest)}"
    )


def _what_helps(a: RunManifest, b: RunManifest) -> str:
    """What to do about two runs without a common cell; of what they say of themselves only names that are known."""
    if a.device != b.device:
        return "Expected two runs on one kind of device: compare machines that both have a GPU, or that both have none"
    suites = [f" SUITE={name}" for name in registry.names("suites") if name in a.suites]
    return f"Expected two runs of one suite on the same data: make sweep{''.join(suites[:1])} on both machines"


def _verdicts(side: Side, asked: Claims) -> pd.DataFrame:
    """What a run says of claims; nothing where a version of the protocol measured it that is not this one's."""
    rows = answered([Measured.of(side.manifest, side.trials, asked)], asked).found.claims
    return rows if "verdict" in rows else pd.DataFrame(columns=["claim", "verdict"])
