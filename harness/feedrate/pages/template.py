"""Pages from Jinja2 templates, which lie beside the ``page.py`` that fills them.

A template is Markdown with blocks of HTML: it has the words and the structure, ``page.py`` gathers the values. Every
value is escaped, so that nothing which comes from a record can be more than text; ``Markup`` (``link``, ``code``,
``two_lines`` …) stays as it is. So do cells of ``table`` and values of ``facts``: plain text is escaped, ``Markup`` is
not. In Markdown, outside of HTML, write ``{{ value|text }}``, which hides Markdown's own signs as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from feedrate.charts.embed import folded
from feedrate.pages import descriptions, markup
from feedrate.schema import words
from feedrate.schema.plugins import PACKAGE, RESOURCES


def render(template: str, **values: Any) -> Markup:
    """Fill a template, named by its path below ``questions`` or ``site/pages``: ``home/page.md``.

    Raises:
        jinja2.UndefinedError: the template names a value that was not given.
    """
    return Markup(_ENVIRONMENT.get_template(template).render(values))  # noqa: S704 - autoescape has escaped the values


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    numeric: Sequence[str] = (),
    *,
    stack: bool = False,
) -> Markup:
    """Write a table that scrolls within itself on a narrow screen.

    Args:
        caption: says to a screen reader what the table holds.
        columns: headings.
        rows: cells, plain text or ``Markup``.
        numeric: the columns that are set flush right. With any, the table stays out of search: lunr.js takes some
            words with digits in them for others, and then fails over every word that begins like one of these.
        stack: on a narrow screen show each row as a block of its own, every cell under its heading.
    """
    return Markup(_BLOCKS.table(caption, columns, rows, numeric, stack))  # noqa: S704 - the block escapes all cells


def listed(items: Iterable[object]) -> Markup:
    """Join items as a sentence does; plain text is escaped."""
    return Markup(words.listed(map(escape, items)))  # noqa: S704 - all items are escaped


def _as_markup(write: Callable[..., str]) -> Callable[..., Markup]:
    return lambda *args, **options: Markup(write(*args, **options))  # noqa: S704 - the kit escapes what it is given


_WRITERS = (markup.heading, markup.paragraph, markup.slot, folded)
_ENVIRONMENT = Environment(
    loader=FileSystemLoader([PACKAGE / "questions", PACKAGE / "pages", RESOURCES / "site" / "pages"]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.globals |= {write.__name__: _as_markup(write) for write in _WRITERS}
_ENVIRONMENT.globals |= {write.__name__: write for write in (markup.link, markup.download, markup.code, table)}
_FILTERS = (words.number, words.plural, words.sentence, markup.slug, markup.anchor, listed, descriptions.day)
_ENVIRONMENT.filters |= {write.__name__: write for write in _FILTERS}
_ENVIRONMENT.globals["intervals"] = words.INTERVALS
_ENVIRONMENT.filters["g"] = "{:g}".format
_ENVIRONMENT.filters["text"] = _as_markup(markup.entities)
_BLOCKS: Any = _ENVIRONMENT.get_template("kit.html").module
_ENVIRONMENT.globals |= {name: getattr(_BLOCKS, name) for name in ("facts", "commands")}
