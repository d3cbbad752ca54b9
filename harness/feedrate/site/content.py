"""All pages of the website, in the order in which lists have them: what makes each, and from which runs.

What takes longest is begun first, in processes apart, and what earlier builds made of the same runs is taken as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from feedrate.pages import processes
from feedrate.pages.kept import RUN, Kept
from feedrate.pages.markup import Page, entities, link
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
from feedrate.share.findings import Validated
from feedrate.site import figures
from feedrate.site.publish import SOURCE, address
from feedrate.store.bench_record import BenchRecord


def load(results: Path, admitted: Collection[Path]) -> Selection:
    """Read the runs that may be shown, and decide which pages speak of which."""
    return select(load_runs(results, set(admitted)))


def ahead(everyone: Selection, kept: Kept) -> AbstractContextManager[processes.Ahead]:
    """Start processes that make pages before they are needed; none where all pages are kept."""
    stale = not kept.holds(home_page.PATH, _folders(everyone))
    return processes.started(everyone.every if stale else (), kept)


def _folders(everyone: Selection) -> list[Path]:
    return [view.run.folder for view in (*everyone.every, *everyone.withdrawn)]


def pages(
    everyone: Selection,
    measured: Sequence[BenchRecord],
    refused: Sequence[Validated],
    begun: processes.Ahead,
    data: Path | None,
) -> list[Page]:
    """Make all pages; the last lists all runs, and the figures of the others."""
    made = list(content(everyone, measured, begun, data))
    made.append(data_page.page(everyone.every, everyone.withdrawn, refused, figures.placed(made), address()))
    return [_noted(page, everyone, data) for page in made]


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


def content(
    everyone: Selection,
    measured: Sequence[BenchRecord],
    begun: processes.Ahead,
    data: Path | None = None,
) -> Iterator[Page]:
    """Make pages in the order in which lists have them."""
    adopt([*everyone.every, *everyone.withdrawn])
    kept, every, judged = begun.kept, _folders(everyone), everyone.of_claims()
    for view in everyone.every:
        if kept.holds(RUN, [view.run.folder]):
            vars(view).update(_of_run_ahead(view, begun)()[1])
    seen = {view.page: begun.begin("observed", [view.run.folder], observed, view) for view in judged}
    # What takes longest comes first, so that none is waited for at the end.
    long = sorted(everyone.every, key=lambda view: -processes.trials([view]))
    of_runs = [_of_run_ahead(view, begun) for view in long]
    questions = suites_page.found(everyone.featured)
    of_suites = [(question, _sections(*question, everyone, begun)) for question in questions]
    of_accuracy = begun.begin(f"{accuracy_page.PATH} {_digest(measured)}", (), accuracy_page.page, measured)
    yield kept.made(methodology_page.page, methodology_page.PATH, ())
    yield from _of_texts()
    yield from map(runs_page.withdrawn_page, everyone.withdrawn)

    def judge() -> Verdicts:
        return load_verdicts(judged, lambda view: seen[view.page](), everyone.withdrawn)

    folders_judged = [view.run.folder for view in (*judged, *everyone.withdrawn)]
    verdicts = kept.made(judge, "verdicts", folders_judged)
    files: dict[str, str] = {}
    for view, of_run in zip(long, of_runs, strict=True):
        page, lists = of_run()
        vars(view).update(lists)
        files |= {path: str(text) for path, text in page.files.items() if path == path_of(view)}
        yield page
    # Pages of runs know grades, which these then need not work out.
    of_claims = begun.begin(claims_page.PATH, folders_judged, claims_page.page, verdicts)
    of_home = begun.begin(home_page.PATH, every, home_page.page, everyone.at_home(), questions, verdicts)
    of_cells = [json.loads(text) for text in files.values()]
    for (name, path, suite), sections in of_suites:
        made = {run_page: section() for run_page, section in sections.items()}
        yield suites_page.page(name, path, suite, everyone.of_suite(name), verdicts, made, of_cells)
    yield of_accuracy()
    yield explore_page.page(everyone, files)
    yield compare_page.page(everyone, verdicts, files, data)
    for of_cluster in (nodes_page, scaling_page):
        if page_of_nodes := of_cluster.page(everyone.every):
            yield page_of_nodes
    yield of_home()
    yield of_claims()


def _sections(
    name: str, path: str, suite: Suite, everyone: Selection, begun: processes.Ahead
) -> dict[str, Callable[[], suites_page.Section]]:
    """Begin what a suite's page shows of each run that speaks there, by its page: a run more leaves the others."""
    sections = {}
    for at, view in enumerate(suites_page.measured(name, everyone.of_suite(name))):
        charted = at < suites_page.CHARTED
        make = partial(suites_page.section, charted=charted)
        sections[view.page] = begun.begin(f"{path} {charted}", [view.run.folder], make, name, path, suite, view)
    return sections


def _of_texts() -> Iterator[Page]:
    """Make the pages that say the same of any results."""
    yield methodology_page.short_page()
    yield reference_page.dictionary_page()
    yield reference_page.run_page((SOURCE / "pages" / reference_page.RUN_PATH).read_text(encoding="utf-8"))


def _of_run_ahead(view: RunView, begun: processes.Ahead) -> Callable[[], tuple[Page, dict[str, Any]]]:
    return begun.begin(RUN, [view.run.folder], _of_run, view)


def _of_run(view: RunView) -> tuple[Page, dict[str, Any]]:
    """Make a run's page with the file of its cells, and what lists say of the run."""
    page = runs_page.page(view)
    text = run_file(view)
    page = replace(page, files={**page.files, **({path_of(view): text} if text else {})})
    return page, {name: getattr(view, name) for name in ON_LISTS}


def _digest(measured: Sequence[BenchRecord]) -> str:
    return hashlib.sha256("".join(record.model_dump_json() for record in measured).encode()).hexdigest()


def navigation(pages: Sequence[Page]) -> list[dict[str, Any]]:
    """What the site's tabs lead to, as ``nav`` of mkdocs."""

    def listed(*paths: str) -> list[dict[str, str]]:
        return [{entities(page.title): page.path} for page in pages if page.path in paths]

    questions = (page.path for page in pages if page.path.startswith("suites/"))
    return [
        {"Results": [{"Overview": home_page.PATH}, *listed(*questions), {"Explore": explore_page.PATH}]},
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
