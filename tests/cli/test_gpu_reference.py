"""The command for a GPU machine, rehearsed on this one in an environment that has little installed."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import bare
import psutil
import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from feedrate.cli import app, gpu_reference
from feedrate.machine import packages
from feedrate.plan import request
from feedrate.questions.summary import terminal as summary_terminal
from feedrate.schema import words as schema_words
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import ROOT
from feedrate.store import runs
from feedrate.sweep import sweep

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


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another environment's Python, whose packages are links to some of this one's."""
    return bare.environment(tmp_path_factory.mktemp("other") / "venv", (*HAS, *packages.to_measure().values()))


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
    (run,) = runs.runs(tmp_path / "out" / "results")
    assert set(run.table("trials")["storage_format"].dropna()) == {"png"}
    assert f"valid {run.folder}" in said
    assert run.manifest.command.startswith("make sweep PROFILE=gpu")
    assert (tmp_path / "out" / gpu_reference.PRINTED).is_file()


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


OLD = """
import warnings
import pytest

@pytest.mark.gpu
def test_old(pytestconfig):
    warnings.warn("gone in the next version", DeprecationWarning)
    if pytestconfig.pluginmanager.hasplugin("timeout"):
        assert pytestconfig.getini("timeout") in ("0", 0)
"""


def test_another_environment_fails_no_test(tmp_path: Path) -> None:
    """What other versions deprecate fails nothing, nor does a slow GPU where pytest-timeout is there."""
    (tmp_path / "test_old.py").write_text(OLD)
    options = gpu_reference._PYTEST[: gpu_reference._PYTEST.index(gpu_reference.TESTS)]
    command = (*options, "-c", "pyproject.toml", "-p", "no:xdist", str(tmp_path / "test_old.py"))
    assert gpu_reference.run_tests(tmp_path / "tests.txt", print, command) == 0, (tmp_path / "tests.txt").read_text()
    assert "1 passed" in (tmp_path / "tests.txt").read_text()


def planned() -> Any:
    """What is read of a plan to say how long it takes."""
    matrix = SimpleNamespace(budget_s=480.0)
    return SimpleNamespace(plan=SimpleNamespace(place=SimpleNamespace(device="cuda"), matrix=matrix))


def test_what_takes_how_long_is_said_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the tests begin: theirs, which the budget leaves out, the sweep's, and the total; README says the same."""
    lines: list[str] = []
    monkeypatch.setattr(gpu_reference, "_PYTEST", ("-c", "print('2 passed')"))
    gpu_reference.check_cuda(planned(), tmp_path / "tests.txt", lines.append)
    total = "packing the samples, the sweep (8 min): about 13 min in all."
    assert lines[0] == f"Ahead: tests of the CUDA paths (4 min), {total}"
    budget = yaml.safe_load((ROOT / "matrix.yaml").read_text(encoding="utf-8"))["profiles"]["gpu"]["budget"]
    assert schema_words.parse(budget, "BUDGET") == planned().plan.matrix.budget_s
    for name in ("README.md", "CONTRIBUTING.md", "Makefile"):
        assert re.search(r"gpu-reference.*(\n.*)?about 13 min", (ROOT / name).read_text(encoding="utf-8")), name


STARTS = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
child.wait()
"""


def test_nothing_that_the_tests_started_outlives_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever ends this process alone, as `kill` does, ends the tests, and the sweeps that these have started."""
    noted = tmp_path / "pid"

    def interrupt() -> None:
        until = time.monotonic() + 30
        while not (noted.exists() and noted.read_text()) and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            gpu_reference.run_tests(tmp_path / "tests.txt", print, ("-c", STARTS, str(noted)))
    finally:
        signal.signal(signal.SIGTERM, before)
    child = int(noted.read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    assert not (tmp_path / "tests.txt").exists()


@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_closes_ends_it(ignored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ctrl-C does, since the tests' group would not hear of it; not where it was started with nohup."""
    handled: list[int] = []
    monkeypatch.setattr(gpu_reference, "make", lambda *_: 130)
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_IGN if ignored else signal.SIG_DFL)
    monkeypatch.setattr(signal, "signal", lambda number, _: handled.append(number))
    CliRunner().invoke(app, ["gpu-reference", "--out", str(tmp_path)])
    assert (signal.SIGHUP in handled) is not ignored


def test_a_summary_that_fails_takes_nothing_away(
    fake_run: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was validated before, and what to copy where is said all the same."""
    fake = fake_run.Fake(blocks=1, batches=(8,), workers=(0,))
    folder = fake_run.write(tmp_path / "results", fake)
    run = runs.StoredRun(folder, fake_run.manifest(fake, fake_run.rows(fake)["trials"]))
    monkeypatch.setattr(request, "make", lambda _: planned())
    for module, name in ((sweep, "require_a_block"), (request, "show"), (gpu_reference, "check_cuda")):
        monkeypatch.setattr(module, name, lambda *_: None)
    monkeypatch.setattr(sweep, "run", lambda *_: run)
    monkeypatch.setattr(summary_terminal, "show", lambda *_: 1 / 0)
    console = Console(file=io.StringIO(), width=200)
    with pytest.raises(ZeroDivisionError):
        gpu_reference.make(request.Options(results=tmp_path / "results"), tmp_path, console)
    said = console.file.getvalue()
    assert f"valid    {folder}" in said
    assert f"Copy {tmp_path}/results/" in said


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
        gpu_reference.make(request.Options(**{**given, **wrong}), tmp_path / "out", Console(quiet=True))
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
    assert gpu_reference.exit_status(tests, runs.StoredRun(tmp_path, run), valid=valid) == status
    monkeypatch.setattr(gpu_reference, "make", lambda *_: status)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert CliRunner().invoke(app, ["gpu-reference", "--out", str(tmp_path)]).exit_code == status
    assert gpu_reference.exit_status(tests, None, valid=False) == 130
