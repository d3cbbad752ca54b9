"""The command for a GPU machine, rehearsed on this one in an environment that has little installed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bare
import psutil
import pytest
from rich.console import Console

from feedrate.cli import gpu_reference
from feedrate.machine import packages
from feedrate.machine.probes import gpu
from feedrate.plan import cells, matrix, request, schedule
from feedrate.plan.options import SweepOptions
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import ROOT
from feedrate.schema.redaction import names_someone
from feedrate.store import runs
from feedrate.trial import device_probe

HAS = ("torch", "torchvision", "pandas", "pyarrow", "psutil", "pydantic", "pytest", "pyyaml", "rich", "typer")
"""What a machine for training has besides Python: no h5py, no altair, no mkdocs, no browser; pynvml with a driver."""
MATRIX = """
version: 1
protocol: {warmup_s: 0.1, window_s: 0.2, min_steps: 4, blocks: [1, 1], timeout_s: 60}
suites:
  loader:
    - {mode: train, workload: div2k, patch_size: 16, n_samples: 64, storage_format: [png, hdf5], batch_size: 8}
profiles: {quick: {}, gpu: {}}
"""


@pytest.mark.slow
def test_it_runs_where_little_is_installed(tmp_path: Path) -> None:
    """In another Python, without .venv and optional formats; a run is valid, and what is left out is said."""
    python = bare.environment(tmp_path / "venv", (*HAS, *packages.to_measure().values()))
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    out = tmp_path / "out"
    words = f"--step reference --out {out} --matrix {tmp_path / 'matrix.yaml'} --data-root {tmp_path / 'data'}"
    command = ["make", "gpu-reference", f"PYTHON={python}", f"ARGS={words}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"reference: done; kept in {out}/reference.tar.gz" in done.stdout
    assert (out / "reference.txt").read_text() in done.stdout
    with tarfile.open(out / "reference.tar.gz") as archive:
        assert not any(member.uname or member.uid for member in archive)
        archive.extractall(tmp_path / "unpacked", filter="data")
    assert "storage_format hdf5 needs h5py (pip install h5py)" in " ".join(done.stdout.split())
    (run,) = runs.runs(tmp_path / "unpacked" / "results")
    assert set(run.table("trials")["storage_format"].dropna()) == {"png"}
    assert f"valid    {out}/results/{run.folder.parent.name}/{run.folder.name}" in done.stdout
    assert run.manifest.command.startswith("feedrate sweep --profile gpu")


def wait_for(holds: Callable[[], object], most_s: float = 30) -> None:
    until = time.monotonic() + most_s
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)


@pytest.mark.parametrize("status", [0, 1])
def test_what_is_printed_is_kept_as_it_comes(status: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And shown: a call that is killed in the middle of the tests leaves what they had said. Its status is theirs."""
    printed, end = tmp_path / "tests.txt", tmp_path / "end"
    code = f"print('first'); import time, pathlib\nwhile not pathlib.Path({str(end)!r}).exists(): time.sleep(0.01)"
    ended: list[int] = []
    command = ("-c", f"{code}\nraise SystemExit({status})")
    thread = threading.Thread(target=lambda: ended.append(gpu_reference.run_command(printed, command)))
    thread.start()
    wait_for(lambda: printed.exists() and printed.read_text() == "first\n")
    assert thread.is_alive()
    end.touch()
    thread.join()
    assert ended == [status]
    assert capfd.readouterr().out == printed.read_text() == "first\n"


