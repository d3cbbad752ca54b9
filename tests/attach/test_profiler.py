"""What py-spy's text means: lines of the user's, threads that wait, and why there was nothing to see."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from feedrate.attach import blame, profiler
from feedrate.attach.profiler import Frame, Profiler, Stack

TORCH = "/venv/lib/python3.11/site-packages/torch/utils/data"
NEXT = f"__next__ ({TORCH}/dataloader.py:700);__next__ (/opt/feedrate/attach/hook/_feedrate_hook.py:370)"
FETCH = f"fetch (/opt/feedrate/attach/hook/_feedrate_hook.py:165);fetch ({TORCH}/_utils/fetch.py:54)"
MAIN = 'process 7:"python train.py --a=b;c";thread (7): MainThread'
WORKER = 'process 7:"python";process 9:"python";thread (9): MainThread;main (/home/a b/train.py:40)'
RAW = f"""\
{MAIN};<module> (/home/a b/train.py:9);{NEXT};get (/x/queues.py:1) 30
{MAIN};<module> (/home/a b/train.py:12) 70
process 7:"python train.py --a=b;c";thread (8): Thread-1 (_feed);run (/usr/lib/python3.11/threading.py:3) 100
{WORKER};{FETCH};get (/home/a b/data.py:9);decode (/home/a b/data.py:3) 45
{WORKER};{FETCH};get (/home/a b/data.py:4);\
open (/venv/lib/python3.11/site-packages/PIL/Image.py:1) 15
{WORKER};{FETCH} 20
{WORKER};get (/x/queues.py:1) 20
{WORKER};{FETCH};g\0t (/home/a b/d\0ta.py:9) 5
process 7:"python";process 9:"python";thread (10): Thread-1 (_feed);run (/usr/lib/python3.11/threading.py:3) 100
no stack
"""


@pytest.fixture
def stacks(tmp_path: Path) -> list[Stack]:
    (tmp_path / "7.stacks").write_text(RAW)
    return profiler.read(tmp_path / "7.stacks")


def test_stacks_are_read(stacks: list[Stack]) -> None:
    """A stack knows its process, its thread, whether that is the main one, and its frames; what is none is left out.

    So is one that was torn, whose names hold bytes of no name: no file can be asked for by them.
    """
    assert [(stack.process, stack.thread, stack.count) for stack in stacks] == [
        *((7, "7", count) for count in (30, 70)),
        (7, "8", 100),
        *((9, "9", count) for count in (45, 15, 20, 20)),
        (9, "10", 100),
    ]
    assert stacks[1].frames == (Frame("<module>", "/home/a b/train.py", 12),)
    assert [frame.name for frame in stacks[0].frames] == ["<module>", "__next__", "__next__", "get"]
    assert [stack.main for stack in stacks] == [True, True, False, *[True] * 4, False]


def test_hot_lines_are_the_users_own(stacks: list[Stack], tmp_path: Path) -> None:
    """Below the fetcher the user's innermost line counts, for what packages do in its name, too; all shares are one."""
    found = profiler.hottest([blame.below(stack, "waiting") for stack in stacks if profiler.prepares(stack)])
    assert [(line.file, line.line, line.share) for line in found] == [
        ("/home/a b/data.py", 3, 45 / 80),
        (f"{TORCH}/_utils/fetch.py", 54, 20 / 80),
        ("/home/a b/data.py", 4, 15 / 80),
    ]
    (tmp_path / "own.py").write_text("one\n  two  \n")
    (line,) = profiler.hottest([Stack(1, "1", True, (Frame("f", str(tmp_path / "own.py"), 2),), 3)])
    assert (line.code, line.share) == ("two", 1.0)
    assert profiler.hottest([]) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Error: Permission Denied\nReason: Operation not permitted (os error 1)\n", ["may not read", "SYS_PTRACE"]),
        ("Permission denied: try running with sudo\n", ["may not read", "sudo sysctl kernel.yama.ptrace_scope=0"]),
        ("Error: Failed to find python version\n\nStack backtrace:\n   7: main\n", ["(Error: Failed to find python"]),
        ("something\nlast words\n", ["(last words)"]),
        ("", ["(it said nothing)"]),
    ],
)
def test_what_pyspy_lacks_is_said(text: str, words: list[str]) -> None:
    """Nothing to see is one sentence with the reason, and with what allows it."""
    said = profiler.problem(text)
    assert [word for word in words if word not in said] == []
    assert said.endswith("no lines of code")
    assert "\n" not in said


def test_a_profiler_that_is_missing_or_ends_at_once_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """py-spy that is not there, cannot be started or sees nothing makes no stacks and one problem each."""
    broken = tmp_path / "py-spy"
    broken.write_text("#!/bin/sh\necho Error: planted >&2\nexit 1\n")
    broken.chmod(0o700)
    for path, words in ((None, "pip install py-spy"), ("/dev/null", "cannot be started"), (str(broken), "planted")):
        monkeypatch.setattr(profiler, "program", lambda path=path: path)
        spy = Profiler(tmp_path)
        spy.watch(1)
        spy.watch(1)
        while path == str(broken) and not (tmp_path / "1-0.py-spy").read_text():
            time.sleep(0.01)
        assert spy.close() == []
        (problem,) = spy.problems
        assert words in problem


@pytest.mark.slow
def test_a_long_script_is_sampled_less_often_and_each_sample_counts_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while py-spy looks less often; its samples count so much more: six seconds are six seconds."""
    (tmp_path / "sleeps.py").write_text("import time\ntime.sleep(3)  # first\ntime.sleep(6)  # second\n")
    monkeypatch.setattr(profiler, "DENSE_S", 2)
    with subprocess.Popen([sys.executable, tmp_path / "sleeps.py"]) as script:
        spy = Profiler(tmp_path)
        while script.poll() is None:
            spy.watch(script.pid, sparing=True)
            time.sleep(0.1)
        dense, sparse = spy._samplings[script.pid]
        stacks = spy.close()
    assert spy.problems == []
    assert (dense.dense, sparse.dense, dense.rate) == (True, False, profiler.DENSER * sparse.rate)
    counts = {frame.line: stack.count for stack in stacks for frame in stack.frames[-1:]}
    assert 4.5 < counts[3] / dense.rate < 8
