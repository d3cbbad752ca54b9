"""What became of the sources' claims on one machine, in one list."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from harness.analysis.claim_words import estimate
from harness.analysis.claimed import NOT_TESTABLE, VERDICTS
from harness.charts import _words as words
from harness.charts._folded import folded
from harness.pages import claims, described, markup
from harness.pages.claim_section import badge
from harness.pages.verdicts import Told, Verdicts


def listing(told: Verdicts, machine_id: str, path: str, *, by_device: bool) -> str:
    """Write the verdicts of a machine, a table a device; empty where none of its runs tested a claim.

    Args:
        told: what all runs say of the claims.
        machine_id: the machine's readable id.
        path: of its page.
        by_device: whether the device must be named.
    """
    found = []
    for at, place in enumerate(told.places):
        if place.shown.machine_id == machine_id:
            device = f" {described.on_device(place.device)}" if by_device else ""
            found.append(_tallied(told, at, device) + _table(told, at, path, device))
    return "".join(found)


def _tallied(told: Verdicts, at: int, device: str) -> str:
    counts = words.listed(f"{count} {verdict}" for verdict, count in told.tally(at).items())
    return markup.paragraph(f"Of {words.plural(len(told.told), 'claim')}{device}: {counts}.", "fr-answer")


def _table(told: Verdicts, at: int, path: str, device: str) -> str:
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
        f"Verdicts of this machine{device}", ("Verdict", "Claim", "Effect (95 %)", "n"), rows, ("n",), stack=True
    )
    summary = f"The {words.plural(len(rows), 'claim')} tested here{device}, with effects"
    return f'{folded(summary, listed)}<p class="fr-note">{more}</p>\n'


def _by_verdict(told: Verdicts, at: int) -> Iterator[tuple[str, Told]]:
    """The claims that were tested, confirmed ones first."""
    for verdict in VERDICTS:
        if verdict != NOT_TESTABLE:
            yield from ((name, part[at]) for name, part in told.told.items() if part[at].verdict == verdict)


def _effect(each: Told) -> str:
    """The ratio; a claim of an effect that no block tells, as in each a side failed, has none and is no fact."""
    if words.known(each.row.get("ratio")):
        return escape(estimate(each.row))
    return "–" if each.claim.effect else "a fact"


def _n(each: Told) -> str:
    return f"{int(each.row['n'])}" if words.known(each.row.get("n")) else "–"
