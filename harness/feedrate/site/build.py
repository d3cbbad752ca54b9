"""Results → pages → website. Reading only: nothing here measures, and nothing below ``results/`` is touched.

Pages are generated before mkdocs runs, figures and the content security policy are put in after it; mkdocs has no hooks
to run. The finished site takes the place of the one before by renaming, so that a server never shows half of it.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from feedrate.machine.identity import usable_cores
from feedrate.pages import processes
from feedrate.pages.compact import update
from feedrate.pages.kept import Kept
from feedrate.pages.markup import FOLDER, Page, Placed, entities, link
from feedrate.pages.runs import ON_LISTS, RunView, adopt, load_runs
from feedrate.pages.selection import CHARTED, MACHINES, Selection, select
from feedrate.pages.verdicts import Verdicts, load_verdicts, observed
from feedrate.plan.suite import Suite
from feedrate.questions.accuracy import page as accuracy_page
from feedrate.questions.claims import page as claims_page
from feedrate.questions.compare import page as compare_page
from feedrate.questions.explore import page as explore_page
from feedrate.questions.explore.run_files import path_of, run_file
from feedrate.questions.home import page as home_page
from feedrate.questions.methodology import page as methodology_page
from feedrate.questions.nodes import page as nodes_page
from feedrate.questions.records import page as data_page
from feedrate.questions.reference import page as reference_page
from feedrate.questions.runs import page as runs_page
from feedrate.questions.scaling import page as scaling_page
from feedrate.questions.suites import page as suites_page
from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.schema.plugins import RESOURCES
from feedrate.share import validator
from feedrate.share.findings import Validated
from feedrate.site import figures
from feedrate.site.publish import publish, sitemap
from feedrate.site.serve import serve as _serve
from feedrate.store import compact, location, remote
from feedrate.store.bench_record import BenchRecord
from feedrate.store.runs import RESULTS, benches, folders

SOURCE = RESOURCES / "site"
_TEXTS = tuple(RESOURCES / name for name in ("CHANGELOG.md", "CITATION.cff"))
"""Files outside of ``SOURCE`` that pages are made from."""
Admit = Callable[[Sequence[Path]], validator.Admitted]
SHOWN = 100
"""Of more runs than these the newest have pages, and as many reference runs at most; one table has all others."""
RUN, VALID = "a run's page", "validated"
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
    with _explained(out), _alone(out), figures.drawing(out / "pictures") as drawn:
        docs = _fresh(out / "pages")
        _check(site)
        results = remote.copy(results, out / "store")
        run_folders, data = _shown(results, out, admit)
        kept = Kept(out / "kept")
        stale = [folder for folder in run_folders if not kept.holds(RUN, [folder])]
        if stale and len(usable_cores()) > 1:
            processes.prepare()
        let_in = _admitted(run_folders, kept) if admit is validator.admit else admit(run_folders)
        everyone = select(load_runs(results, set(let_in.folders)))
        pages = list(_pages(everyone, benches(results), let_in.refused, drawn.begin, kept, data))
        finished = _fresh(out / "site.next")
        publish(SOURCE, docs, finished, _nav(pages), pages)
        sitemap(finished, _address())
        drawn.put(finished / FOLDER)
        kept.clear()
        (finished / _MARK).touch()
        _replace(finished, site)
    return site


def serve(results: Path = RESULTS, out: Path = Path("build")) -> None:
    """Build the site, show it on this machine and build it again when sources or results in a folder change."""
    watched: tuple[Path, ...] = (SOURCE, *_TEXTS)
    note = f"New results in {results} are not waited for: start it again to see them."
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
    _check(out)
    with _explained(out), TemporaryDirectory() as scratch:
        here = remote.copy(results)
        let_in = admit(_shown(here, Path(scratch), admit)[0])
        everyone = select(load_runs(here, set(let_in.folders)))
        placed_figures = figures.placed(_content(everyone, benches(here), Kept(Path(scratch) / "kept")))
        if not placed_figures:
            raise InputError(f"{results}: no run has a figure yet; expected at least one run. Type make sweep first")
        figures.write(placed_figures, _fresh(out), _address())
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
    update(results, admit, data)
    return compact.newest(SHOWN, results, data), data


def _pages(
    everyone: Selection,
    measured: Sequence[BenchRecord],
    refused: Sequence[Validated],
    early: Callable[[Page], None],
    kept: Kept,
    data: Path | None,
) -> Iterator[Page]:
    """Make all pages, one by one; the last lists all runs, and the figures of the others."""
    cited: list[Placed] = []
    for page in _content(everyone, measured, kept, data):
        early(page)
        cited += figures.placed([page])
        yield _noted(page, everyone, data)
    yield _noted(data_page.page(everyone.every, everyone.withdrawn, refused, cited, _address()), everyone, data)


def _admitted(run_folders: Sequence[Path], kept: Kept) -> validator.Admitted:
    """Validate the runs that changed since the last build, and say which of all may be shown."""
    changed = validator.validated([folder for folder in run_folders if not kept.holds(VALID, [folder])])
    results = {folder: kept.made(partial(changed.__getitem__, folder), VALID, [folder]) for folder in run_folders}
    return validator.admit(run_folders, results)


def _noted(page: Page, everyone: Selection, data: Path | None) -> Page:
    """Say on a page that it does not show everything, and where the rest is; nothing where everything is shown."""
    notes = []
    most = {home_page.PATH: MACHINES, claims_page.PATH: MACHINES}.get(page.path)
    most = CHARTED if page.path.startswith("suites/") else most
    if most and everyone.machines > most:
        all_machines = link(page.path, f"{compare_page.PATH}#machines", f"All {everyone.machines:,} machines")
        text = f"Only the {most} machines that were measured last are shown."
        notes.append(f'<p class="fr-note">{text} {all_machines}</p>\n')
    if data and page.path in (data_page.PATH, home_page.PATH, explore_page.PATH):
        table = link(page.path, f"{compare_page.PATH}#machines", "the table of all machines")
        text = f"The {len(everyone.every):,} newest runs and reference runs are shown here; all others are in"
        notes.append(f'<p class="fr-note">{text} {table}.</p>\n')
    return replace(page, body="\n\n".join((page.body, *notes))) if notes else page


def _content(
    everyone: Selection,
    measured: Sequence[BenchRecord],
    kept: Kept,
    data: Path | None = None,
) -> Iterator[Page]:
    """Make pages in the order in which lists have them."""
    questions = suites_page.found(everyone.featured)
    adopt([*everyone.every, *everyone.withdrawn])
    every = [view.run.folder for view in (*everyone.every, *everyone.withdrawn)]
    stale = not kept.holds(home_page.PATH, every)
    with processes.started(everyone.every if stale else (), kept) as ahead:
        # What takes longest is begun first, so that none is waited for at the end.
        long = sorted(everyone.every, key=lambda view: -processes.trials([view]))
        of_runs = [ahead.begin(RUN, [view.run.folder], _of_run, view) for view in long]
        judged = everyone.of_claims()
        seen = {view.page: ahead.begin("observed", [view.run.folder], observed, view) for view in judged}
        of_accuracy = ahead.begin(f"{accuracy_page.PATH} {_digest(measured)}", (), accuracy_page.page, measured)
        yield kept.made(methodology_page.page, methodology_page.PATH, ())
        yield from _of_texts()
        yield from map(runs_page.withdrawn_page, everyone.withdrawn)
        files: dict[str, str] = {}
        for view, begun in zip(long, of_runs, strict=True):
            page, lists = begun()
            vars(view).update(lists)
            files |= {path: str(text) for path, text in page.files.items() if path == path_of(view)}
            yield page
        of_suites = [(question, _sections(*question, everyone, ahead)) for question in questions]

        def judge() -> Verdicts:
            return load_verdicts(judged, lambda view: seen[view.page](), everyone.withdrawn)

        folders_judged = [view.run.folder for view in (*judged, *everyone.withdrawn)]
        verdicts = kept.made(judge, "verdicts", folders_judged)
        of_claims = ahead.begin(claims_page.PATH, folders_judged, claims_page.page, verdicts)
        of_home = ahead.begin(home_page.PATH, every, home_page.page, everyone.at_home(), questions, verdicts)
        for (name, path, suite), sections in of_suites:
            made = {run_page: section() for run_page, section in sections.items()}
            yield suites_page.page(name, path, suite, everyone.of_suite(name), verdicts, made)
        yield of_accuracy()
        yield explore_page.page(everyone, files)
        yield compare_page.page(everyone, verdicts, files, data)
        for of_cluster in (nodes_page, scaling_page):
            if page_of_nodes := of_cluster.page(everyone.every):
                yield page_of_nodes
        yield of_home()
        yield of_claims()


def _sections(
    name: str, path: str, suite: Suite, everyone: Selection, ahead: processes.Ahead
) -> dict[str, Callable[[], suites_page.Section]]:
    """Begin what a suite's page shows of each run that speaks there, by its page: a run more leaves the others."""
    sections = {}
    for at, view in enumerate(suites_page.measured(name, everyone.of_suite(name))):
        charted = at < suites_page.CHARTED
        make = partial(suites_page.section, charted=charted)
        sections[view.page] = ahead.begin(f"{path} {charted}", [view.run.folder], make, name, path, suite, view)
    return sections


