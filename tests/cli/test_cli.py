"""The command line: a user's mistake is one message and exit status 2, never a traceback."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest
from sweeping import Done, Place, typed
from typer.testing import CliRunner

from feedrate import cli
from feedrate.plan.options import OPTIONS, SweepOptions
from feedrate.schema.errors import EnvironmentFault
from feedrate.schema.plugins import ROOT
from feedrate.store.bench_record import SECTIONS
from feedrate.sweep.launcher import Template

SMALL = """
version: 1
protocol: {warmup_s: 0.05, window_s: 0.1, min_steps: 2, blocks: [1, 1]}
suites: {loader: {workload: div2k, mode: load, patch_size: 16, n_samples: 32, batch_size: 8, storage_format: lmdb}}
profiles: {quick: {}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A matrix of one small cell, folders without a photograph that could be used, and a file in a folder's place."""
    (tmp_path / "matrix.yaml").write_text(SMALL)
    (tmp_path / "blocked").write_text("a file")
    for name in ("texts/notes.txt", "broken/broken.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"not a picture")
    (tmp_path / "links").mkdir()
    (tmp_path / "links/photograph.png").symlink_to("x" * 300)
    return tmp_path


@pytest.mark.parametrize("command", ["plan", "sweep"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--profile quik", "unknown profile 'quik'.*did you mean 'quick'"),
        ("--suite loadr", "--suite.* unknown suite 'loadr'.*did you mean 'loader'"),
        ("--budget soon", "--budget.*'soon'.* such as 90s"),
        ("--budget 0", "--budget.* above zero"),
        ("--data /dev/null/x", "--data /dev/null/x.* no folder that can be read"),
        ("--matrix nowhere.yaml", "nowhere.yaml.* cannot be read"),
        ("--data no/such/folder", "--data no/such/folder.* expected one of photographs"),
        ("--data README.md", "--data README.md.* expected one of photographs"),
        ("--data {folder}/texts", "no image here"),
        ("--data {folder}/links", "photograph.png: File name too long; expected files that can be read"),
        ("--profil quick", "No such option"),
    ],
)
def test_bad_options(command: str, arguments: str, words: str, folder: Path) -> None:
    """A name, a number or a folder that cannot be used is said in one message; nothing is started or written."""
    done = typed(command, "--results", str(folder / "results"), *arguments.format(folder=folder).split())
    assert (done.status, done.out) == (2, "")
    assert re.search(words, " ".join(done.err.split()))
    assert not list(folder.glob("results/*/*"))


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ("--matrix matrix.yaml --budget 2s", "--budget: 2.0 s is less than one repetition, which takes about"),
        ("--results {folder}/blocked/in", "{folder}/blocked"),
    ],
)
def test_what_a_sweep_cannot_use(arguments: str, word: str, folder: Path) -> None:
    """A budget without room for a block, a folder that cannot be written."""
    places = [f"--matrix={folder}/matrix.yaml", f"--results={folder}/r", f"--data-root={folder}/d"]
    done = typed("sweep", *places, *arguments.format(folder=folder).split())
    assert done.status == 2
    assert word.format(folder=folder) in done.err
    assert not list(folder.glob("r/*/*/*"))


@pytest.mark.slow
def test_photographs_of_which_none_can_be_read(folder: Path, template: Template) -> None:
    """A message says so, and nothing is measured."""
    place = Place(folder)
    place.matrix.write_text(SMALL)
    assert "neither PNG, JPEG nor WebP" in place.sweep(template, "--data", f"{folder}/broken", status=2)
    assert not list(place.results.glob("*/*/*"))


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([], ("plan", "sweep", "site", "serve", "results", "bench")),
        (["bench", "--help"], SECTIONS),
        (["sweep", "--help"], [option.help.split(maxsplit=1)[0] for option in OPTIONS.values()]),
        (["plan", "--axes"], ("prefetch_factor", "lmdb")),
    ],
)
def test_the_command_line_explains_itself(arguments: list[str], names: tuple[str, ...]) -> None:
    """`feedrate` names its commands, `bench --help` what can be measured alone, `plan --axes` every axis."""
    done = typed(*arguments)
    assert [name for name in names if name not in done.out + done.err] == []


