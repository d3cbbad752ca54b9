"""``feedrate run`` changes nothing: output, weights, status and signals are the script's own, and nothing is left."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import numpy as np
import psutil
import pytest
from attaching import HARNESS, Place, ended, wait_for
from typer.testing import CliRunner

from feedrate.attach import profiler, records, report, terminal, watch
from feedrate.attach import run as running
from feedrate.attach.run import HOOK
from feedrate.cli import app
from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.store import runs

slow = pytest.mark.slow
SEEDED = """
import random
torch.manual_seed(3)
random.seed(3)
class Drawn(Samples):
    def __getitem__(self, index):
        return super().__getitem__(index) + random.random() + torch.rand(1)
class Deadly(Samples):
    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)
for workers in (0, 2):
    train(DataLoader(Drawn(), 4, shuffle=True, num_workers=workers))
    print(weight.detach().numpy().tobytes().hex(), torch.rand(1), sys.argv, len(sys.path))
try:
    train(DataLoader(Deadly(), 4, num_workers=1))
except RuntimeError:
    print("a worker killed itself")
sys.stderr.write("said on stderr\\n")
sys.stdout.buffer.write(bytes(range(256)))
try:
    train(DataLoader(Samples(broken=50), 4, num_workers=1))  # of two either may be first: PyTorch raises elsewhere
except OSError as error:
    raise ValueError('planted') from error
"""
IN_A_LOOP = """
for place in feedrate.watch(range(200)):
    time.sleep(0.0005)
    if place == 99:  # of short steps dozens are written together, and the last are lost with the process
        """
COLLECTING = """
import gc, signal, sys
import _feedrate_step
def handle(number, frame):
    raise TimeoutError
signal.signal(signal.SIGALRM, handle)
for _ in range(10_000):
    gc.collect(0)
kept = [[] for _ in range(1_000_000)]
signal.setitimer(signal.ITIMER_REAL, 0.001)
try:
    gc.collect()
except TimeoutError:
    _feedrate_step.GARBAGE.flush()
    sys.exit(11)
"""
"""A signal comes while Python looks for garbage."""
ENDINGS = {
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", 137),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", 130),
    "re-executes itself": (
        "os.execv(sys.executable, [sys.executable, *sys.argv, 'x']) if len(sys.argv) < 2 else sys.exit(7)",
        7,
    ),
}
"""How a script ends in the middle of an epoch, and the status that a shell sees then."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@slow
def test_output_weights_status_and_traceback_are_the_scripts_own(place: Place) -> None:
    """Bit for bit, though py-spy is killed, a worker kills itself, and another one raises."""
    script = place.script(SEEDED)
    alone, watching = place.start(sys.executable, script), place.start(*place.command(sys.executable, script))
    feedrate = psutil.Process(watching.pid)
    while not (profilers := [child for child in feedrate.children() if child.name() == "py-spy"]):
        assert watching.poll() is None
        time.sleep(0.01)
    profilers[0].kill()
    watched, plain = ended(watching), ended(alone)
    assert plain.status == 1
    assert (watched.status, watched.out) == (plain.status, plain.out)
    assert plain.err.count("Traceback") == 3
    assert watched.err.startswith(plain.err)
    assert "ended with status 1" in watched.err
    assert ["py-spy" in note for note in place.report["notes"]] == [True]
    assert place.left() == []


@slow
@pytest.mark.parametrize("name", ENDINGS)
def test_it_ends_as_the_script_does(place: Place, name: str) -> None:
    """Status or signal are the script's; its traceback names no line of the hook; what was seen is said."""
    end, status = ENDINGS[name]
    done = place.python(place.script(IN_A_LOOP + end, torch=False))
    assert (done.status, done.out) == (status, b""), done.err
    assert "_feedrate_" not in done.err
    assert ("Traceback" in done.err) == (name == "KeyboardInterrupt")
    assert "feedrate: " in done.err
    assert place.report["loader"]["steps"] > 4
    assert re.search(r"loader +train\.py:\d+  range", done.err), done.err
    assert place.left() == []


HANDLING = """
def handle(number, frame):
    print("handled", number, flush=True)
    sys.exit(11)
signal.signal(signal.SIGTERM, handle)
signal.signal(signal.SIGINT, handle)
for place in feedrate.watch(range(120)):
    time.sleep(0.01)
    if place == 3:
        open("begun", "w").close()
print("whole")
"""


