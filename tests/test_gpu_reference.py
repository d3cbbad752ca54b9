"""The command for a GPU machine, rehearsed on this one in an environment that has little installed."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest

from harness import gpu_reference, store
from harness.errors import EnvironmentFault
from harness.registry import ROOT

HAS = ("torch", "torchvision", "pandas", "pyarrow", "psutil", "pydantic", "pytest", "pyyaml", "rich", "scipy", "typer")
"""What a machine for training has besides Python: no lmdb, no altair, no mkdocs, no browser."""
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
    for package in needed(HAS):
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
