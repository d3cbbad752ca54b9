"""Pages → finished site: assets, mkdocs, figures in their places, and one strict content security policy.

Figures, folded parts and files that pages offer never pass through mkdocs.

The policy names the hashes of the theme's inline scripts, so it is made after the build, from all pages, and is the
same on every page. As a ``<meta>`` element it binds pages, and workers that a page makes from text of its own, as the
page Compare does; a worker from the network it would not bind. A host should send it as a header as well: it stands in
``_headers``, which some hosts read.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from tempfile import NamedTemporaryFile
from typing import Any

import vl_convert
from jinja2 import FileSystemBytecodeCache

from feedrate.charts.embed import FOLDED
from feedrate.charts.theme import css, on_page
from feedrate.pages.markup import Page, Placed, addressed, slot
from feedrate.schema.errors import FeedrateError
from feedrate.schema.plugins import RESOURCES
from feedrate.site import scripts

SOURCE = RESOURCES / "site"
_SCRIPT = re.compile(r"<script(?P<attributes>[^>]*)>(?P<body>.*?)</script>", re.DOTALL)
HEADERS = "_headers"
"""The file from which some hosts take the headers that they send; for others it holds the policy to be copied."""
_SEARCH = 'data-md-component="search" role="dialog"'
"""An element to which the theme gives no name."""
_NUMBER = re.compile(r"(?<![\w.&#])\d[^\s<>]*")
"""A word of the search's index that begins with a digit: lunr.js takes some for others, and fails over every word that
begins like one of those. Nobody looks for them."""
_CHARSET = '<meta charset="utf-8">'
_SWITCHING = re.compile(r"\[data-md-color-switching\][^{}]*\{[^{}]*\}")
"""A rule of the theme that keeps elements from fading when the palette is chosen. It holds for every element, and the
theme turns it on for a moment on every page that loads: all of the page is styled and laid out twice more."""
_THEMES_SCRIPT = (
    # It makes a <meta> that names light or dark, and all of a page is styled anew for it; ``feedrate.css`` says so too.
    ('{name:"color-scheme"}', '{name:"fr-scheme"}'),
    # It holds every link against a feature that is not used here, and listens twice for each folded part of a page, of
    # which there are dozens: that blocks a page for as long again as all else it does. ``folded.js`` listens once.
    ('("a",e)', '("a[data-preview]",e)'),
    ('("details",e)', '("details.fr-by-the-theme",e)'),
)
"""What a script of the theme says, and what it says here."""
_SCRIPTED = (
    "<script>document.documentElement.className='js js-focus-visible';"
    "document.documentElement.dataset.jsFocusVisible=''</script>"
)
"""What scripts of the theme say of a page that is whole, said before it has anything to be styled anew."""
_POLICY = (
    "default-src 'none'; script-src 'self' {hashes}; style-src 'self' {styles}; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self' blob:; base-uri 'none'; form-action 'self'"
)
_LOST = "<h1>404 - Not found</h1>"
_LOST_HERE = "<h1>There is no such page</h1><p>The search above, or one of the tabs, leads on.</p>"


def put_assets(docs: Path) -> None:
    """Put styles and scripts below the folder of pages."""
    shutil.copytree(SOURCE / "assets", docs / "assets")
    (docs / "assets" / "palette.css").write_text(css(), encoding="utf-8")
    (docs / "assets" / "vega.js").write_text(_vega(), encoding="utf-8")
    scripts.bundle(docs / "assets" / "scripts")


def publish(docs: Path, target: Path, nav: list[dict[str, Any]], pages: Sequence[Page]) -> None:
    """Turn pages into the site below ``target``; assets lie below ``docs`` already."""
    apart = [*map(_folded_apart, pages)]
    for page in apart:
        put(docs / page.path, page.markdown())
    _mkdocs(SOURCE / "mkdocs.yml", docs, target, nav)
    for sheet in (target / "assets" / "stylesheets").glob("*.css"):
        sheet.write_text(_SWITCHING.sub("", sheet.read_text(encoding="utf-8")), encoding="utf-8")
    for bundle in (target / "assets" / "javascripts").glob("bundle.*.js"):
        script = bundle.read_text(encoding="utf-8")
        for theirs, ours in _THEMES_SCRIPT:
            script = script.replace(theirs, ours)
        bundle.write_text(script, encoding="utf-8")
    _without_numbers(target / "search" / "search_index.json")
    for page in apart:
        _finish(target, page)
    policy = _secure(sorted(target.rglob("*.html")))
    put(target / HEADERS, f"/*\n  Content-Security-Policy: {policy}; frame-ancestors 'none'\n")


def _without_numbers(path: Path) -> None:
    """Take numbers out of the texts that the search looks in; titles and places stay."""
    index = json.loads(path.read_text(encoding="utf-8"))
    for entry in index["docs"]:
        entry["text"] = _NUMBER.sub("", entry["text"])
    path.write_text(json.dumps(index, sort_keys=True, separators=(",", ":")), encoding="utf-8")


def _finish(site: Path, page: Page) -> None:
    """Put figures in their places on a built page, and the files that it offers beside it."""
    files, built = page.all_files(), (site / page.path).with_suffix(".html")
    html = built.read_text(encoding="utf-8")
    for name, placed in page.figures.items():
        html = html.replace(slot(name), placed.html, 1)
    if page.charts:
        address = addressed(PurePosixPath(page.charts).name, str(files[page.charts]))
        html = html.replace("</head>", f'<meta name="fr-charts" content="{address}"></head>', 1)
    put(built, html)
    for path, content in files.items():
        put(site / path, content)


def sitemap(site: Path, address: str) -> None:
    """List every page of a finished site for search engines; mkdocs' own list has the day of the build in it."""
    for name in ("sitemap.xml", "sitemap.xml.gz"):
        (site / name).unlink(missing_ok=True)
    if address:
        paths = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html")
        places = "".join(f"<url><loc>{escape(address + path)}</loc></url>\n" for path in paths)
        head = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
        (site / "sitemap.xml").write_text(f"{head}{places}</urlset>\n", encoding="utf-8")


