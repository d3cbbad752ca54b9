"""Pages from Jinja2 templates, which lie beside the ``page.py`` that fills them.

Everything that a template is given is escaped, so that nothing which comes from a record can be more than text. What
the kit itself writes (``link``, ``table``, ``facts`` …) is markup already and stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from feedrate.pages import descriptions, markup
from feedrate.schema import words
from feedrate.schema.plugins import PACKAGE

_KIT = (
    *(markup.link, markup.download, markup.heading, markup.paragraph, markup.slot, markup.facts, markup.table),
    *(markup.commands, descriptions.code),
)
_FILTERS = (words.number, words.percent, markup.slug)


def render(template: str, **values: Any) -> Markup:
    """Fill a template.

    Raises:
        jinja2.UndefinedError: the template names a value that was not given.
    """
    return Markup(_ENVIRONMENT.get_template(template).render(values))  # noqa: S704 - autoescape has escaped the values


def _as_markup(write: Callable[..., str]) -> Callable[..., Markup]:
    return lambda *args, **options: Markup(write(*args, **options))  # noqa: S704 - the kit escapes what it is given


_ENVIRONMENT = Environment(
    loader=FileSystemLoader([PACKAGE / "questions", PACKAGE / "pages"]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_ENVIRONMENT.globals.update({write.__name__: _as_markup(write) for write in _KIT})
_ENVIRONMENT.filters.update({write.__name__: write for write in _FILTERS})
_ENVIRONMENT.filters["text"] = _as_markup(markup.entities)
