"""The command for a GPU machine, rehearsed on this one in an environment that has little installed."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import tarfile
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import bare
import psutil
import pytest
from rich.console import Console
from typer.testing import CliRunner

from feedrate.cli import app, gpu_reference
from feedrate.machine import packages
from feedrate.machine.probes import gpu
from feedrate.plan import cells, matrix, request, schedule
from feedrate.questions.summary import terminal as summary_terminal
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import ROOT
from feedrate.schema.redaction import names_someone
from feedrate.store import runs
from feedrate.sweep import sweep
from feedrate.trial import device_probe

HAS = ("torch", "torchvision", "pandas", "pyarrow", "psutil", "pydantic", "pytest", "pyyaml", "rich", "scipy", "typer")
"""What a machine for training has besides Python: no h5py, no altair, no mkdocs, no browser; pynvml with a driver."""
MATRIX = """
version: 1
protocol: {warmup_s: 0.1, window_s: 0.2, min_steps: 4, blocks: [1, 1], timeout_s: 60}
suites:
  loader:
    - {mode: train, workload: div2k, patch_size: 16, n_samples: 64, storage_format: [png, hdf5], batch_size: 8,
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
    assert "storage_format hdf5 needs h5py (pip install h5py)" in said
    assert re.search(r"Done: \d+ (passed|skipped)", said)
    (run,) = runs.runs(tmp_path / "out" / "results")
    assert set(run.table("trials")["storage_format"].dropna()) == {"png"}
    assert f"valid {run.folder}" in said
    assert run.manifest.command.startswith("make sweep PROFILE=gpu")
    for step, inside in (("probe", gpu_reference.FOUND), ("tests", "tests.txt"), ("reference", "results/")):
        with tarfile.open(tmp_path / "out" / f"{step}.tar.gz") as archive:
            assert any(name.startswith(inside) for name in archive.getnames())
            assert not any(member.uname or member.uid for member in archive)


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        ("print('2 passed')", 0, "Done: 2 passed"),
        ("print('1 failed'); raise SystemExit(1)", 1, "FAILED: 1 failed"),
    ],
)
def test_failing_tests_are_told_and_kept(code: str, status: int, told: str, tmp_path: Path) -> None:
    """Their last line is told, all of it kept, and their exit status is the command's."""
    lines: list[str] = []
    assert gpu_reference.run_command(tmp_path / "tests.txt", lines.append, ("-c", code)) == status
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
    assert gpu_reference.run_command(tmp_path / "tests.txt", print, command) == 0, (tmp_path / "tests.txt").read_text()
    assert "1 passed" in (tmp_path / "tests.txt").read_text()


def planned(profile: str = "gpu") -> request.LocalPlan:
    """A step's plan on a machine with a GPU; what it is of that machine is not asked."""
    wanted = matrix.load(ROOT / "matrix.yaml", profile, device="cuda")
    plan = cells.expand(wanted, schedule.Place("cuda", Path("no data here"), gpus=1, cores=16))
    unasked: Any = None
    return request.LocalPlan(request.Options(profile=profile), unasked, unasked, plan)


