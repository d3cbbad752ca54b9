"""The tables of rules: each rule and cap stands there once, where a run that is left out links to."""

from __future__ import annotations

import re

from feedrate.questions.methodology import page as methodology_page
from feedrate.share.validation import caps, flags, validator
from feedrate.share.validation.admission import BESIDE, UNIQUE
from feedrate.share.validation.findings import Finding, Validated
from feedrate.share.validation.guard import READABLE


def test_whatever_can_refuse_a_run_can_be_linked_to() -> None:
    """A run that is left out links to the rule or the cap that it breaks, and each of them has its place."""
    page = methodology_page.page().body
    names = [rule.name for rule in (*validator.RULES, READABLE, UNIQUE, BESIDE, *flags.RULES, *caps.CAPS)]
    places = re.findall(r'id="rule-(\w+)"', page)
    assert sorted(places) == sorted(names)
    for name in ("rows", "codec", UNIQUE.name):
        finding = Finding(name, "refused", "trials.parquet", "<b>", "less")
        link = re.findall(
            r'href="[^"]*#(rule-\w+)"', said := methodology_page.left_out([Validated("m/r", findings=(finding,))])
        )
        assert link == [f"rule-{name}"]
        assert link[0].removeprefix("rule-") in places
        assert "<b>" not in said


def test_a_table_of_flags_says_what_is_odd() -> None:
    """What flags a file is odd, what refuses one is what holds: the headings say which."""
    body = methodology_page.page().body
    for name, heading in ((flags.RULES[0].name, "What is odd"), (READABLE.name, "What holds")):
        before = body.partition(f'id="rule-{name}"')[0]
        assert heading in before[before.rindex("<thead") :]
