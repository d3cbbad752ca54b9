"""Sites that are built from made-up runs once for all test files, and visits to them that note what goes wrong.

Every test file loads this module, so it imports no part of the harness before it is used.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page


@dataclass
class Site:
    """A built site that is being served."""

    results: Path
    folder: Path
    address: str = ""
    pages: list[str] = field(default_factory=list)

    @property
    def runs(self) -> list[Any]:
        from feedrate.store import runs as store_runs

        return store_runs.runs(self.results)

    def text(self, path: str) -> str:
        return (self.folder / path).read_text(encoding="utf-8")

    def texts(self) -> dict[str, str]:
        """Every page by its path."""
        return {str(path.relative_to(self.folder)): self.text(str(path)) for path in self.folder.rglob("*.html")}


def broken_links(site: Site) -> list[tuple[str, str]]:
    """Links within a site that lead to no file or, with a fragment, to no id or choice; ids that a page has twice."""
    texts = site.texts()
    ids = {path: re.findall(r' id="?([^" >]+)', re.sub(r"<svg.*?</svg>", "", text)) for path, text in texts.items()}
    choices = {path: set(re.findall(r' name="?(\w+)"? value="?([^">]+)', text)) for path, text in texts.items()}
    broken = [(path, "an id twice") for path, names in ids.items() if len(set(names)) < len(names)]
    for path, text in texts.items():
        main = text.partition("<article")[2].partition("</article>")[0]
        for address, fragment in re.findall(r'href="([^"#:?]*)(?:\?[^"#]*)?(?:#([^"]*))?"', main):
            target = os.path.normpath(Path(path).parent / address) if address else path
            name, chooses, value = unquote(fragment).partition("=")
            there = (name, value) in choices.get(target, ()) if chooses else name in ids.get(target, ())
            if not (site.folder / target).is_file() or (fragment and not there):
                broken.append((path, f"{address}#{fragment}"))
    return broken


def policies(site: Site) -> set[str]:
    """The content security policies of a site, of which each page has one."""
    every = [
        re.findall(r'http-equiv="?Content-Security-Policy"? content="([^"]+)"', text) for text in site.texts().values()
    ]
    assert {len(of_page) for of_page in every} == {1}
    return {policy for of_page in every for policy in of_page}


def made_up(fake_run: ModuleType) -> dict[str, list[Any]]:
    """Whole runs on two machines; odd runs (hostile, all failed, planted without metrics); no results at all."""
    fake, hostile = fake_run.Fake, fake_run.HOSTILE
    return {
        "main": [fake(workers=(0, 1, 2)), fake(run_id="20260103T030405Z-gpu", device="cuda", busy=True)],
        "odd": [
            fake(run_id=f"<b>x</b> {hostile}", hostile=True, batches=(8,), suites=(hostile,), blocks=2),
            fake(run_id="all-failed", fails="all", batches=(8,), cores=3, blocks=2),
            fake(run_id="planted", suites=("calibration",), plants=True, cores=4, blocks=2, nulls=True),
        ],
        "empty": [],
    }


UNFOLD = """() => {
  window.feedrate.fill(document);
  for (const part of document.querySelectorAll("details")) part.open = true;
  for (const part of document.querySelectorAll(".fr-figure, .fr-claims, details")) {
    part.style.contentVisibility = "visible";
  }
}"""
"""Unfolds all of a page at once, and lays out what is out of sight.

