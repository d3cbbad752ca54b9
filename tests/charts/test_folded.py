"""What is folded is there for those without scripts, and is never cut short."""

from __future__ import annotations

import pytest

from feedrate.charts.embed import folded, later
from feedrate.pages.markup import slot


def test_what_is_open_is_part_of_the_page() -> None:
    """Only what is folded waits; what a reader sees at once is there at once."""
    assert folded("Two", "<p>x</p>") == "<details><summary>Two</summary><noscript><p>x</p></noscript></details>\n"
    assert folded("Two", "<p>x</p>", unfolded=True) == "<details open><summary>Two</summary><p>x</p></details>\n"
    assert folded("Two", "", style="fr-data") == '<details class="fr-data"><summary>Two</summary></details>\n'


def test_one_folded_part_does_not_end_another() -> None:
    """A browser would end the outer one at the end of the inner one; text that speaks of it is no element."""
    for inner in (folded("Inner", "<p>x</p>"), "x</noscript", slot("figure")):
        with pytest.raises(ValueError, match="lies in another"):
            later(inner)
    assert later("&lt;/noscript&gt;") == "<noscript>&lt;/noscript&gt;</noscript>"
