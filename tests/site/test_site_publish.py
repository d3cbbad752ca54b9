"""What is made of a built site: its list of pages, its headers, and the same bytes in one process and in several."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
from visits import Site, policies

from feedrate.pages import kept as kept_pages
from feedrate.pages import markup, processes
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import ROOT
from feedrate.site import build as site_build
from feedrate.site import publish
from feedrate.site.publish import HEADERS, sitemap
from feedrate.store import marks
from feedrate.store import runs as store_runs

pytestmark = pytest.mark.slow

ADDRESS = "https://example.org/x/"


def test_every_page_is_listed_where_the_address_is_known(tmp_path: Path) -> None:
    """Search engines find all pages, whoever made them, and nothing else; without an address there is no list."""
    for name in ("index.html", "404.html", "runs/a & b.html", "data/x.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    sitemap(tmp_path, ADDRESS)
    listed = re.findall("<loc>(.*)</loc>", (tmp_path / "sitemap.xml").read_text(encoding="utf-8"))
    assert listed == [f"{ADDRESS}index.html", f"{ADDRESS}runs/a &amp; b.html"]
    sitemap(tmp_path, "")
    assert not (tmp_path / "sitemap.xml").exists()


def test_a_host_can_send_the_policy_as_a_header(sites: dict[str, Site]) -> None:
    """The file for it holds the policy of the pages, and forbids framing, which a page cannot."""
    (policy,) = policies(sites["main"])
    header = f"/*\n  Content-Security-Policy: {policy}; frame-ancestors 'none'\n"
    assert sites["main"].text(HEADERS) == header


def test_the_theme_styles_no_page_anew(sites: dict[str, Site]) -> None:
    """No rule or script of the theme restyles a page that is there: the page says it at its beginning."""
    site = sites["main"]
    sheets = [path.read_text(encoding="utf-8") for path in (site.folder / "assets").rglob("*.css")]
    assert any("[data-md-color-scheme" in sheet for sheet in sheets)
    assert not any("[data-md-color-switching" in sheet for sheet in sheets)
    (bundle,) = (site.folder / "assets" / "javascripts").glob("bundle.*.js")
    script = bundle.read_text(encoding="utf-8")
    for theirs, ours in publish._THEMES_SCRIPT:
        assert script.count(ours) == 1
        assert theirs not in script
    for what in ('classList.add("js")', 'classList.add("js-focus-visible")', '"data-js-focus-visible"'):
        assert what in script
    for text in site.texts().values():
        head = text.partition("</head>")[0]
        assert head.index("Content-Security-Policy") < head.index("className='js js-focus-visible'")
        assert head.index("className=") < head.index("<link")


def test_two_builds_do_not_meet(sites: dict[str, Site], tmp_path: Path) -> None:
    """While a folder is being built another build is refused, and the first is not disturbed."""
    with site_build._alone(tmp_path), pytest.raises(InputError, match="another build is under way there"):
        site_build.build(sites["empty"].results, tmp_path)


def test_what_did_not_change_is_not_made_again(
    fake_run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second build makes nothing anew, one of a run less nothing of the others; damage and new code are noticed.

    One process makes the same bytes as several.
    """
    results, out = tmp_path / "results", tmp_path / "out"
    committed = min(store_runs.folders(ROOT / "results"), key=lambda run: (run / "trials.parquet").stat().st_size)
    two = results / committed.parent.name / committed.name
    shutil.copytree(committed, two, copy_function=shutil.copyfile)
    two_suites = json.loads((two / "run.json").read_text(encoding="utf-8"))["suites"]
    one: Path = fake_run.write(results, fake_run.Fake(batches=(8,), blocks=3, fails="none"))

    def built() -> tuple[dict[str, bytes], dict[str, int]]:
        site = site_build.build(results, out)
        files = {str(path.relative_to(site)): path for path in site.rglob("*") if path.is_file()}
        made = {name: path.read_bytes() for name, path in files.items() if not name.endswith((".gz", ".pdf"))}
        return made, {path.name: path.stat().st_mtime_ns for path in (out / "kept").iterdir()}

    monkeypatch.setattr(processes, "WORTH", 0)
    first, kept = built()
    marks.withdraw(one, "the disk was failing")
    withdrawn, kept_then = built()
    names = ("validated", "a run's page", "observed", *(f"suites/{name}.md True" for name in two_suites))
    of_two = {kept_pages.Kept(out / "kept")._path(name, [two]).name for name in names}
    assert of_two <= dict(kept.items() & kept_then.items()).keys()
    assert set(kept) != set(kept_then)
    assert b"the disk was failing" in withdrawn[f"runs/{markup.slug(one.name)}.html"]
    assert withdrawn["index.html"] != first["index.html"]
    monkeypatch.setattr(processes, "WORTH", sys.maxsize)
    (tmp_path / "code").write_text("another version")
    monkeypatch.setattr(kept_pages, "_code", (tmp_path / "code").read_text)
    alone, anew = built()  # by one process, of code that changed while it serves the site
    assert set(anew).isdisjoint(kept_then)
    assert not [name for name in alone.keys() | withdrawn.keys() if alone.get(name) != withdrawn.get(name)]
    assert built()[1] == anew
    (two / "trials.parquet").write_bytes(b"PAR1")
    assert f"runs/{markup.slug(two.name)}.html" in alone
    assert f"runs/{markup.slug(two.name)}.html" not in built()[0]