def test_each_step_fits_nine_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packing included; what all of them take is what README, CONTRIBUTING and Makefile say."""

    def planned(options: SweepOptions) -> request.LocalPlan:
        wanted = matrix.load(ROOT / "matrix.yaml", options.profile, device="cuda")
        unasked: Any = None
        host = schedule.Host("cuda", Path("no data here"), gpus=1, cores=16)
        return request.LocalPlan(options, unasked, unasked, cells.expand(wanted, host))

    monkeypatch.setattr(request, "make", planned)
    took = {step: gpu_reference.seconds(step, SweepOptions()) for step in gpu_reference.SECONDS}
    assert max(took.values()) <= 9 * 60
    minutes = round(sum(took.values()) / 60)
    for name in ("README.md", "CONTRIBUTING.md", "Makefile"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert re.search(rf"gpu-reference.*(\n.*)*?about {minutes} min", text), name


def test_a_look_fails_on_no_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It writes JSON of versions, the machine and what is not there, and prints the same; nobody is named."""
    (command,) = gpu_reference.commands("probe", SweepOptions(), tmp_path)
    assert command == ("-m", device_probe.__name__, str(tmp_path / "probe.json"))
    assert device_probe.main(Path(command[-1])) == 0
    found = json.loads((tmp_path / "probe.json").read_text())
    assert found["versions"]["torch"]
    assert found["machine"]["memory_bytes"] > found["machine"]["shm_free_bytes"] / 2 > 0
    assert set(found["machine"]["libraries"]) <= set(device_probe.LIBRARIES)
    assert "libnvcuvid.so.1" in device_probe.LIBRARIES
    if not found["cuda"]["available"]:
        assert {"problem": "PyTorch finds no CUDA device"} == found["device"] == found["nvml"]
    printed = capsys.readouterr().out
    assert printed.startswith(json.dumps(found, indent=1))
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
        wait_for(lambda: noted.exists() and noted.read_text())
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            gpu_reference.run_command(tmp_path / "tests.txt", ("-c", STARTS, str(noted)))
    finally:
        signal.signal(signal.SIGTERM, before)
    child = int(noted.read_text())
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("step", "wrong", "problem"),
    [
        ("", {"budget": "soon"}, "--budget: got 'soon'"),
        ("", {"budget": "8s"}, "less than one repetition"),
        ("", {"matrix": Path("nowhere.yaml")}, "cannot be read"),
        ("test", {}, "--step: got 'test'"),
        ("transfer", {}, "wanted on cuda only; this machine has cpu"),
    ],
)
def test_what_was_mistyped_is_told_before_anything_runs(
    step: str, wrong: dict[str, Any], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is made before minutes of tests use the GPU, and nothing is written; transfer is for CUDA alone."""
    monkeypatch.setattr(gpu_reference, "run_command", lambda *_: pytest.fail("the tests ran first"))
    asked = {"matrix": ROOT / "matrix.yaml", "data_root": tmp_path, "results": tmp_path / "results"} | wrong
    with pytest.raises(InputError, match=problem):
        gpu_reference.make(SweepOptions(**asked), tmp_path / "out", Console(quiet=True), step)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("ended", "steps", "status"),
    [((0, 0, 0, 0), 4, 0), ((0, 1, 0, 0), 4, 1), ((0, 130, 0), 2, 130)],
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
    monkeypatch.setattr(gpu_reference, "seconds", lambda *_: 60.0)
    monkeypatch.setattr(gpu, "device", lambda: "cpu")
    assert gpu_reference.make(SweepOptions(), tmp_path, Console(quiet=True)) == status
    assert done == ["probe", "tests", "reference", "hook"][:steps]


def test_the_forecast_is_held_against_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both runs of the script and their reports are in the archive, and their quotient is said."""
    rate = {"value": 20.0, "lo": 18.0, "hi": 22.0}
    others = [{"num_workers": workers, "steps_per_s": rate} for workers in (8, 16)]
    told = {4: {"predictions": {"others": others}}, 16: {"pacing": {"steps_per_s": {"value": 16.0}}}}
    ran: list[tuple[str, ...]] = []

    def run_command(printed: Path, command: tuple[str, ...]) -> int:
        ran.append(command)
        if "--json" in command:
            workers = int(command[-1])
            (tmp_path / f"hook-{workers}.json").write_text(json.dumps(told[workers]))
        printed.touch()
        return 0

    monkeypatch.setattr(gpu_reference, "run_command", run_command)
    console = Console(record=True, width=200)
    assert gpu_reference.make(SweepOptions(), tmp_path, console, "hook") == 0
    said = console.export_text()
    assert "From the run with 4 workers, 16 give 20.0 steps/s (18.0–22.0)." in said
    assert "The run with 16 gave 16.0: forecast ÷ run is 1.25." in said
    assert [command[-1] for command in ran] == ["--make", "4", "16"]
    with tarfile.open(tmp_path / "hook.tar.gz") as archive:
        assert {"hook.txt", "hook-4.json", "hook-16.json"} == set(archive.getnames())
