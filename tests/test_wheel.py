"""The wheel: what ``pip install feedrate`` gives somebody who has no checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import bare
import pytest

from feedrate.schema.plugins import PACKAGE, ROOT

MATRIX = """
version: 1
protocol: {warmup_s: 0.1, window_s: 0.2, min_steps: 4, blocks: [1, 1], timeout_s: 60}
suites:
  loader: [{mode: load, workload: synthetic, patch_size: 16, n_samples: 64, storage_format: lmdb, batch_size: 8}]
profiles: {quick: {}}
"""
SCRIPT = """
import time
from torch.utils.data import DataLoader
class Slow:
    def __len__(self):
        return 400
    def __getitem__(self, index):
        time.sleep(0.002)
        return float(index)
for batch in DataLoader(Slow(), batch_size=4):
    time.sleep(0.002)
"""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
"""In which no checkout is found."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it from a copy, as building leaves files behind."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("harness", "suites", "site"):
        leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=leave)
    for name in ("pyproject.toml", "README.md", "LICENSE", "matrix.yaml", "CITATION.cff", "CHANGELOG.md"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, source]
    subprocess.run(command, check=True)
    return next(out.glob("*.whl"))


def installed(wheel: Path, folder: Path, *extras: str) -> Path:
    """The command in an environment with the wheel and nothing but its dependencies, and those of some extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = chain(project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras))
    python = bare.environment(folder / "venv", [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in lines])
    command = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*command, "--no-compile", wheel], check=True, env=ENVIRONMENT)
    return python.with_name("feedrate")


@pytest.fixture(scope="module")
def feedrate(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``pip install feedrate`` gives: no torch."""
    return installed(wheel, tmp_path_factory.mktemp("bare"))


def run(feedrate: Path, where: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([feedrate, *words], cwd=where, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_it_holds_everything(wheel: Path) -> None:
    """Every module, suite and source of the site, the matrix, and no test."""
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    modules = {f"feedrate/{path.relative_to(PACKAGE)}" for path in PACKAGE.rglob("*.py")}
    suites = {f"feedrate/suites/{path.name}" for path in (ROOT / "suites").glob("*.py")}
    site = {f"feedrate/resources/site/{path.relative_to(ROOT / 'site')}" for path in (ROOT / "site").rglob("*.*")}
    assert modules | suites | site | {"feedrate/resources/matrix.yaml"} <= held
    assert all(name.startswith("feedrate/") for name in held)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        ("plan --suite storage", 0, "pip install zarr"),
        ("site", 2, r"feedrate\[site"),
        ("sweep", 2, r"lacks torch, torchvision, pillow; .* pip install 'torch>=[\d.]+'"),
    ],
)
def test_what_is_missing_is_named(feedrate: Path, tmp_path: Path, command: str, status: int, words: str) -> None:
    """A plan leaves out formats without their library; a command without its extra says in a line what to type."""
    done = run(feedrate, tmp_path, *command.split())
    assert done.returncode == status, done.stderr
    printed = " ".join((done.stdout + done.stderr).split())
    assert re.search(words, printed)
    assert "Traceback" not in printed


@pytest.mark.slow
def test_a_script_of_another_environment_is_watched(feedrate: Path, tmp_path: Path) -> None:
    """The core alone says what holds back a script whose own Python has torch, and records a run that is valid."""
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run(feedrate, tmp_path, "run", "--no-lines", "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    assert re.search(r"held back by +preparing batches in the training process", done.stderr)
    assert "record" in done.stderr
    assert run(feedrate, tmp_path, "validate", "results").returncode == 0


@pytest.mark.slow
def test_it_sweeps(wheel: Path, tmp_path: Path) -> None:
    """The core and the extra for sweeps are all that a sweep takes."""
    feedrate = installed(wheel, tmp_path, "sweep")
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    done = run(feedrate, tmp_path, "sweep")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "measurements: 1 ok" in done.stdout + done.stderr
