"""The rules for files that come from others, as tables for the page that says how feedrate works."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from harness.admitting import BESIDE
from harness.incoming import caps, check, judged, plausible
from harness.incoming.findings import Rule, Validated
from harness.incoming.guard import READABLE
from harness.pages import markup


def refusing() -> str:
    """Write the rules by which a file is refused."""
    return _table("Rules by which a file is refused", "What holds", (*judged.rules(), READABLE, check.UNIQUE, BESIDE))


def flagging() -> str:
    """Write the rules by which a file is flagged."""
    return _table("What is flagged for a reviewer", "What is odd", plausible.RULES)


def capped() -> str:
    """Write how much of a file is looked at."""
    rows = [(_named(cap.name), escape(f"{cap.most:,} {cap.unit}"), escape(cap.why)) for cap in caps.CAPS]
    return markup.table("Most that is accepted", ("Cap", "At most", "Why that is enough"), rows, stack=True)


def _table(caption: str, what: str, rules: Iterable[Rule]) -> str:
    rows = [(_named(rule.name), escape(rule.says)) for rule in rules]
    return markup.table(caption, ("Rule", what), rows, stack=True)


def _named(name: str) -> str:
    """The name of a rule or a cap, where findings link to."""
    return f'<code id="rule-{escape(name)}">{escape(name)}</code>'


def left_out(refused: Sequence[Validated]) -> str:
    """Write which runs are not shown because they break a rule, and why; nothing where there is none.

    Args:
        refused: as ``incoming.check.admitted`` gives them.
    """
    if not refused:
        return ""
    rows = []
    for each in refused:
        folder, reason = Path(each.path), each.refusals[0]
        rule = f'<a href="../methodology.html#rule-{reason.rule}"><code>{escape(reason.rule)}</code></a>'
        got = f"{reason.where}: {reason.got}; expected {reason.expected}"
        rows.append((escape(f"{folder.parent.name}/{folder.name}"), rule, escape(got)))
    said = "These runs lie below results/ and break a rule for published files. No page and no number draws on them."
    columns = ("Run", "Rule", "What was found")
    table = markup.table("Runs that are left out", columns, rows, stack=True)
    return markup.heading(2, "Left out", "left-out") + markup.paragraph(said) + table