def test_each_step_fits_ten_minutes() -> None:
    """Packing included; what all of them take is what README, CONTRIBUTING and Makefile say."""
    plans = {"reference": planned(), "transfer": planned("transfer")}
    assert max(gpu_reference.step_s(step, plans.get(step)) for step in gpu_reference.STEPS) <= 600
    said = gpu_reference.ahead(gpu_reference.STEPS, plans, cuda=True)
    assert said.startswith("Ahead, by estimate: probe 60 s, tests 4 min, reference 9 min, transfer ")
    total = re.search(r"about (\d+) min", said)
    assert total
    for name in ("README.md", "CONTRIBUTING.md", "Makefile"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert re.search(rf"gpu-reference.*(\n.*)*?about {total[1]} min", text), name


def test_transfer_is_for_cuda_alone(tmp_path: Path) -> None:
    """On a CPU all steps are all but this one, and it by itself is refused with the reason."""
    options = request.Options(ROOT / "matrix.yaml", "gpu", data_root=tmp_path, results=tmp_path / "results")
    with pytest.raises(InputError, match="wanted on cuda only; this machine has cpu"):
        gpu_reference.make(options, tmp_path / "out", Console(quiet=True), "transfer")


def test_the_look_stands_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It writes JSON of versions and of what is not there, prints the same, and fails on no machine without CUDA."""
    assert gpu_reference.make(request.Options(), tmp_path, Console(), "probe") == 0
    found = json.loads((tmp_path / gpu_reference.FOUND).read_text())
    assert found["versions"]["torch"]
    assert found["pidfd"] == {"works": True}
    if not found["cuda"]["available"]:
        assert {"problem": "PyTorch finds no CUDA device"} == found["events"] == found["nvml"]
    printed = (tmp_path / "probe.txt").read_text()
    assert printed.startswith(json.dumps(found, indent=1))
    assert printed.splitlines()[-1] in capsys.readouterr().out.replace("\n", " ")
    assert not names_someone(printed)


def test_a_look_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a driver raises is told in words without addresses; with a device the command fails then."""
    looks = {"good": lambda: {"x": 1}, "bad": lambda: 1 / 0, "last": lambda: {"y": 2}}
    monkeypatch.setattr(device_probe, "_ON_CUDA", looks)
    monkeypatch.setattr(device_probe.torch.cuda, "is_available", lambda: True)
    assert device_probe.main(tmp_path / "found.json") == 1
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["bad"] == {"problem": "ZeroDivisionError: division by zero"}
    assert (found["good"], found["last"]) == ({"x": 1}, {"y": 2})


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
            gpu_reference.run_command(tmp_path / "tests.txt", print, ("-c", STARTS, str(noted)))
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
    """The run was validated and packed before, and what to do with it is said all the same."""
    fake = fake_run.Fake(blocks=1, batches=(8,), workers=(0,))
    folder = fake_run.write(tmp_path / "results", fake)
    run = runs.StoredRun(folder, fake_run.manifest(fake, fake_run.rows(fake)["trials"]))
    monkeypatch.setattr(request, "make", lambda _: planned())
    for module, name in ((sweep, "require_a_block"), (request, "show")):
        monkeypatch.setattr(module, name, lambda *_: None)
    monkeypatch.setattr(sweep, "run", lambda *_: run)
    monkeypatch.setattr(summary_terminal, "show", lambda *_: 1 / 0)
    console = Console(file=io.StringIO(), width=200)
    with pytest.raises(ZeroDivisionError):
        gpu_reference.make(request.Options(results=tmp_path / "results"), tmp_path, console, "reference")
    said = console.file.getvalue()
    assert f"valid    {folder}" in said
    assert f"Unpack {tmp_path}/reference.tar.gz in a checkout" in said
    with tarfile.open(tmp_path / "reference.tar.gz") as archive:
        assert f"{folder.relative_to(tmp_path)}/run.json" in archive.getnames()


@pytest.mark.parametrize(
    "wrong",
    [{"budget": "soon"}, {"budget": "8s"}, {"matrix": Path("nowhere.yaml")}, {"profile": "gup"}, {"step": "test"}],
    ids=lambda wrong: "-".join(map(str, *wrong.items())),
)
def test_what_was_mistyped_is_told_before_anything_runs(
    wrong: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is made before minutes of tests use the GPU, and nothing is written."""
    monkeypatch.setattr(gpu_reference, "run_command", lambda *_: pytest.fail("the tests ran first"))
    step = wrong.get("step", "")
    given = {"matrix": ROOT / "matrix.yaml", "profile": "gpu", "data_root": tmp_path, "results": tmp_path / "results"}
    with pytest.raises(InputError):
        gpu_reference.make(
            request.Options(**{**given, **{name: value for name, value in wrong.items() if name != "step"}}),
            tmp_path / "out",
            Console(quiet=True),
            step,
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("fails", "stopped", "valid", "status"),
    [
        ("none", "target", True, 0),
        ("none", "budget", True, 0),
        ("all", "budget", True, 1),
        ("none", "budget", False, 1),
        ("none", "interrupted", True, 130),
    ],
)
def test_the_exit_status_tells_how_it_ended(
    fails: str,
    stopped: str,
    valid: bool,
    status: int,
    fake_run: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0 where trials ended well and all rules are kept, 1 where nothing did or something failed, 130 after Ctrl-C."""
    fake = fake_run.Fake(fails=fails, blocks=1, batches=(8,), workers=(0,))
    run = fake_run.manifest(fake, fake_run.rows(fake)["trials"]).model_copy(update={"stop_reason": stopped})
    assert gpu_reference.exit_status(runs.StoredRun(tmp_path, run), valid=valid) == status
    monkeypatch.setattr(gpu_reference, "make", lambda *_: status)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert CliRunner().invoke(app, ["gpu-reference", "--out", str(tmp_path)]).exit_code == status


@pytest.mark.parametrize(
    ("ended", "steps", "status"),
    [((0, 0, 0), 3, 0), ((0, 1, 0), 3, 1), ((0, 130, 0), 2, 130)],
    ids=["well", "a test failed", "interrupted"],
)
def test_a_step_that_fails_lets_the_others_run(
    ended: tuple[int, ...], steps: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All steps in a row, and the worst is the exit status; only an interrupt ends them."""
    done: list[str] = []

    def do(step: str, *_: Any) -> int:
        done.append(step)
        return ended[len(done) - 1]

    monkeypatch.setattr(gpu_reference, "_do", do)
    monkeypatch.setattr(gpu_reference, "_planned", lambda *_: planned())
    monkeypatch.setattr(request, "show", lambda *_: None)
    monkeypatch.setattr(gpu, "device", lambda: "cpu")
    assert gpu_reference.make(request.Options(), tmp_path, Console(quiet=True)) == status
    assert done == list(gpu_reference.STEPS[:steps])
