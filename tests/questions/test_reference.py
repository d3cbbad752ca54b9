"""The data dictionary lists every axis and every column once, in groups, in words that a reader can follow."""

from __future__ import annotations

import re

from feedrate.pages import descriptions
from feedrate.questions.reference import page as reference_page
from feedrate.schema.axes import AXES
from feedrate.schema.columns import AXIS_COLUMNS, TABLES


def test_every_axis_and_column_is_there_once() -> None:
    """Each has an entry of its own to link to; axes, which are columns too, stand among the axes alone."""
    body = reference_page.dictionary_page().body
    axes = {column.name for column in AXIS_COLUMNS}
    wanted = [f"axis-{axis.name}" for axis in AXES]
    for table, columns in TABLES.items():
        wanted += [f"{table}-{column.name}" for column in columns if table != "trials" or column.name not in axes]
    assert re.findall(r'<div id="([\w-]+)">', body) == wanted


def test_every_group_has_its_heading() -> None:
    """A heading stands above the entry that it is named for: one that is renamed takes it along, or this fails."""
    body = reference_page.dictionary_page().body
    for prefix, headings in reference_page._GROUPS.items():
        for name, title in headings.items():
            head, _, rest = body.partition(f"### {title} {{ #{prefix}-from-{name} }}")
            assert rest.lstrip().startswith(f'<dl class="fr-dictionary"><div id="{prefix}-{name}">'), title
            assert head


def test_docs_are_shown_as_text_and_names_as_code() -> None:
    """What a docstring sets apart is code, whatever else it holds is text; units are spelled as people write them."""
    assert descriptions.prose("of the check *termination*, `a_b`'s 2 * 3 <i>") == (
        "of the check <code>termination</code>, <code>a_b</code>’s 2 * 3 &lt;i&gt;"
    )
    text = re.sub(r"<[^>]+>", " ", reference_page.dictionary_page().body)
    assert not re.search(r"[*`]|\bus\b", text)
