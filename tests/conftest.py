"""What several test files share: made-up runs, sites built from them, a browser, and trials of a warm template."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import visits
import warm

# Python looks for garbage after 700 new objects: a third of the time of loading tests and libraries went into that.
gc.set_threshold(70_000)
# PyTorch's compiler would try each set of vector instructions in an interpreter of its own, 3 s each.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
# In the background of a shell Ctrl-C is ignored, by children too.
signal.signal(signal.SIGINT, signal.default_int_handler)

with suppress(ImportError):  # the tests of CUDA run where it is missing
    from hypothesis import settings

    settings.register_profile("any machine", settings(), deadline=None)
    settings.load_profile("any machine")

if TYPE_CHECKING:  # the tests of CUDA run where there is no browser
    from playwright.sync_api import Browser

    from feedrate.sweep.launcher import Template

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


LONGEST = (
    *("test_site_access.py", "test_site_publish.py", "test_figures.py", "test_site_compare.py", "test_site_many.py"),
    *("test_report_compare.py", "test_together.py", "test_tune.py", "test_tuning.py", "test_step_fusion.py"),
    *("test_wheel.py", "test_sweep_interrupted.py", "test_faults.py", "test_end_to_end.py", "test_unchanged.py"),
    *("test_proofs.py", "test_reports.py", "test_run.py", "test_formats.py", "test_launcher.py", "test_sweep.py"),
)
"""Files that take longest: they run first, so that no process is left with one of them at the end.

Those that build pages or look at them lead: CI checks types meanwhile, and they measure nothing.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


def pytest_collection_finish() -> None:
    """Look for no garbage among tests and libraries, which stay."""
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the interpreter take away at its end what libraries wait for."""
    gc.unfreeze()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch computes in one thread: beside other tests, several mostly wait for each other, and spin meanwhile."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def fake_run() -> ModuleType:
    """The module ``tests/fake_run.py``."""
    return import_module("fake_run")


@pytest.fixture(scope="session")
def fake_tuned() -> ModuleType:
    """The module ``tests/fake_tuned.py``."""
    return import_module("fake_tuned")


@pytest.fixture(scope="session")
def fake_script() -> ModuleType:
    """The module ``tests/fake_script.py``."""
    return import_module("fake_script")


@pytest.fixture(scope="session")
def trials_of() -> Callable[..., Any]:
    """The builder of trials that were never measured (``tests/made_trials.py``)."""
    return import_module("made_trials").make_trials  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def corpus() -> ModuleType:
    """The module ``tests/corpus.py``: files that are not what they should be."""
    return import_module("corpus")


@pytest.fixture(scope="session")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Packs synthetic samples, for tests that share them or below a root of their own; gives the folder."""
    from feedrate.trial import prepare
    from feedrate.workloads import DataSpec

    shared = tmp_path_factory.mktemp("packed")

    def make(storage_format: str = "memmap", count: int = 24, size: int = 8, root: Path = shared) -> str:
        spec = DataSpec("synthetic", count, size, 1)
        prepare.prepare(spec, storage_format, root, lambda _done, _total: None)
        return os.fspath(prepare.dataset_root(root, spec, storage_format))

    return make


@pytest.fixture(scope="session")
def fetch() -> Callable[[Any, int], list[Any]]:
    """Gives copies of the first batches of a trial's feed."""
    import torch

    from feedrate.trial import feed

    def first(job: Any, count: int) -> list[Any]:
        batches = islice(feed.open_feed(job, torch.device("cpu")).batches, count)
        return [batch._replace(fields=tuple(field.clone() for field in batch.fields)) for batch in batches]

    return first


@pytest.fixture(scope="session")
def show(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Make up a run of the given kind and read it back through the store as pages see it; each kind once."""
    from feedrate.pages.runs import RunView
    from feedrate.store import runs

    made: dict[str, RunView] = {}

    def make(**what: Any) -> RunView:
        if (name := str(what)) not in made:
            results = tmp_path_factory.mktemp("results")
            fake_run.write(results, fake_run.Fake(**what))
            made[name] = RunView(runs.runs(results)[0])
        return made[name]

    return make


@pytest.fixture(scope="module")
def sites(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Any]]:
    """Sites of made-up runs (``visits.made_up``): built once for all files, served for one, as a server is a thread."""
    with ExitStack() as stack:
        yield visits.Sites(visits.common_root(tmp_path_factory.getbasetemp()), fake_run, stack)


@pytest.fixture(scope="session")
def template() -> Iterator[Template]:
    """A warm template for all files: it takes seconds to import torch."""
    from feedrate.sweep.launcher import Template

    with Template() as template:
        yield template


@pytest.fixture(scope="module")
def runner(request: pytest.FixtureRequest, template: Template, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The warm template with packed samples (``warm.Runner``); its trials have the axes of the test file's ``CELL``."""
    return warm.Runner(template, tmp_path_factory.mktemp("data"), request.module.CELL)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium; closed with each file, as the launcher's tests look at all children of this process."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.fail("Chromium is missing: apt-get update && apt-get install -y chromium")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=30_000)  # as for everything else that is waited for
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def seen(sites: Mapping[str, Any], browser: Browser) -> Iterator[Any]:
    """Open the main site; at the end no message of the console, no failed and no foreign request may have been seen."""
    found = visits.visit(browser, sites["main"])
    yield found
    assert found.problems == []