@pytest.mark.parametrize("group", [[], ["results"], ["data"]])
def test_every_command_has_a_line(group: list[str]) -> None:
    """The lists of commands say of each what it does, and no line is cut."""
    lines = CliRunner().invoke(cli.app, [*group, "--help"]).output.split("Commands:\n")[1].splitlines()
    assert lines
    assert [line for line in lines if line.endswith("...") or not line.endswith(".")] == []


@pytest.mark.parametrize(("number", "remedy"), [(errno.EMFILE, "ulimit -n"), (errno.ENOSPC, "make room")])
def test_a_machine_that_is_used_up_is_one_line(
    number: int, remedy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever it shows: what ran out, where, and what to do; other errors of the system are bugs, and are shown."""
    monkeypatch.setattr(cli, "app", Mock(side_effect=OSError(number, os.strerror(number), "/proc/1/stat")))
    assert cli.main() == EnvironmentFault.exit_status
    message = capsys.readouterr().err
    assert re.fullmatch(f"feedrate: .*'/proc/1/stat'; .*{remedy}.*, then repeat the command\n", message)
    monkeypatch.setattr(cli, "app", Mock(side_effect=OSError(errno.EPIPE, "broken")))
    with pytest.raises(OSError, match="broken"):
        cli.main()


def test_what_was_typed_is_what_another_process_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option, read from the command line and written for another one, comes back as it was."""
    asked = {"profile": "gpu", "matrix": Path("a b.yaml"), "data": Path("/x"), "seed": 7, "tune": True, "nodes": 3}
    whole = SweepOptions(**asked, on="local", together=True, time="2h", archive=Path("kept.tar.gz"), wait_quiet="1m")
    seen: list[SweepOptions] = []
    monkeypatch.setattr("feedrate.cluster.sweep.run", lambda options, _: seen.append(options) or [])
    assert CliRunner().invoke(cli.app, ["sweep", *whole.arguments()]).exit_code == 0
    assert seen == [whole]


TARGETS = ("plan", "sweep", "run", "tune", "top", "compare", "submit", "site", "figures", "serve", "bench", "div2k")


def make(*words: str | Path, cwd: Path = ROOT, **environment: str) -> Done:
    command, env = ["make", "--no-print-directory", *words], os.environ | environment
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("target", [*TARGETS, "gpu-reference"])
def test_a_target_passes_options_on(target: str) -> None:
    """ARGS= reaches the command of every target that has one."""
    done = make("-n", "-o", ".venv/ready", target, "ARGS=--results s3://bucket/results -- it's $$HOME")
    assert "--results s3://bucket/results -- it's $HOME" in done.out


@pytest.mark.parametrize("words", ["sweep DATA=x", "plan BUDGT=4m", "tune BUDGET=4m", "compare A=1 B=2", "NODES=3"])
def test_a_variable_that_make_does_not_know_is_refused(words: str) -> None:
    """Earlier versions had a variable for each option: the message says what takes its place."""
    done = make(*words.split())
    assert (done.status, done.out) == (2, "")
    assert re.search(r"takes no .*\b[A-Z]+=: options", done.err)
    assert 'go into ARGS, as in make sweep ARGS="--data photographs/"' in done.err


def test_make_alone_explains_itself() -> None:
    """`make` prints every target with what it does."""
    done = make(BUDGET="4m", DATA="in the environment")
    for target in ("setup", "plan", "sweep", "site", "serve", "test", "test-all", "lint", "bench", "clean"):
        assert f"make {target} " in done.out


@pytest.mark.parametrize(
    "target", ["gpu-reference", *(f"{name} VENV=0" for name in ("plan", "sweep", "run", "tune", "top", "compare"))]
)
def test_a_gpu_machine_s_own_python_is_taken(target: str, tmp_path: Path) -> None:
    """No .venv is made or wanted, and what PYTHONPATH names besides stays importable."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || echo "$PYTHONPATH $*"\n')
    python.chmod(0o755)
    words = ("-f", ROOT / "Makefile", *target.split(), f"PYTHON={python}")
    done = make(*words, cwd=tmp_path, PYTHONPATH="/some/wheels")
    assert done.status == 0, done.err
    assert done.out.startswith(f"{tmp_path}/harness:/some/wheels -m feedrate {target.partition(' ')[0]}")
    assert not (tmp_path / ".venv").exists()
