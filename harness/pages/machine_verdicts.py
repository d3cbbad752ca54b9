"""What became of the sources' claims on one machine, in one list."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from harness.analysis.claim_words import estimate
from harness.analysis.claimed import NOT_TESTABLE, VERDICTS
from harness.charts import _words as words
from harness.pages import claims, markup
from harness.pages.claim_section import badge
from harness.pages.verdicts import Told, Verdicts


def listing(told: Verdicts, machine_id: str, path: str) -> str:
    """Write the verdicts of a machine, a table a device; empty where none of its runs tested a claim.

    Args:
        told: what all runs say of the claims.
        machine_id: the machine's readable id.
        path: of its page.
    """
    return "".join(
        _tallied(told, at) + _table(told, at, path)
        for at, place in enumerate(told.places)
        if place.shown.machine_id == machine_id
    )


def _tallied(told: Verdicts, at: int) -> str:
    counts = words.listed(f"{count} {verdict}" for verdict, count in told.tally(at).items())
    device = f", on the {told.places[at].device.upper()}" if told.places[at].several else ""
    return markup.paragraph(f"Of {words.plural(len(told.told), 'claim')}{device}: {counts}.", "fr-answer")


def _table(told: Verdicts, at: int, path: str) -> str:
    rows = [
        (
            badge(each.verdict),
            markup.link(path, f"{claims.PATH}#claim-{name}", each.claim.says),
            _effect(each),
            _n(each),
        )
        for name, each in _by_verdict(told, at)
    ]
    more = markup.link(path, claims.PATH, "All claims, how they are tested, and what cannot be tested here")
    listed = markup.table(
        "Verdicts of this machine", ("Verdict", "Claim", "Effect (95 %)", "n"), rows, ("n",), stack=True
    )
    summary = f"The {words.plural(len(rows), 'claim')} tested here, with effects"
    return f'<details><summary>{summary}</summary>{listed}</details>\n<p class="fr-note">{more}</p>\n'


def _by_verdict(told: Verdicts, at: int) -> Iterator[tuple[str, Told]]:
    """The claims that were tested, confirmed ones first."""
    for verdict in VERDICTS:
        if verdict != NOT_TESTABLE:
            yield from ((name, part[at]) for name, part in told.told.items() if part[at].verdict == verdict)


def _effect(each: Told) -> str:
    return escape(estimate(each.row)) if words.known(each.row.get("ratio")) else "a fact"


def _n(each: Told) -> str:
    return f"{int(each.row['n'])}" if words.known(each.row.get("n")) else "–"