A part that a script opens would else be filled a moment later, and a colour begin to change when a test looks at it.
"""
SETTLED = """() => new Promise((settled) => requestAnimationFrame(() => requestAnimationFrame(() => {
  settled(Promise.allSettled(document.getAnimations().map((animation) => animation.finished)));
})))"""
"""Waits until what changed is laid out and every colour has come to rest."""
COMMITTED = "committed"
"""The site of the results that are in the repository."""


def everybody(folders: Sequence[Path]) -> Any:
    """Let every run in: what is hostile must stay text even where a rule has missed it."""
    from feedrate.share import validator

    return validator.Admitted(tuple(folders), ())


def built(root: Path, name: str, fake_run: ModuleType) -> Site:
    """Build one of the sites; where several processes ask, the first builds and the others wait for it."""
    from feedrate.schema.plugins import ROOT
    from feedrate.share import validator
    from feedrate.site import build as site_build

    results, out = root / name / "results", root / name / "build"
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = root / f"{name}.done"
        if not done.exists():
            shutil.rmtree(root / name, ignore_errors=True)  # of a build that failed
            if name == COMMITTED:
                site_build.build(ROOT / "results", out, validator.admit)
            else:
                for run in made_up(fake_run)[name]:
                    fake_run.write(results, run)
                site_build.build(results, out, everybody)
            done.touch()
    folder = out / "site"
    results = ROOT / "results" if name == COMMITTED else results
    return Site(results, folder, pages=sorted(str(path.relative_to(folder)) for path in folder.rglob("*.html")))


class Sites(dict[str, Site]):
    """The sites of ``made_up`` by name, and ``COMMITTED``, each built and served when it is first asked for."""

    def __init__(self, root: Path, fake_run: ModuleType, stack: ExitStack) -> None:
        super().__init__()
        self._root, self._fake_run, self._stack = root, fake_run, stack

    def __missing__(self, name: str) -> Site:
        from feedrate.site.serve import served

        shown = self[name] = built(self._root, name, self._fake_run)
        shown.address = self._stack.enter_context(served(shown.folder))
        return shown


def common_root(base: Path) -> Path:
    """A folder that all processes of one test run share, from pytest's base folder of this process."""
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "sites"


@dataclass
class Visit:
    """A page and everything that went wrong on it."""

    page: Page
    origin: str
    problems: list[str] = field(default_factory=list)

    def watch(self) -> None:
        def note(what: str, wrong: bool) -> None:
            if wrong:
                self.problems.append(what)

        on = self.page.on
        on("console", lambda message: note(message.text, message.type in ("error", "warning")))
        on("pageerror", lambda error: note(str(error), True))
        # A request that is still under way when the page is left is aborted; that is no failure of the page.
        on("requestfailed", lambda sent: note(f"{sent.url}: {sent.failure}", sent.failure != "net::ERR_ABORTED"))
        on("request", lambda sent: note(f"off host: {sent.url}", not self.at_home(sent.url)))
        on("response", lambda answer: note(f"{answer.status}: {answer.url}", answer.status >= 400))

    def at_home(self, url: str) -> bool:
        return url.removeprefix("blob:").startswith(self.origin)

    def open(self, path: str) -> Page:
        self.page.goto(self.origin + path)
        return self.page


def unfold(summary: Locator) -> None:
    """Open a folded part by the keyboard: figures get their size as they come into view, and a pointer may miss it."""
    summary.press("Enter")


def narrowed(page: Page, width: int) -> int:
    """Make the window so wide, and give the width of what is in it, once the theme's drawer has slid out of the way."""
    page.set_viewport_size({"width": width, "height": 900})
    for _ in range(100):
        wide: int = page.evaluate("document.documentElement.scrollWidth")
        if wide <= width:
            break
        page.wait_for_timeout(50)
    return wide


def visit(browser: Browser, shown: Site, width: int = 1280, **options: Any) -> Visit:
    """Open a context of its own for a site."""
    context = browser.new_context(viewport={"width": width, "height": 800}, **options)
    seen = Visit(context.new_page(), shown.address)
    seen.watch()
    return seen


CONTRAST = "color-contrast"
COLOURS = (CONTRAST, "link-in-text-block")
"""Axe's rules that look at colours."""


def violations(page: Page, *rules: str, but: str = "") -> list[str]:
    """What axe finds wrong by all its rules (but one) or by some, with the places."""
    from axe_playwright_python.sync_playwright import Axe

    options: dict[str, Any] = {"resultTypes": ["violations"], "rules": {but: {"enabled": False}} if but else {}}
    if rules:
        options["runOnly"] = {"type": "rule", "values": list(rules)}
    faults: list[dict[str, Any]] = Axe().run(page, options=options).response["violations"]
    return [f"{fault['id']}: {[node['html'][:160] for node in fault['nodes']][:3]}" for fault in faults]


def switched(page: Page, scheme: str) -> None:
    """Turn to the other theme by its button."""
    page.locator("[data-md-component=palette] label:visible").click()
    page.locator(f"body[data-md-color-scheme={scheme}]").wait_for()
    page.evaluate(SETTLED)
