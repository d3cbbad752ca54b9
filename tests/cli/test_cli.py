"""The command line: a user's mistake is one message and exit status 2, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from feedrate.cli import app
from feedrate.schema.plugins import ROOT
from feedrate.store.bench_record import SECTIONS

SMALL = """
version: 1
protocol: {warmup_s: 0.05, window_s: 0.1, min_steps: 2, blocks: [1, 1]}
suites: {loader: {workload: div2k, mode: load, patch_size: 16, n_samples: 32, batch_size: 8, storage_format: lmdb}}
profiles: {quick: {}}
"""


def harness(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    command = [sys.executable, "-m", "feedrate", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    path = tmp_path / "matrix.yaml"
    path.write_text(SMALL)
    return path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--profile", "quik"], ["unknown profile 'quik'", "did you mean 'quick'"]),
        (["--suite", "loadr"], ["unknown suite 'loadr'", "did you mean 'loader'"]),
        (["--budget", "soon"], ["--budget", "'soon'", "such as 90s"]),
        (["--budget", "0"], ["--budget", "above zero"]),
        (["--data", "/dev/null/x"], ["--data /dev/null/x", "no folder that can be read"]),
        (["--matrix", "nowhere.yaml"], ["nowhere.yaml", "cannot be read"]),
        (["--data", "no/such/folder"], ["--data no/such/folder", "expected one of photographs"]),
        (["--data", "README.md"], ["--data README.md", "expected one of photographs"]),
        (["--profil", "quick"], ["No such option"]),
    ],
)
@pytest.mark.parametrize("command", [pytest.param("plan", marks=pytest.mark.slow), "sweep"])
def test_bad_options(command: str, arguments: list[str], words: list[str], tmp_path: Path) -> None:
    """A name, a number or a folder that cannot be used is said in one message; nothing is written."""
    done = harness(command, "--results", str(tmp_path / "results"), *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert not list(tmp_path.glob("results/*/*"))


def test_a_budget_below_one_block(tmp_path: Path) -> None:
    """A budget in which not one block fits is refused, with the time that a block takes."""
    done = harness("sweep", "--results", str(tmp_path), "--budget", "2s")
    assert done.returncode == 2
    assert "less than one block, which takes about" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--results", pytest.param("--data-root", marks=pytest.mark.slow)])
def test_a_place_that_cannot_be_written(option: str, matrix: Path, tmp_path: Path) -> None:
    """A folder that cannot be made or written stops the sweep with its name, before anything is measured."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    places = {"--results": str(tmp_path / "r"), "--data-root": str(tmp_path / "d")} | {option: str(blocked / "in")}
    done = harness("sweep", "--matrix", str(matrix), *(word for pair in places.items() for word in pair))
    assert done.returncode == 2, done.stdout + done.stderr
    assert str(blocked) in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("name", "found"),
    [("notes.txt", "no image here"), pytest.param("broken.png", "neither PNG, JPEG nor WebP", marks=pytest.mark.slow)],
)
def test_a_folder_without_photographs(name: str, found: str, matrix: Path, tmp_path: Path) -> None:
    """One with no image at all is refused before anything is started, one with nothing usable when it was read."""
    folder = tmp_path / "photographs"
    folder.mkdir()
    (folder / name).write_bytes(b"not a picture")
    places = ["--results", str(tmp_path / "r"), "--data-root", str(tmp_path / "d"), "--data", str(folder)]
    done = harness("sweep", "--matrix", str(matrix), *places)
    assert done.returncode == 2, done.stdout + done.stderr
    assert found in done.stderr
    assert ("Starting" in done.stdout) == (name == "broken.png")
    assert "Traceback" not in done.stderr + done.stdout
    assert not list(tmp_path.glob("r/*/*/plan.json"))


def test_a_photograph_that_cannot_be_looked_at(matrix: Path, tmp_path: Path) -> None:
    """A file that the system refuses to tell of, here a link to too long a name, is named with the system's reason."""
    (tmp_path / "photograph.png").symlink_to("x" * 300)
    done = harness("plan", "--matrix", str(matrix), "--data", str(tmp_path))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "photograph.png: File name too long; expected files that can be read" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--help"], ("plan", "sweep", "site", "serve", "results", "bench")),
        (["bench", "--help"], SECTIONS),
        (["plan", "--axes"], ("prefetch_factor", "lmdb")),
    ],
)
def test_the_command_line_explains_itself(arguments: list[str], names: tuple[str, ...]) -> None:
    """`python -m feedrate` names its commands, `bench --help` what can be measured alone, `axes` every axis."""
    done = harness(*arguments)
    assert done.returncode == 0
    assert [name for name in names if name not in done.stdout] == []


TARGETS = ("plan", "sweep", "run", "tune", "top", "compare", "submit", "site", "figures", "serve", "bench", "div2k")


@pytest.mark.parametrize("target", [*TARGETS, "gpu-reference"])
def test_a_target_passes_options_on(target: str) -> None:
    """ARGS= reaches the command of every target that has one."""
    command = ["make", "-n", "-o", ".venv/ready", target, "ARGS=--results s3://bucket/results -- it's $$HOME"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--results s3://bucket/results -- it's $HOME" in done.stdout


def test_there_are_sixteen_commands() -> None:
    """A new one needs an old one to go, or a place in a group."""
    assert len(typer.main.get_command(app).commands) <= 16  # type: ignore[attr-defined]


def test_make_alone_explains_itself() -> None:
    """`make` prints every target with what it does; the README names no target that is not there."""
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("setup", "plan", "sweep", "site", "serve", "test", "test-all", "lint", "bench", "clean"):
        assert f"make {target} " in done.stdout


@pytest.mark.parametrize(
    "target", ["gpu-reference", *(f"{name} VENV=0" for name in ("plan", "sweep", "run", "tune", "top", "compare"))]
)
def test_a_gpu_machine_s_own_python_is_taken(target: str, tmp_path: Path) -> None:
    """No .venv is made or wanted, and what PYTHONPATH names besides stays importable."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || echo "$PYTHONPATH $*"\n')
    python.chmod(0o755)
    told = {**os.environ, "PYTHONPATH": "/some/wheels"}
    command = ["make", "--no-print-directory", "-f", ROOT / "Makefile", *target.split(), f"PYTHON={python}"]
    done = subprocess.run(command, cwd=tmp_path, env=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    name = target.split(maxsplit=1)[0]
    assert done.stdout.startswith(f"{tmp_path}/harness:/some/wheels -m feedrate {name}")
    assert not (tmp_path / ".venv").exists()


def test_help_waits_for_nothing() -> None:
    """Commands are listed before any library is loaded that takes long to load."""
    code = "import feedrate.cli, sys; print(*{'numpy', 'pandas', 'pyarrow', 'pydantic', 'torch'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
