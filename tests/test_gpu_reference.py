"""The command for a GPU machine, rehearsed on this one in an environment that has little installed."""

from __future__ import annotations

import ast
import ctypes
import importlib.util
import re
import signal
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from rich.console import Console
from typer.testing import CliRunner

from harness import gpu_reference, here, store
from harness.cli import app
from harness.errors import EnvironmentFault, InputError
from harness.registry import ROOT

HAS = ("torch", "torchvision", "pandas", "pyarrow", "psutil", "pydantic", "pytest", "pyyaml", "rich", "scipy", "typer")
"""What a machine for training has besides Python: no lmdb, no altair, no mkdocs, no browser; pynvml with a driver."""
MATRIX = """
version: 1
protocol: {warmup_s: 0.1, window_s: 0.2, min_steps: 4, blocks: [1, 1], timeout_s: 60}
suites:
  loader:
    - {mode: train, workload: div2k, patch_size: 16, n_samples: 64, storage_format: [png, lmdb], batch_size: 8,
       num_workers: [0, 2]}
profiles: {quick: {}, gpu: {}}
"""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(names: tuple[str, ...]) -> list[Distribution]:
    """Installed packages and all that they need, without what is optional."""
    installed = {normal(each.metadata["Name"]): each for each in distributions()}
    found: dict[str, Distribution] = {}
    wanted = [normal(name) for name in names]
    while wanted:
        name = wanted.pop()
        if name in found or name not in installed:
            continue
        found[name] = installed[name]
        required = (line for line in installed[name].requires or () if "extra ==" not in line)
        wanted += [normal(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in required]
    return list(found.values())


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another environment's Python, whose packages are links to some of this one's."""
    folder = tmp_path_factory.mktemp("other") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    there = next(folder.glob("lib/python*/site-packages"))
    for package in needed((*HAS, *gpu_reference.needed().values())):
        for top in {Path(file).parts[0] for file in package.files or ()} - {".."}:
            source = Path(sysconfig.get_path("purelib")) / top
            if source.exists() and not (there / top).exists():
                (there / top).symlink_to(source)
    return folder / "bin" / "python"


@pytest.mark.slow
def test_it_runs_where_little_is_installed(python: Path, tmp_path: Path) -> None:
    """In another Python, without .venv and optional formats: tests, a run, validated files; left out is said."""
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    words = [f"PYTHON={python}", f"OUT={tmp_path / 'out'}", f"MATRIX={tmp_path / 'matrix.yaml'}"]
    command = ["make", "gpu-reference", *words, f"DATA_ROOT={tmp_path / 'data'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    said = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "storage_format lmdb needs lmdb (pip install lmdb)" in said
    assert re.search(r"Tests: \d+ (passed|skipped)", said)
    (run,) = store.runs(tmp_path / "out" / "results")
    assert set(run.table("trials")["storage_format"].dropna()) == {"png"}
    assert f"valid {run.folder}" in said
    assert run.manifest.command.startswith("make sweep PROFILE=gpu")
    assert (tmp_path / "out" / gpu_reference.SAID).is_file()


def test_a_python_that_lacks_what_measuring_needs_is_refused() -> None:
    """The packages are named, and what to type."""
    with pytest.raises(EnvironmentFault, match=r"lacks no-such-package; .*pip install no-such-package"):
        gpu_reference.lacks_nothing({"no_such_module": "no-such-package", "json": "json"})


def test_a_python_without_the_command_s_own_packages_says_so() -> None:
    """No traceback where not even the command line can be read."""
    done = subprocess.run(
        [sys.executable, "-S", "-m", "harness"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert re.search(r"lacks \w+; expected at least typer", done.stderr)


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        ("print('2 passed')", 0, "Tests: 2 passed"),
        ("print('1 failed'); raise SystemExit(1)", 1, "Tests FAILED: 1 failed"),
    ],
)
def test_failing_tests_are_told_and_kept(code: str, status: int, told: str, tmp_path: Path) -> None:
    """Their last line is told, all of it kept, and their exit status is the command's."""
    lines: list[str] = []
    assert gpu_reference.run_tests(tmp_path / "tests.txt", lines.append, ("-c", code)) == status
    assert lines[-1].startswith(told)
    assert told.rpartition(": ")[2] in (tmp_path / "tests.txt").read_text()
    assert gpu_reference.Outcome(status, None, valid=True).good is False


@pytest.mark.parametrize("driver", [True, False])
def test_what_asks_the_driver_is_needed_where_there_is_one(driver: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pynvml a machine with a GPU would pass for one without; where there is no driver nothing asks for it."""

    def load(library: str) -> None:
        if not driver:
            raise OSError(library)

    there = importlib.util.find_spec
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pynvml" else there(name))
    if driver:
        with pytest.raises(EnvironmentFault, match=r"lacks nvidia-ml-py; .*pip install nvidia-ml-py"):
            gpu_reference.lacks_nothing(gpu_reference.needed())
    else:
        gpu_reference.lacks_nothing(gpu_reference.needed())


@pytest.mark.parametrize(
    ("found", "enough"),
    [("2.11.0+cu128", True), ("2.15.0a0+git1234", True), ("3.0", True), ("2.10.1", False), ("2.9.1+cu117", False)],
)
def test_a_torch_that_is_too_old_is_refused(found: str, enough: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its number, whatever it was built for; the message names both versions and what to type."""
    monkeypatch.setattr(gpu_reference, "version", lambda _: found)
    if enough:
        gpu_reference.new_enough(gpu_reference.LEAST)
    else:
        with pytest.raises(EnvironmentFault, match=rf"torch {re.escape(found)}; expected 2.11 .*'torch>=2.11'"):
            gpu_reference.new_enough(gpu_reference.LEAST)


def test_what_is_needed_is_what_the_project_says() -> None:
    """Names and torch's oldest version are those of pyproject.toml, which takes Python 3.11 to 3.13."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    depends = {normal(each.name): each.specifier for each in map(Requirement, project["dependencies"])}
    assert {normal(name) for name in gpu_reference.NEEDED.values()} | {"nvidia-ml-py"} <= set(depends)
    for name, least in gpu_reference.LEAST.items():
        assert str(depends[name]) == f">={'.'.join(map(str, least))}"
    assert all(SpecifierSet(project["requires-python"]).contains(f"3.{minor}") for minor in (11, 12, 13))


GONE = (
    "aifc asynchat asyncore audioop cgi cgitb chunk crypt distutils imghdr imp lib2to3 mailcap nis nntplib ossaudiodev "
    "pipes smtpd sndhdr spwd sunau telnetlib uu xdrlib"
)
"""Modules that Python 3.12 and 3.13 have no more."""


def test_nothing_is_imported_that_newer_pythons_lack() -> None:
    """What runs here on Python 3.11 finds its modules on 3.12 and 3.13 too."""
    for path in (*ROOT.glob("harness/**/*.py"), *ROOT.glob("suites/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not {name.partition(".")[0] for name in names} & set(GONE.split()), path


@pytest.mark.parametrize(
    "wrong",
    [{"budget": "soon"}, {"budget": "8s"}, {"matrix": Path("nowhere.yaml")}, {"profile": "gup"}],
    ids=lambda wrong: "-".join(map(str, *wrong.items())),
)
def test_what_was_mistyped_is_told_before_anything_runs(
    wrong: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is made before minutes of tests use the GPU, and nothing is written."""
    monkeypatch.setattr(gpu_reference, "run_tests", lambda *_: pytest.fail("the tests ran first"))
    given = {"matrix": ROOT / "matrix.yaml", "profile": "gpu", "data_root": tmp_path, "results": tmp_path / "results"}
    with pytest.raises(InputError):
        gpu_reference.make(here.Options(**{**given, **wrong}), tmp_path / "out", Console(quiet=True))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("fails", "stopped", "tests", "valid", "status"),
    [
        ("none", "target", 0, True, 0),
        ("none", "budget", None, True, 0),
        ("all", "budget", 0, True, 1),
        ("none", "budget", 1, True, 1),
        ("none", "budget", 0, False, 1),
        ("none", "interrupted", 0, True, 130),
    ],
)
def test_the_exit_status_tells_how_it_ended(
    fails: str,
    stopped: str,
    tests: int | None,
    valid: bool,
    status: int,
    fake_run: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0 where trials ended well and all rules are kept, 1 where nothing did or something failed, 130 after Ctrl-C."""
    fake = fake_run.Fake(fails=fails, blocks=1, batches=(8,), workers=(0,))
    run = fake_run.manifest(fake, fake_run.rows(fake)["trials"]).model_copy(update={"stop_reason": stopped})
    outcome = gpu_reference.Outcome(tests, store.StoredRun(tmp_path, run), valid)
    assert outcome.good is (status == 0)
    monkeypatch.setattr(gpu_reference, "make", lambda *_: outcome)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert CliRunner().invoke(app, ["gpu-reference", "--out", str(tmp_path)]).exit_code == status
    assert gpu_reference.Outcome(tests, None, valid=False).exit_status == 130
