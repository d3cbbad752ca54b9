"""What a run says of itself in a few lines, and what is said of it beside its records, the same on every page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from harness.charts import _words as words
from harness.pages import described, markup, trust
from harness.pages.gathered import Shown
from harness.store_beside import TIERS

RULES = "contribute.md#tiers"


def _linked(page: str, said: str) -> str:
    """A link to the rules; ``site/assets/tiers.js`` finds tiers by its class."""
    return markup.link(page, RULES, said).replace("<a ", '<a class="fr-tier" ', 1)


def tier(page: str, shown: Shown) -> str:
    """Write who vouches for a run as a link to what that means.

    Args:
        page: path of the page that holds the link.
        shown: the run.
    """
    return _linked(page, shown.beside.tier)


def tiers(page: str, runs: Sequence[Shown]) -> str:
    """Write who vouches for some runs: one tier, or how many runs of each.

    Args:
        page: path of the page that holds the link.
        runs: at least one.
    """
    held = [shown.beside.tier for shown in runs]
    counts = [(held.count(name), name) for name in reversed(TIERS) if name in held]
    said = counts[0][1] if len(counts) == 1 else ", ".join(f"{count:,} {name}" for count, name in counts)
    return _linked(page, said)


def beside(shown: Shown) -> list[tuple[str, str]]:
    """Name who vouches for a run, and what its submitter says of it.

    Returns:
        Names and values, the values being HTML.
    """
    given = (("Label", shown.beside.label), ("Submitter’s note", shown.beside.note))
    return [("Tier", tier(shown.page, shown)), *((name, escape(text)) for name, text in given if text)]


def short(shown: Shown) -> list[tuple[str, str]]:
    """Name what was measured, when and with what, from the manifest alone.

    Returns:
        Names and values, the values being HTML.
    """
    run = shown.manifest
    outcomes = ", ".join(f"{count:,} {name}" for name, count in run.outcomes.items())
    return [
        ("Device", escape(run.device)),
        ("Repeat it", described.code(run.command)),
        ("Began", f"{escape(described.day(run.started_at))} ({escape(run.started_at)})"),
        ("Took", escape(described.minutes(run.started_at, run.ended_at))),
        ("Measured", f"{words.plural(run.cells, 'cell')}, in up to {words.plural(run.blocks, 'block')}"),
        ("Trials", escape(outcomes)),
        ("Stopped", escape(trust.STOPPED.get(run.stop_reason, run.stop_reason))),
        ("Suites", escape(words.listed(run.suites) or "none")),
        ("PyTorch", escape(run.software.torch or "unknown")),
        ("Version", f"feedrate {escape(run.feedrate_version)}, protocol {run.protocol_version}, seed {run.seed}"),
    ]
