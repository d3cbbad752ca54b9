"""What a page holds folded behind a sentence.

Most elements of a page are cells of folded tables. A browser that runs scripts reads a ``<noscript>`` as text, which
costs it next to nothing, and ``site/assets/folded.js`` makes that text part of the page when a reader unfolds it.
Without scripts it is part of the page from the beginning.
"""

from __future__ import annotations

import re

FOLDED = re.compile("<noscript>.*?</noscript>", re.DOTALL)
"""What is read later, in the HTML of a page."""
_PARTED = re.compile('</?noscript|class="fr-slot"')


def folded(summary: str, body: str, *, unfolded: bool = False, style: str = "") -> str:
    """Fold HTML behind a summary.

    Args:
        summary: HTML that is always seen.
        body: HTML that is seen when the part is opened; it has no folded part of its own.
        unfolded: whether it is open from the beginning.
        style: class of the element.

    Raises:
        ValueError: :func:`later` refuses the body.
    """
    kind = f' class="{style}"' if style else ""
    opened = " open" if unfolded else ""
    content = body if unfolded else later(body)
    return f"<details{kind}{opened}><summary>{summary}</summary>{content}</details>\n"


def later(body: str) -> str:
    """Write HTML inside of a folded part so that it is read when that is opened; nothing for nothing.

    Raises:
        ValueError: the HTML has such a part of its own, or the place of a figure, which has one: at its end a browser
            would end this one.
    """
    if _PARTED.search(body):
        raise ValueError("a folded part lies in another; expected HTML without one")
    return body and f"<noscript>{body}</noscript>"