def _of_texts() -> Iterator[Page]:
    """Make the pages that say the same of any results."""
    yield methodology_page.short_page()
    yield reference_page.dictionary_page()
    yield reference_page.run_page((SOURCE / "pages" / reference_page.RUN_PATH).read_text(encoding="utf-8"))


def _of_run(view: RunView) -> tuple[Page, dict[str, Any]]:
    """Make a run's page with the file of its cells, and what lists say of the run."""
    page = runs_page.page(view)
    text = run_file(view)
    page = replace(page, files={**page.files, **({path_of(view): text} if text else {})})
    return page, {name: getattr(view, name) for name in ON_LISTS}


def _digest(measured: Sequence[BenchRecord]) -> str:
    return hashlib.sha256("".join(record.model_dump_json() for record in measured).encode()).hexdigest()


def _address() -> str:
    """Where the site will be published, as ``site/mkdocs.yml`` says it, ending in a slash; empty where it does not."""
    from mkdocs.utils.yaml import yaml_load

    with (SOURCE / "mkdocs.yml").open(encoding="utf-8") as file:
        address: str = yaml_load(file).get("site_url") or ""
    return address and address.rstrip("/") + "/"


def _nav(pages: Sequence[Page]) -> list[dict[str, Any]]:
    def listed(*paths: str) -> list[dict[str, str]]:
        return [{entities(page.title): page.path} for page in pages if page.path in paths]

    questions = (page.path for page in pages if page.path.startswith("suites/"))
    return [
        {"Results": [{"Results": home_page.PATH}, *listed(*questions), {"Explore": explore_page.PATH}]},
        {
            "Compare": [
                {"Compare": compare_page.PATH},
                *listed(nodes_page.PATH, scaling_page.PATH),
            ]
        },
        {"Claims": claims_page.PATH},
        {"Run it": reference_page.RUN_PATH},
        {
            "Method": [
                {"How it is measured": methodology_page.SHORT_PATH},
                {"How accurate?": accuracy_page.PATH},
                {"Every rule": methodology_page.PATH},
            ]
        },
        {
            "Data": [
                {"Runs, citations, changes": data_page.PATH},
                {"Data dictionary": reference_page.DICTIONARY},
            ]
        },
    ]


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
