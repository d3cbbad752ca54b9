"""Jobs in forked children: every way in which one can end is an answer, and nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path

import psutil
import pytest
from warm import ENDLESS_S, Runner

from feedrate.machine.probes.procfs import semaphores
from feedrate.schema.errors import TrialError
from feedrate.sweep import launcher
from feedrate.sweep.launcher import LOSSES, Answer, Template, TemplateLost, Templates

ENDS_OF_PIPES = ("EOFError", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError")
"""Errors that may be seen before the death of a worker."""
CELL = {
    "workload": "synthetic",
    "mode": "load",
    "storage_format": "lmdb",
    "n_samples": 64,
    "patch_size": 16,
    "batch_size": 8,
    "num_workers": 2,
    "prefetch_factor": 2,
}


@pytest.fixture(autouse=True)
def nothing_left(runner: Runner) -> Iterator[None]:
    """After each test the template has no child, this process not one more, and shared memory no file more."""
    before, segments = {p.pid for p in psutil.Process().children()}, shared_memory()
    yield
    left = shared_memory() - segments
    assert {p.pid for p in psutil.Process().children()} == before
    assert psutil.Process(runner.template.pid).children(recursive=True) == []
    until = time.monotonic() + 10
    while left and time.monotonic() < until:  # others that run at the same time take theirs away
        time.sleep(0.01)
        left &= shared_memory()
    assert not left


def shared_memory() -> set[str]:
    """The names that PyTorch, and Grain in a trial, gave to shared memory: they hold the process id of their maker."""
    return {path.name for kind in ("torch", "psm") for path in Path("/dev/shm").glob(f"{kind}_*_*")}


def workers(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def test_a_trial_reports(runner: Runner) -> None:
    """A trial answers with its row, and its workers are gone."""
    answer = runner.run()
    assert answer.outcome == "ok"
    row = answer.result["row"]
    assert row["samples"] == row["steps"] * CELL["batch_size"]
    assert row["steps"] % 2 == 0
    assert answer.left_processes == 0
    assert answer.ordered_ns < answer.first_batch_ns < answer.over_ns


def test_an_exception_is_an_answer(runner: Runner) -> None:
    """What a trial raises comes back with kind and message, and does not harm the next job."""
    answer = runner.run(workload="nothing")
    assert (answer.outcome, answer.kind) == ("error", "InputError")
    assert "unknown name 'nothing'" in answer.message
    assert runner.run().outcome == "ok"


def test_a_timeout_is_an_answer(runner: Runner) -> None:
    """A trial that takes too long is killed, workers and all."""
    begun = time.monotonic()
    answer = runner.run(read_us=5_000_000, timeout_s=1)
    assert (answer.outcome, answer.kind) == ("timeout", "Timeout")
    assert "after 1 s" in answer.message
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("victim", ["worker", "trial"])
def test_a_killed_process_is_an_answer(runner: Runner, victim: str) -> None:
    """A killed worker makes its trial a failed one, a killed trial is a crash that names the signal.

    Those that are gone before anybody looks, reaped or orphaned, leave no shared memory either.
    """
    left: set[Path] = set()

    def kill(event: str, pid: int, _: dict) -> None:
        if event == "first_batch":
            family = workers(pid)
            left.update(Path(f"/dev/shm/torch_{worker.pid}_4242_0") for worker in family)
            left.add(Path(f"/dev/shm/sem.feedrate-{runner.template.pid}-4242"))
            for path in left:
                path.touch()
            (family[0] if victim == "worker" else psutil.Process(pid)).kill()
            until = time.monotonic() + 5
            while alive(family[:1] if victim == "worker" else family) and time.monotonic() < until:
                time.sleep(0.01)

    answer = runner.run(watch=kill, window_s=ENDLESS_S, read_us=2_000)
    if victim == "trial":
        assert (answer.outcome, answer.kind) == ("crash", "SIGKILL")
        assert "out-of-memory" in answer.message
    else:
        assert answer.outcome == "error"
        assert answer.kind in ENDS_OF_PIPES or re.search("exited unexpectedly|killed by signal", answer.message)
    assert answer.left_shm_segments > CELL["num_workers"]
    assert not any(path.exists() for path in left)


def alive(family: list[psutil.Process]) -> bool:
    """Whether one of them still runs; the dead may wait to be reaped."""
    try:
        return any(p.status() != psutil.STATUS_ZOMBIE for p in family)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_batches_that_grain_never_handed_over_are_removed(runner: Runner) -> None:
    """They lie in shared memory when the trial ends; they are counted and taken away."""
    answer = runner.run(loader="grain", num_workers=1)
    assert answer.outcome == "ok", answer.message
    assert answer.left_shm_segments > 0


@pytest.mark.slow
def test_semaphores_of_spawned_workers_are_removed(runner: Runner) -> None:
    """They have names, by which workers find them, and whose tracker is killed with the group."""
    seen: set[Path] = set()

    def watch(event: str, pid: int, _: dict) -> None:
        if event == "result":
            seen.update(semaphores(pid))

    answer = runner.run(watch=watch, start_method="forkserver", num_workers=1, timeout_s=120)
    assert (answer.outcome, answer.left_processes) == ("ok", 0)
    assert {path.name.rpartition("-")[0] for path in seen} == {f"sem.feedrate-{runner.template.pid}"}
    assert not any(path.exists() for path in seen)


def test_noise_is_kept_from_the_terminal(runner: Runner, capfd: pytest.CaptureFixture[str]) -> None:
    """What a trial prints does not reach the terminal; the end of it explains a trial that ended without a word."""
    answer = runner.template.run("no job", timeout_s=10, watch=lambda *_: None)
    assert (answer.outcome, answer.kind) == ("crash", "Exit")
    assert "JSONDecodeError" in answer.message
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


@pytest.mark.slow
def test_a_lost_template_is_started_anew(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One that is killed while its trial runs leaves nothing, is said, and the work is done with another.

    What trials made among the temporary files, killed ones too, is gone with their templates. The other one loses its
    parent between an order and its answer, and ends without a word.
    """
    messages: list[str] = []
    trials: list[int] = []
    scratch: list[Path] = []

    def kill(event: str, pid: int, _: dict) -> None:
        if event == "first_batch" and not trials:
            trials.extend((pid, *(worker.pid for worker in workers(pid))))
            psutil.Process(psutil.Process(pid).ppid()).kill()

    def work(template: Template) -> Answer:
        scratch.append(Path(template.scratch))
        answer = Runner(template, tmp_path, CELL).run(watch=kill)
        assert list(scratch[-1].glob("pymp-*"))
        return answer

    def go_away(template: Template) -> None:
        order = json.dumps({"do": "fork", "job": json.dumps({"kind": "facts"})}).encode()
        with Path(os.devnull).open("wb") as nowhere:
            socket.send_fds(template._control, [order], [nowhere.fileno(), nowhere.fileno()])
        template._control.close()
        assert template._process.wait(timeout=60) == 0

    before = {process.pid for process in psutil.Process().children()}
    with closing(Templates(messages.append)) as templates:
        assert templates.attempt(work).outcome == "ok"
        templates.attempt(go_away)
    assert len(trials) == 1 + CELL["num_workers"]
    assert not any(psutil.pid_exists(pid) for pid in trials)
    assert len(scratch) == 2
    assert not any(folder.exists() for folder in scratch)
    (message,) = messages
    assert message.startswith("The process that starts measurements was lost (killed by SIGKILL):")
    orphans = [process for process in psutil.Process().children() if process.pid not in before]
    assert not psutil.wait_procs(orphans, timeout=60)[1]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("lives", [True, False])
def test_it_is_not_started_anew_for_ever(lives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After so many losses in a row the sweep ends with what to do; one that lived in between begins to count anew."""
    monkeypatch.setattr(launcher, "Template", nullcontext)
    said: list[str] = []
    templates, tries = Templates(said.append), iter(range(100))

    def lost(_: object) -> int:
        if (at := next(tries)) == LOSSES and lives:
            return at
        raise TemplateLost("killed by SIGKILL")

    if lives:
        assert templates.attempt(lost) == LOSSES
    with pytest.raises(TrialError, match=f"lost {LOSSES + 1} times in a row.*free some.*goes on from here"):
        templates.attempt(lost)
    assert len(said) == LOSSES * (2 if lives else 1)