def test_what_a_handler_raises_while_garbage_is_looked_for_is_raised(tmp_path: Path) -> None:
    """Python drops what is raised in callbacks of its collector: the hook has no line there, and yet times it."""
    environment = os.environ | {"PYTHONPATH": str(HOOK), "FEEDRATE_RUN": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", COLLECTING], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (11, "")
    (process,) = records.read(tmp_path)
    assert np.diff(process.of(records.COLLECTED)[:, 1:3]).max() > 1_000_000, "the long one is among them"


FUNCTIONS = """
OUTSIDE = {"Indices.get", "Indices.__getattr__", "Loop.finish",
           "Guard.__enter__", "Guard.__exit__", "WatchedIterator.__next__", "WatchedIterator.__getattr__"}
def fail(*_, **__):
    raise ZeroDivisionError("planted")
def functions():
    names = "_feedrate_hook", "_feedrate_step", "_feedrate_worker", "_feedrate_loop", "_feedrate_log"
    owners = [sys.modules[name] for name in names if name in sys.modules]
    owners += [each for owner in owners for each in vars(owner).values() if isinstance(each, type)]
    return sorted({each.__qualname__: (owner, name) for owner in owners for name, each in vars(owner).items()
                   if type(each).__name__ == "function" and each.__module__ in names
                   and each.__qualname__ not in OUTSIDE and not name.startswith("patch")}.items())
"""
"""The hook's functions, without those that ran at imports. Those outside call the script's own, or are the guard."""
EACH_FUNCTION = f"""
import gc
import sys
import torch
from torch.utils.data import DataLoader, Dataset
class Samples(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return torch.full((2,), float(index))
gc.freeze()
kept = [[] for _ in range(50_000)]
class Optimizer(torch.optim.Optimizer):  # for its own PyTorch imports a compiler, which takes 2 CPU seconds
    add_param_group = torch.optim.Optimizer.add_param_group.__wrapped__
    def step(self):
        weight, = self.param_groups[0]["params"]
        weight.data -= 0.1 * weight.grad
def train():
    gc.collect()  # long enough to be recorded, at the next fork
    weight, taken = torch.nn.Parameter(torch.zeros(2)), []
    optimizer = Optimizer([weight], dict())
    for workers in (0, 1):
        loader = DataLoader(Samples(), 4, num_workers=workers, persistent_workers=workers > 0)
        for batch in [*loader, *loader]:
            (batch @ weight).sum().backward()
            optimizer.step()
            taken.append(batch.tolist())
    return taken, weight.tolist()
{FUNCTIONS}
right, count = train(), 0
for name, where in functions():
    kept = getattr(*where)
    setattr(*where, fail)
    assert train() == right, name
    setattr(*where, kept)
    count += 1
import _feedrate_log
assert 10 < _feedrate_log.GUARD.failures, "some of them ran, and failed"
assert count > 45, count
"""
"""Trains again and again, each time with another function of the hook that raises."""


@slow
def test_no_fault_of_the_hook_reaches_the_script(tmp_path: Path) -> None:
    """Whichever function of it raises, batches and weights are the script's own; what failed is noted."""
    environment = os.environ | {"PYTHONPATH": str(HOOK), "FEEDRATE_RUN": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", EACH_FUNCTION], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    failed = [line for process in records.read(tmp_path) for line in process.said if line["what"] == "failed"]
    assert {"ZeroDivisionError('planted')"} == {line["error"] for line in failed}


@slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_scripts_own_handler(place: Place, number: signal.Signals) -> None:
    """SIGTERM to feedrate, and Ctrl-C on the terminal, are handled by the script, once."""
    process = place.start(*place.command(sys.executable, place.script(HANDLING, torch=False)))
    wait_for(place.folder / "begun")
    (os.kill if number == signal.SIGTERM else os.killpg)(process.pid, number)
    done = ended(process)
    assert (done.status, done.out) == (11, f"handled {number}\n".encode()), done.err
    assert "ended with status 11" in done.err
    assert place.left() == []


@slow
def test_the_script_goes_on_when_feedrate_is_killed(place: Place) -> None:
    """After a SIGKILL of feedrate the script ends as it would, and the profiler goes with it."""
    process = place.start(*place.command(sys.executable, place.script(HANDLING, torch=False)))
    wait_for(place.folder / "begun")
    process.kill()
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (-signal.SIGKILL, b"whole\n")
    assert [word for word in place.left() if not word.startswith(str(place.temporary))] == []


@pytest.mark.parametrize("path", sorted(HOOK.glob("*.py")), ids=lambda path: path.stem)
def test_what_runs_in_a_script_asks_for_no_newer_python(path: Path) -> None:
    """Syntax of Python 3.9, and of packages the standard library's alone; torch is the script's own."""
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [[node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names] for node in imports]
    top = {str(name).partition(".")[0] for name in chain.from_iterable(names)}
    assert top <= sys.stdlib_module_names | {"torch", "sitecustomize"} | {each.stem for each in HOOK.glob("*.py")}


ODD = {
    "python -I": ([sys.executable, "-I", "-c", "import sys; sys.exit(6)"], 6, "no Python loaded feedrate's hook"),
    "no such program": (["no-such-program", "train.py"], 2, "no-such-program cannot be started: No such file"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_programs(place: Place, name: str) -> None:
    """What is no training is run, too, and it is said why nothing was seen; what cannot be started is one line."""
    words, status, said = ODD[name]
    done = place.run(*words)
    assert (done.status, done.out) == (status, b"")
    assert said in done.err
    assert ("loaded feedrate's hook" in done.err) == ("hook" in said)
    assert "Traceback" not in done.err
    assert status != 2 or done.err.count("\n") == 1
    assert not place.results.exists()
    assert place.left() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--name", "a/b"), "--name: got 'a/b'"), (("--json",), "--json names no file; expected --json FILE -- PROGRAM")],
)
def test_what_is_no_name_is_refused_before_the_script_runs(
    tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    """What neither a record nor a file can be called is refused, and nothing was started."""
    done = CliRunner().invoke(app, ["run", *options, "--", "touch", str(tmp_path / "ran")])
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)
    assert not list(tmp_path.iterdir())


@slow
def test_the_environment_is_the_scripts_own(place: Place) -> None:
    """The user's PYTHONPATH, a sitecustomize of their own and files that the shell opened reach the script."""
    own = place.folder / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.planted = getattr(sys, 'planted', 0) + 1\n")
    (own / "theirs.py").write_text("")
    script = place.folder / "train.py"
    script.write_text(
        "import os, sys, theirs, sitecustomize\nprint(sys.planted, sitecustomize.__file__, os.read(9, 6), sys.path)"
    )
    (place.folder / "open").write_text("opened")
    path = {"PYTHONPATH": f"{HARNESS}:{own}", "TMPDIR": str(place.temporary)}
    outs = []
    for words in ([sys.executable, str(script)], place.command(sys.executable, str(script))):
        shell = ["bash", "-c", 'exec "$@" 9< open', "bash", *words]
        outs.append(subprocess.run(shell, cwd=place.folder, env=os.environ | path, capture_output=True, check=True))
    assert outs[0].stdout.startswith(f"1 {own}/sitecustomize.py b'opened'".encode())
    assert outs[1].stdout == outs[0].stdout


@slow
def test_a_disk_that_fills_up_does_not_end_the_script(place: Place) -> None:
    """Where no file can be written any more, neither hook nor report nor record are in the script's way: it goes on."""
    full = "import resource\nfor pid in (0, os.getppid()):\n    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))\n"
    text = full + "for _ in feedrate.watch(range(40)):\n    pass\nprint('whole')\nsys.exit(3)"
    done = place.python(place.script(text, torch=False))
    assert (done.status, done.out) == (3, b"whole\n"), done.err
    assert "Traceback" not in done.err
    assert "ended with status 3" in done.err
    assert "no --json" in done.err
    assert place.left() == []


@slow
@pytest.mark.parametrize(
    ("module", "name", "lost"),
    [
        (records, "read", "no report: ZeroDivisionError: planted"),
        (report, "text", "no report: ZeroDivisionError: planted"),
        (watch, "HostProbe", "not watched to its end: ZeroDivisionError: planted"),
        (runs, "write_run", "no record: planted: cannot write"),
    ],
)
def test_an_error_of_feedrates_own_is_a_note(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    module: object,
    name: str,
    lost: str,
) -> None:
    """Whatever fails in watching, reporting or recording, the status is the script's, and the failure is said."""
    from rich.console import Console
    from typer import Exit

    def fail(*_: object, **__: object) -> None:
        raise EnvironmentFault("planted: cannot write") if name == "write_run" else ZeroDivisionError("planted")

    monkeypatch.setattr(module, name, fail)
    monkeypatch.setenv("PYTHONPATH", str(HARNESS))
    script = place.folder / "train.py"
    script.write_text(SMALL)
    with pytest.raises(Exit) as exit_:
        terminal.run([sys.executable, str(script)], Console(stderr=True, width=200), place.results)
    assert exit_.value.exit_code == 5
    said = capfd.readouterr().err
    assert f"    {lost}\n" in said
    assert "Traceback" not in said


SMALL = """
import feedrate, sys
for _ in feedrate.watch(range(40)):
    pass
sys.exit(5)
"""


@slow
def test_without_a_profiler_the_rest_is_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where py-spy cannot be started, that is a note beside pace and waits."""
    monkeypatch.setattr(profiler, "program", lambda: str(place.folder / "train.py"))
    monkeypatch.setenv("PYTHONPATH", str(HARNESS))
    (place.folder / "train.py").write_text(SMALL.replace("pass", "import time; time.sleep(0.02)"))
    done = running.run([sys.executable, str(place.folder / "train.py")])
    assert done.returncode == 5
    assert done.report.pacing is not None
    assert done.report.lines == {}
    assert ["py-spy" in note for note in done.report.notes] == [True]
    lines = dict(report.text(done.report))
    assert {"time", "pace", "held back by", "loader", "note"} <= set(lines)


@slow
def test_what_is_kept_of_a_long_script_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Telemetry of a script that runs for days takes no more memory than that of an hour, and still spans all of it."""
    monkeypatch.setattr(watch, "EVERY_S", 0.01)
    monkeypatch.setattr(watch, "MOST_SAMPLES", 16)
    watched = running.run(["sleep", "1.5"]).watched
    times = [sample["t_ns"] - watched.began_ns for sample in watched.samples]
    assert 7 <= len(times) < 16
    assert times == sorted(times)
    assert times[0] < 0.3e9
    assert times[-1] > 0.9e9


WATCH = """
import sys
sys.path[:] = [entry for entry in sys.path if not __import__("os").path.isdir(entry + "/feedrate")]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder).lower()]
try:
    import feedrate
except ImportError:
    sys.exit(1)
class Ten:
    length = 10
    def __len__(self): return self.length
    def __iter__(self): return iter(range(self.length))
own = Ten()
watched = feedrate.watch(own)
assert list(watched) == list(range(10)) == list(watched)
print(len(watched), watched.length, watched is own, "torch" in sys.modules)
"""


@slow
def test_watch_needs_no_feedrate_in_the_scripts_python(place: Place) -> None:
    """The hook serves ``import feedrate`` where it is not installed; a watched iterable is used as itself."""
    (place.folder / "train.py").write_text(WATCH)
    assert ended(place.start(sys.executable, "train.py")).status == 1
    done = place.python("train.py")
    assert (done.status, done.out) == (0, b"10 10 False False\n"), done.err
    assert place.report["loader"]["dataset"] == "Ten"
    assert place.report["loader"]["steps"] == 20
    assert place.report["account"]["steps"] == 20


def test_watch_alone_is_the_iterable_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``feedrate run`` nothing is put around an iterable."""
    import feedrate

    monkeypatch.delenv("FEEDRATE_RUN", raising=False)
    own = iter([1, 2])
    assert feedrate.watch(own) is own


def test_without_a_place_for_files_nothing_is_started(place: Place) -> None:
    """Where no temporary folder can be written, one line says so before the script begins."""
    done = ended(place.start("bash", "-c", f"ulimit -f 0; exec {' '.join(place.command('echo', 'began'))}"))
    assert (done.status, done.out, done.err.count("\n")) == (2, b"", 1), done.err
    assert "nothing was started" in done.err
