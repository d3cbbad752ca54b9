"""Results → pages → website. Reading only: nothing here measures, and nothing below ``results/`` is touched.

Pages are generated before mkdocs runs, figures and the content security policy are put in after it; mkdocs has no hooks
to run. The finished site takes the place of the one before by renaming, so that a server never shows half of it.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from feedrate.machine.identity import usable_cores
from feedrate.pages import processes
from feedrate.pages.kept import RUN, Kept
from feedrate.pages.markup import FOLDER, Placed
from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.schema.plugins import RESOURCES
from feedrate.share import validator
from feedrate.site.serve import serve as _serve
from feedrate.store import compact, location, remote
from feedrate.store.runs import RESULTS, benches, folders

_SOURCES = tuple(RESOURCES / name for name in ("site", "CHANGELOG.md", "CITATION.cff"))
"""What pages are made from, beside results and code."""
Admit = Callable[[Sequence[Path]], validator.Admitted]
SHOWN = 100
"""Of more runs than these the newest have pages, and as many reference runs at most; one table has all others."""
_VALID = "validated"
_MARK = ".feedrate"
"""A file that says that a folder was made here and may be made anew."""


def build(results: Path = RESULTS, out: Path = Path("build"), admit: Admit = validator.admit) -> Path:
    """Build the website from all runs that keep to the rules, and return its folder, which is ``out`` and ``site``.

    Of very many runs it shows the newest and reference runs (``SHOWN``), and one table has all. Those that break a rule
    are listed with their reasons. Without any run it is a site that says what to type.

    Raises:
        InputError: a folder in the way was not made by feedrate, or another build is under way.
        EnvironmentFault: the disk cannot be written, or memory ran out.
    """
    site = out / "site"
    processes.collect_seldom()
    with _explained(out), _alone(out), ThreadPoolExecutor(1) as thread:
        docs = _fresh(out / "pages")
        _check(site)
        results = remote.copy(results, out / "store")
        run_folders, data = _shown(results, out, admit)
        kept = Kept(out / "kept")
        if not all(kept.holds(RUN, [folder]) for folder in run_folders) and len(usable_cores()) > 1:
            processes.prepare()
        check = partial(_admitted, kept=kept) if admit is validator.admit else admit
        checking = thread.submit(check, run_folders)
        # Loading these takes a second, in which other processes load the same and validate runs.
        from feedrate.site import content, figures, publish

        let_in = checking.result()
        everyone = content.load(results, let_in.folders)
        assets = thread.submit(publish.put_assets, docs)
        with content.ahead(everyone, kept) as ahead, figures.drawing(out / "pictures", ahead.pool) as drawn:
            pages = content.pages(everyone, benches(results), let_in.refused, ahead, data)
            drawn.begin(pages)
            assets.result()
            finished = _fresh(out / "site.next")
            publish.publish(docs, finished, content.navigation(pages), pages)
            publish.sitemap(finished, publish.address())
            drawn.put(finished / FOLDER)
        kept.clear()
        (finished / _MARK).touch()
        _replace(finished, site)
    return site


def serve(results: Path = RESULTS, out: Path = Path("build")) -> None:
    """Build the site, show it on this machine and build it again when sources or results in a folder change."""
    note = f"New results in {results} are not waited for: start it again to see them."
    watched = _SOURCES
    if not location.remote(results):
        watched, note = (results, *watched), ""
    _serve(lambda: build(results, out), out / "site", watched, note=note)


def write_figures(
    results: Path = RESULTS, out: Path = Path("build/figures"), admit: Admit = validator.admit
) -> list[Placed]:
    """Write every figure of the site as files for papers, with a bibliography; what an earlier call left there goes.

    Raises:
        InputError: no run has a figure, or the folder was not made by feedrate.
        EnvironmentFault: the disk cannot be written, or memory ran out.
        FeedrateError: a picture cannot be drawn.
    """
    from feedrate.site import content, figures, publish

    _check(out)
    with _explained(out), TemporaryDirectory() as scratch:
        here = remote.copy(results)
        let_in = admit(_shown(here, Path(scratch), admit)[0])
        everyone = content.load(here, let_in.folders)
        with content.ahead(everyone, Kept(Path(scratch) / "kept")) as ahead:
            placed_figures = figures.placed(content.content(everyone, benches(here), ahead))
        if not placed_figures:
            raise InputError(f"{results}: no run has a figure yet; expected at least one run. Type make sweep first")
        figures.write(placed_figures, _fresh(out), publish.address())
    return placed_figures


def _shown(results: Path, out: Path, admit: Admit) -> tuple[list[Path], Path | None]:
    """Folders of the runs that have pages, and of the compact data set that has all runs, where these are not all.

    A store that has no such data set of its own gets one below ``out``.
    """
    data = results / compact.FOLDER
    if not compact.kept(data):
        every = folders(results)
        if len(every) <= SHOWN:
            return every, None
        data = out / compact.FOLDER
    from feedrate.pages.compact import update

    update(results, admit, data)
    return compact.newest(SHOWN, results, data), data


def _admitted(run_folders: Sequence[Path], kept: Kept) -> validator.Admitted:
    """Validate the runs that changed since the last build, and say which of all may be shown."""
    changed = validator.validated([folder for folder in run_folders if not kept.holds(_VALID, [folder])])
    results = {folder: kept.made(partial(changed.__getitem__, folder), _VALID, [folder]) for folder in run_folders}
    return validator.admit(run_folders, results)


@contextmanager
def _explained(out: Path) -> Iterator[None]:
    """Say what to do about a disk that cannot be written and about memory that ran out."""
    try:
        yield
    except OSError as error:
        raise EnvironmentFault(
            f"{error.filename or out}: cannot be read or written: {error.strerror or error}; expected a writable "
            "folder with free space (--out names another)"
        ) from error
    except (BrokenProcessPool, EOFError, MemoryError) as error:
        raise EnvironmentFault(
            f"{out}: a process that made pages was ended from outside, as happens where memory runs out; expected "
            "2 GB of free memory. Free some and build again"
        ) from error


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold a build folder: two builds at once would remove each other's files."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"{out}: another build is under way there; expected one at a time. Wait for it, or take another folder "
                "(--out)"
            ) from error
        yield


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
