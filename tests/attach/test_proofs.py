"""Trainings by libraries that nobody here wrote, under ``feedrate run`` as they are.

The libraries lie in an environment of their own under ``build/proofs``, which is made once and has no feedrate. The
trainings in ``proofs`` run in one process and are held against clocks of their own, kept by their libraries'
callbacks: of each stretch of training without a validation when it began, and when each step began and ended.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attaching import between

from feedrate.attach import run as running
from feedrate.attach.facts import Outside
from feedrate.attach.loop import whole_steps
from feedrate.attach.report import Report, make, short, text
from feedrate.attach.run import Ended
from feedrate.schema.plugins import ROOT

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).with_name("proofs")
ENVIRONMENTS = ROOT / "build" / "proofs"
PACKAGES = (
    "pytorch-lightning==2.6.6",
    "transformers==5.24.0",
    "accelerate==1.15.0",
    "timm==1.0.31",
    "torchdata==0.11.0",
)


@dataclass(frozen=True)
class Proof:
    """A training, and the settings that its loader has."""

    name: str
    batch_size: int
    num_workers: int
    prefetch_factor: int | None = 2


PROOFS = [
    Proof("lightning_trainer", 8, 1, prefetch_factor=4),
    Proof("hf_trainer", 8, 0, prefetch_factor=None),  # its loader is one of Accelerate's
    Proof("timm_loader", 8, 2),  # keeps one iterator for all epochs, as ultralytics' do
    Proof("stateful_loader", 8, 2),
]


@dataclass(frozen=True)
class Seen:
    """What there is of a training."""

    proof: Proof
    report: Report
    clock: Sequence[Sequence[float]]
    """Its stretches."""

    def line(self, planted: str) -> str:
        """``FILE:LINE`` of the line of the training with this comment."""
        file = SCRIPTS / f"{self.proof.name}.py"
        return f"{file}:{1 + next(at for at, line in enumerate(file.read_text().splitlines()) if planted in line)}"


def run(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=600, **options)


@pytest.fixture(scope="module")
def python() -> Path:
    """A Python that has the libraries beside the packages of the tests; skip where no registry can be reached."""
    version = hashlib.sha256(repr((sys.version, PACKAGES)).encode()).hexdigest()[:12]
    folder = ENVIRONMENTS / version
    if not folder.exists():
        ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=ENVIRONMENTS, suffix=".tmp"))
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", new], check=True)
        here = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
        (next(new.glob("lib/python*/site-packages")) / "tests.pth").write_text("\n".join(sorted(here)))
        pip = [new / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "-q"]
        done = run([*pip, "install", "--no-compile", "--retries", "1", *PACKAGES])
        if done.returncode and "connection broken" in done.stderr:
            shutil.rmtree(new)
            pytest.skip("no package registry can be reached")
        assert done.returncode == 0, done.stderr
        new.rename(folder)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def watched(python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Path]:
    """All trainings below ``feedrate run``, and the folder that they wrote to."""
    folder = tmp_path_factory.mktemp("proofs")
    ended = running.run([str(python), str(SCRIPTS), str(folder), *(proof.name for proof in PROOFS)])
    assert ended.returncode == 0
    return ended, folder


@pytest.fixture(params=PROOFS, ids=[proof.name for proof in PROOFS])
def seen(request: pytest.FixtureRequest, watched: tuple[Ended, Path]) -> Seen:
    """What would be reported of a training if it were all that the script does."""
    proof, (ended, folder) = request.param, watched
    begun, done, clock = json.loads((folder / f"{proof.name}.json").read_text())
    processes = [process for one in ended.processes if len((process := between(one, begun, done)).records)]
    return Seen(proof, make(Report("", "", 0), processes, ended.stacks, Outside(2), done), clock)


def test_the_loader_of_training_is_found_where_the_script_made_it(seen: Seen) -> None:
    """Not the one of validation; with the settings that it has, and every step that was trained."""
    loader, expected = seen.report.loader, dataclasses.asdict(seen.proof)
    assert loader is not None
    assert {name: loader.settings[name] for name in expected if name != "name"} | {"name": expected["name"]} == expected
    assert dict(text(seen.report))["loader"].startswith(f"{short(seen.line('# training'))}  batch_size=")
    assert len(loader.steps) == sum(len(stretch) // 2 for stretch in seen.clock)


def test_pace_and_wait_agree_with_the_clock_of_the_training(seen: Seen) -> None:
    """Steps a second within 5 %; the wait is within what lies between two steps, and most of it."""
    pace, loader, clock = seen.report.pacing, seen.report.loader, seen.clock
    assert pace is not None
    assert loader is not None
    counted = whole_steps(loader).index
    walls = np.concatenate([np.diff(stretch[::2]) for stretch in clock])[counted]
    steps = np.concatenate([np.subtract(stretch[2::2], stretch[1::2]) for stretch in clock])[counted]
    assert pace.steps == len(counted) > 0.7 * sum(len(stretch) // 2 for stretch in clock)
    assert pace.steps_per_s.value == pytest.approx(1 / walls.mean(), rel=0.05)
    between = 1 - steps.sum() / walls.sum()  # two steps; of that most is a wait for this loader
    assert between - 0.15 < pace.wait_share.value < between + 0.03


def test_the_hottest_line_is_the_planted_one(seen: Seen) -> None:
    """A sleep in the script's own data set."""
    hottest = seen.report.preparing[0]
    assert f"{hottest.file}:{hottest.line}" == seen.line("# planted")
    assert hottest.share > 0.5
