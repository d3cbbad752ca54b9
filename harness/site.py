"""Results → pages → website. Reading only: nothing here measures, and nothing below ``results/`` is touched.

Pages are generated before mkdocs runs, figures and the content security policy are put in after it; mkdocs has no hooks
to run. The finished site replaces the one before in a single rename, so that a server never shows half of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import suite
from harness.bench_record import BenchRecord
from harness.charts import _render
from harness.charts._figure import Figure
from harness.errors import EnvironmentFault, InputError
from harness.pages import accuracy, claims, described, home, methodology, reference, run, suites, verdicts
from harness.pages.gathered import Shown, gather
from harness.pages.markup import Page, entities
from harness.registry import ROOT
from harness.site_publish import publish
from harness.site_serve import serve as _serve
from harness.store import RESULTS, StoredRun, benches

SOURCE = ROOT / "site"
_MARK = ".feedrate"
"""A file that says that a folder was made here and may be made anew."""


def build(results: Path = RESULTS, out: Path = Path("build")) -> Path:
    """Build the website from all runs.

    Args:
        results: the folder of runs; an empty or missing one makes a site that says what to type.
        out: gets ``pages`` (generated) and ``site`` (to be published).

    Returns:
        The folder of the finished site.

    Raises:
        InputError: a run cannot be read, or a folder in the way was not made by feedrate.
        EnvironmentFault: the disk cannot be written.
    """
    pages = _pages(gather(results), benches(results))
    try:
        docs, site = _fresh(out / "pages"), out / "site"
        _check(site)
        _write(docs, pages)
        finished = publish(SOURCE, docs, _fresh(out / "site.next"), _nav(pages), pages)
        (finished / _MARK).touch()
        _replace(finished, site)
    except OSError as error:
        raise EnvironmentFault(
            f"{error.filename or out}: cannot write the site: {error.strerror or error}; expected a "
            "writable folder with free space (--out names another)"
        ) from error
    return site


def serve(results: Path = RESULTS, out: Path = Path("build")) -> None:
    """Build the site, show it on this machine and build it again when results or sources change."""
    _serve(lambda: build(results, out), out / "site", (results, SOURCE))


def figure(stored: StoredRun) -> bytes:
    """Draw the README's opening figure from a run, as SVG on white that reads in both of GitHub's themes.

    Raises:
        InputError: no trial of a training loop ended well in the run.
    """
    return _render.picture(*_opening(stored)).encode()


def figure_png(stored: StoredRun) -> bytes:
    """Draw the same figure as PNG, at twice its size.

    Raises:
        InputError: no trial of a training loop ended well in the run.
    """
    return _render.png(*_opening(stored))


def _opening(stored: StoredRun) -> tuple[Figure, str]:
    if not (found := home.opening([Shown(stored)])):
        raise InputError(f"{stored.folder}: no training trial ended well; expected a run with phases to draw")
    run = stored.manifest
    return found[1], f"{described.machine_name(stored)}; {run.blocks} blocks, 95 % intervals; run {run.run_id}"


def _pages(runs: Sequence[Shown], measured: Sequence[BenchRecord]) -> list[Page]:
    questions = suites.found(runs)
    told = verdicts.gather(runs)
    everything = (suite.CLAIMS, claims.PATH, suite.load(suite.CLAIMS))
    return [
        home.page(runs, [*questions, everything] if runs else questions),
        *(suites.page(*question, runs, told) for question in questions),
        claims.page(told),
        reference.runs_page(runs),
        *(run.page(shown) for shown in runs),
        accuracy.page(measured),
        methodology.page((SOURCE / "pages" / methodology.PATH).read_text(encoding="utf-8")),
        reference.dictionary_page(),
    ]


def _nav(pages: Sequence[Page]) -> list[dict[str, Any]]:
    questions = [{entities(page.title): page.path} for page in pages if page.path.startswith("suites/")]
    return [
        {"Home": home.PATH},
        *([{"Suites": questions}] if questions else []),
        {"Claims": claims.PATH},
        {"Runs": reference.RUNS},
        {"How accurate?": accuracy.PATH},
        {"Methodology": methodology.PATH},
        {"Data dictionary": reference.DICTIONARY},
    ]


def _check(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).exists():
        raise InputError(
            f"{folder}: holds files that feedrate did not make; expected an empty or a generated folder "
            "(--out names another)"
        )


def _fresh(folder: Path) -> Path:
    _check(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()
    return folder


def _replace(finished: Path, site: Path) -> None:
    before = site.with_name("site.before")
    shutil.rmtree(before, ignore_errors=True)
    if site.exists():
        site.rename(before)
    finished.rename(site)
    shutil.rmtree(before, ignore_errors=True)


def _write(docs: Path, pages: Sequence[Page]) -> None:
    for page in pages:
        (docs / page.path).parent.mkdir(parents=True, exist_ok=True)
        (docs / page.path).write_text(page.markdown(), encoding="utf-8")
        for name, content in page.files.items():
            (docs / name).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                shutil.copyfile(content, docs / name)
            else:
                (docs / name).write_text(content, encoding="utf-8")
