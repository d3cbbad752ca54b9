"""Pages that mkdocs never sees: a page of the theme is built empty, and content is put into it.

mkdocs takes tens of milliseconds for a page and reads all pages before it writes one, so pages of runs and machines,
of which there may be thousands, are not its business. What is made here is byte for byte what mkdocs would have made
(a test holds that), and neither navigation nor search knows of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from feedrate.pages.markup import Page, entities
from feedrate.schema.errors import FeedrateError

_TITLE, _FIRST, _ITEM = "feedrateframetitle", "feedrateframefirst", "feedrateframeitem"
_PATH, _BODY, _CONTENTS = "feedrateframepath", "feedrateframebody", "feedrateframetoc"
"""Letters alone, so that nothing escapes them."""
_PLACES = {
    _BODY: re.compile(rf'<h1 id="{_FIRST}">.*</h2>', re.DOTALL),
    _CONTENTS: re.compile(r'<nav class="md-nav md-nav--secondary".*?</nav>', re.DOTALL),
}
_TOKENS = re.compile(f"({'|'.join((_TITLE, _FIRST, _PATH, _BODY, _CONTENTS))})")
Kind = tuple[int, tuple[str, ...]]
"""How deep a page lies below the site, and what it hides."""


class Content(NamedTuple):
    """What goes into a frame."""

    html: str
    first: str
    """Id of the heading to which "Skip to content" leads."""
    contents: str
    """The table of contents: a ``<nav>``."""


@dataclass(frozen=True, slots=True)
class Frames:
    """Built pages without content, cut at the places where it goes."""

    pieces: dict[Kind, tuple[str, ...]] = field(default_factory=dict)
    """Text and tokens in turn."""

    def fill(self, page: Page, content: Content) -> str:
        """Write a page."""
        values = {
            _TITLE: entities(page.title),
            _PATH: PurePosixPath(page.path).with_suffix(".html").as_posix(),
            _FIRST: content.first,
            _BODY: content.html,
            _CONTENTS: content.contents,
        }
        return "".join(values[piece] if at % 2 else piece for at, piece in enumerate(self.pieces[_kind(page)]))


def placeholders(pages: Iterable[Page]) -> list[Page]:
    """Make the pages that mkdocs must build, so that some other pages can be put into them."""
    body = f"# {_FIRST} {{ #{_FIRST} }}\n\n## {_ITEM} {{ #{_ITEM} }}\n"
    found = []
    for depth, hide in sorted(set(map(_kind, pages))):
        path = f"{'feedrate-frame/' * depth}{'-'.join(('feedrate-frame', *hide))}.md"
        found.append(Page(path, _TITLE, body, listed=False, hide=hide))
    return found


def take(site: Path, built: Iterable[Page]) -> Frames:
    """Read what has become of placeholders, and remove them from the site.

    Raises:
        FeedrateError: the theme no longer has the places where content goes.
    """
    frames = Frames()
    for page in built:
        path = (site / page.path).with_suffix(".html")
        html = path.read_text(encoding="utf-8").replace(path.relative_to(site).as_posix(), _PATH)
        for token, place in _PLACES.items():
            html, count = place.subn(token, html)
            if count != 1:
                where = "harness/feedrate/site/shell.py"
                raise FeedrateError(f"{where}: the theme has {count} places for {token}; expected one")
        frames.pieces[_kind(page)] = tuple(_TOKENS.split(html))
        path.unlink()
        while path.parent != site and not any(path.parent.iterdir()):
            path = path.parent
            path.rmdir()
    return frames


def _kind(page: Page) -> Kind:
    return len(PurePosixPath(page.path).parts) - 1, tuple(page.hide)


class Shell:
    """Turns bodies in Markdown into content as one mkdocs configuration does."""

    def __init__(self, configuration: Any) -> None:
        """Take what is needed of a configuration."""
        import markdown

        self._markdown: Any = markdown.Markdown(
            extensions=configuration["markdown_extensions"], extension_configs=configuration["mdx_configs"] or {}
        )
        self._configuration = configuration
        self._contents = configuration.theme.get_env().from_string(
            '{% import "partials/language.html" as lang with context %}{% include "partials/toc.html" %}'
        )

    def content(self, body: str) -> Content:
        """Write a body."""
        self._markdown.reset()
        html = self._markdown.convert(body)
        tokens = self._markdown.toc_tokens
        return Content(html, tokens[0]["id"], self._list(tokens))

    def empty(self) -> Content:
        """Write an empty body, whose only heading that counts is its first."""
        return Content("", "", self._list([{"level": 1, "id": "", "name": "", "children": []}]))

    def _list(self, tokens: list[Any]) -> str:
        from mkdocs.structure.toc import get_toc

        html: str = self._contents.render(page={"toc": get_toc(tokens)}, config=self._configuration)
        return html[html.index("<nav") : html.rindex("</nav>") + len("</nav>")]
