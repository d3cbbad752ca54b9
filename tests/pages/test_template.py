"""Templates escape what they are given, and refuse what they are not."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from feedrate.pages import markup
from feedrate.pages.template import listed, render, table


def test_text_is_escaped_and_markup_stays() -> None:
    """A cell of plain text is text, whatever is in it; a link stays a link, and its text is text."""
    html = table("T", ("A <i>", "B"), [("<b>", markup.link("a/b.md", "c.md#d", "<b>"))], stack=True)
    assert "<b>" not in html
    assert '<a href="../c.html#d">&lt;b&gt;</a>' in html
    assert "A &lt;i&gt;" in html
    assert listed(["<b>", Markup("<i>"), "c"]) == "&lt;b&gt;, <i> and c"


def test_a_value_that_is_missing_is_refused() -> None:
    """A template that names what it is not given fails, and leaves no gap."""
    with pytest.raises(UndefinedError, match="task"):
        render("machines/table.md", rows=[])