def address() -> str:
    """Where the site will be published, as ``mkdocs.yml`` says it, ending in a slash; empty where it does not."""
    from mkdocs.utils.yaml import yaml_load

    with (SOURCE / "mkdocs.yml").open(encoding="utf-8") as file:
        published: str = yaml_load(file).get("site_url") or ""
    return published and published.rstrip("/") + "/"


def put(path: Path, content: str | Path) -> None:
    """Write a file, or copy it, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Path):
        shutil.copyfile(content, path)
    else:
        path.write_text(content, encoding="utf-8")


def _vega() -> str:
    """Vega, Vega-Lite and Embed as one script, with the charts' theme; kept, as making it takes over a second."""
    path = scripts.NPM / f"vega-{version('vl-convert-python')}.js"
    if path.exists():
        script = path.read_text(encoding="utf-8")
    else:
        script = f"(()=>{{{vl_convert.javascript_bundle('window.vegaEmbed = vegaEmbed;')}}})();"
        with suppress(OSError):
            with NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as temporary:
                temporary.write(script)
            Path(temporary.name).replace(path)
    return f"{script}\nwindow.feedrateTheme={json.dumps(on_page(), separators=(',', ':'), sort_keys=True)};\n"


def _mkdocs(configuration: Path, docs: Path, target: Path, nav: list[dict[str, Any]]) -> None:
    compiled = docs.parent / "theme"
    compiled.mkdir(exist_ok=True)
    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config
    from mkdocs.exceptions import MkDocsException

    logging.getLogger("mkdocs").setLevel(logging.WARNING)
    try:
        loaded = load_config(str(configuration), docs_dir=str(docs.resolve()), site_dir=str(target.resolve()), nav=nav)
        # mkdocs compiles its theme's templates in every build, which takes a fifth of it.
        environment = loaded.theme.get_env()
        environment.bytecode_cache = FileSystemBytecodeCache(str(compiled))
        vars(loaded.theme)["get_env"] = lambda: environment
        build(loaded)
    except (MkDocsException, SystemExit) as error:
        raise FeedrateError(f"{configuration}: mkdocs could not build the site: {error}") from error


def _folded_apart(page: Page) -> Page:
    """Put what is folded in its place later, like a figure: Markdown would look at each cell of its tables."""
    parts: dict[str, Placed] = {}

    def slotted(folded: re.Match[str]) -> str:
        name = f"folded-{len(parts)}"
        parts[name] = Placed(name, folded[0])
        return slot(name)

    body = FOLDED.sub(slotted, page.body)
    return replace(page, body=body, figures={**parts, **page.figures})


def _secure(paths: Iterable[Path]) -> str:
    """Put one policy into all pages, and return it; say what the theme leaves out of every page."""
    texts = {path: path.read_text(encoding="utf-8").replace(_CHARSET, f"{_CHARSET}{_SCRIPTED}", 1) for path in paths}
    inline = {
        match["body"].encode()
        for text in texts.values()
        for match in _SCRIPT.finditer(text)
        if "src=" not in match["attributes"] and "json" not in match["attributes"]
    }
    styles = _hashed(scripts.plot_style().encode())
    policy = _POLICY.format(hashes=" ".join(sorted(map(_hashed, inline))), styles=styles)
    meta = f'{_CHARSET}<meta http-equiv="Content-Security-Policy" content="{policy}">'
    for path, text in texts.items():
        html = text.replace(_CHARSET, meta, 1).replace(_SEARCH, f'{_SEARCH} aria-label="Search"', 1)
        path.write_text(html.replace(_LOST, _LOST_HERE, 1), encoding="utf-8")
    return policy


def _hashed(inline: bytes) -> str:
    """Name what stands in a page, as a policy does."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(inline).digest()).decode()}'"
