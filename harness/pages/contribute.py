"""How to run feedrate, what a run needs to be published, and how to add to it: one prose for the site and for GitHub.

The page is ``site/pages/contribute.md`` followed by the sections of ``CONTRIBUTING.md``; tests hold the commands and
files that they name against the Makefile, the command line and the folders.
"""

from __future__ import annotations

import re
from html import escape

from harness.pages import markup
from harness.pages.markup import Page

PATH = "contribute.md"
_CONTENTS, _CONTRIBUTING = "{{contents}}", "{{contributing}}"
_HEADING = re.compile(r"^## (?P<title>.+?)(?: \{ #(?P<name>[\w-]+) \})?$", re.MULTILINE)


def page(prose: str, contributing: str) -> Page:
    """Write the page.

    Args:
        prose: Markdown with a place for the contents and one for the rest.
        contributing: the text of ``CONTRIBUTING.md``, whose title and opening are left to GitHub.
    """
    rest = contributing[found.start() :] if (found := _HEADING.search(contributing)) else ""
    whole = _HEADING.sub(_named, prose.replace(_CONTRIBUTING, rest))
    return Page(PATH, "Contribute", whole.replace(_CONTENTS, _contents(whole)))


def _named(heading: re.Match[str]) -> str:
    """Give a heading an id that stays, made from its title where it has none."""
    title = heading["title"]
    name = heading["name"] or markup.slug(re.sub(r"[^a-z]+", "-", title.partition(":")[0].lower()).strip("-"))
    return f"## {title} {{ #{name} }}"


def _contents(text: str) -> str:
    """List the sections, for screens that have no room for the theme's own list."""
    items = "".join(
        f'<li><a href="#{each["name"]}">{escape(each["title"])}</a></li>' for each in _HEADING.finditer(text)
    )
    return f'<nav class="fr-contents" aria-label="Contents of this page"><ul>{items}</ul></nav>\n'
