"""The tables of rules: each rule and cap stands there once, where a run that is left out links to."""

from __future__ import annotations

import re

from harness.admitting import BESIDE
from harness.incoming import caps, check, judged, plausible
from harness.incoming.findings import Finding, Validated
from harness.incoming.guard import READABLE
from harness.pages import rules


def test_whatever_can_refuse_a_run_can_be_linked_to() -> None:
    """A run that is left out links to the rule or the cap that it breaks, and each of them has its place."""
    page = rules.refusing() + rules.capped() + rules.flagging()
    names = [rule.name for rule in (*judged.rules(), READABLE, check.UNIQUE, BESIDE, *plausible.RULES, *caps.CAPS)]
    places = re.findall(r'id="rule-(\w+)"', page)
    assert sorted(places) == sorted(names)
    for name in ("rows", "codec", check.UNIQUE.name):
        finding = Finding(name, "refused", "trials.parquet", "<b>", "less")
        link = re.findall(r'href="[^"]*#(rule-\w+)"', said := rules.left_out([Validated("m/r", findings=(finding,))]))
        assert link == [f"rule-{name}"]
        assert link[0].removeprefix("rule-") in places
        assert "<b>" not in said


def test_a_table_of_flags_says_what_is_odd() -> None:
    """What flags a file is odd, what refuses one is what holds: the headings say which."""
    assert "What is odd" in rules.flagging()
    assert "What holds" not in rules.flagging()
    assert "What holds" in rules.refusing()
