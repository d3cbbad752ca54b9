"""What befalls a sweep, each once: signals, disks, memory, files, clocks, plug-ins; and how each must end.

A case says what is wrong with how it ended, or nothing. Those that need a mount or a control group of their own say
where they cannot be tried.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from feedrate.bench.ground import FEEDRATE, MATRIX, Ground, family, send
from feedrate.store import compact, runs

Case = Callable[[Ground], str]
"""Takes a fresh ground; says what is wrong."""
_ROOM = 8 << 20
"""Bytes of address space that a process gets beyond what it has."""
_PIDS = Path("/sys/fs/cgroup/pids")
_BROKEN = """
import sys
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name != "feedrate.formats.lmdb":
            return None
        import importlib.util
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        def exec_module(module):
            load(module)
            right, reads = module.LmdbReader.read_into, [0]
            def read_into(*given):
                reads[0] += 1
                if reads[0] > AFTER:
                    FAULT
                return right(*given)
            module.LmdbReader.read_into = read_into
        spec.loader.exec_module = exec_module
        return spec
sys.meta_path.insert(0, Broken())
"""
"""A plug-in that fails in a read, wherever it is imported."""


class NotHereError(Exception):
    """A case cannot be tried on this machine; the message says why."""


def again(ground: Ground) -> str:
    """Repeat the command: it must end well, with all that had ended and every setting."""
    ended = ground.journal()
    done = ground.run()
    return done.wrong(0) or "; ".join(ground.faults(ended))


def _killed_once(seen: Callable[[Ground], bool]) -> Case:
    """The parent is killed as soon as something is seen."""

    def case(ground: Ground) -> str:
        process = ground.start()
        while not seen(ground) and process.poll() is None:
            time.sleep(0.0005)
        process.kill()
        process.wait()
        return "; ".join(ground.left()) or again(ground)

    return case


def _ended_by(*signals: signal.Signals) -> Case:
    """Signals end it: no traceback, nobody left; what had ended is a run, or the same command makes it one."""

    def case(ground: Ground) -> str:
        process = ground.start()
        ground.wait_for(4, process)
        for number in signals:
            process.send_signal(number)
            time.sleep(0.1)
        wrong = ground.done(process).wrong(130) or "; ".join(ground.left())
        return wrong or ("" if runs.runs(ground.results) else again(ground))

    return case


def _stopped(who: str, seconds: float, says: str) -> Case:
    """Processes stand still for a while, or for good: that is said, and what was measured meanwhile is repeated."""

    def case(ground: Ground) -> str:
        longer = Ground(ground.folder / "longer", MATRIX.replace("window_s: 0.05", "window_s: 1"), blocks=1)
        process = longer.start()
        longer.wait_for(2, process)
        while not (measuring := family(process))["trial"] and process.poll() is None:
            time.sleep(0.005)
        standing = measuring[who] if who else longer.processes()
        send(signal.SIGSTOP, standing)
        time.sleep(seconds)
        send(signal.SIGCONT, standing if seconds else ())
        done = longer.done(process)
        return done.wrong(0, says=says) or "; ".join([*longer.left(), *longer.faults({})])

    return case


def _on_disk(ground: Ground, name: str, size: str) -> str:
    """A shell's words that mount a small disk."""
    if os.geteuid() or not shutil.which("unshare"):
        raise NotHereError("mounting takes root")
    folders = {"tmp": ground.temporary, "shm": Path("/dev/shm")}  # noqa: S108 - it is mounted over
    folder = folders.get(name, ground.folder / name)
    folder.mkdir(exist_ok=True)
    return f"mount -t tmpfs -o size={size} none {folder}"


def _disk(name: str, size: str, then: str = "", says: str = "", statuses: Sequence[int] = (0, 1, 2)) -> Case:
    """A disk is small, read-only, or goes away: rows with their reason, or a message."""

    def case(ground: Ground) -> str:
        words = then.replace("DISK", str(ground.folder / name)).replace("RESULTS", str(ground.results))
        done = ground.mounted(f"{_on_disk(ground, name, size)} {words or '&& exec $SWEEP'}")
        return done.wrong(*statuses, says=says)

    return case


_READ_ONLY = "&& mount -o remount,ro DISK && exec $SWEEP"
_VANISHES = (
    "; (until ls RESULTS/*/*/journal.jsonl >/dev/null 2>&1; do sleep 0.2; done; sleep 1; umount -l DISK) & $SWEEP"
)
_NO_ROOM, _NOT_WRITTEN = "(?i)no space|disk|full", "(?i)read-only|written"


def results_full(ground: Ground) -> str:
    """The disk of the results becomes full: a message; with more room the same command goes on and loses nothing."""
    disk = _on_disk(ground, "results", "100k")
    copy = f"cp -r {ground.results} {ground.folder}/kept"
    more = f"mount -o remount,size=64m {ground.results} && $SWEEP; two=$?; {copy}; echo ended $one $two; exit $two"
    done = ground.mounted(f"{disk} && $SWEEP; one=$?; {more}")
    if wrong := done.wrong(0, says="ended [12] 0") or done.wrong(0, says=_NO_ROOM):
        return wrong
    ground.results = ground.folder / "kept"
    return "; ".join(ground.faults({}))


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _change(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(random.Random(path.name).randbytes(64))


def _spoilt(spoil: Callable[[Path], None]) -> Case:
    """Every packed file becomes another while it is read: rows with their reason, where it can be seen."""

    def case(ground: Ground) -> str:
        process = ground.start()
        ground.wait_for(4, process)
        for path in ground.data.rglob("*"):
            with suppress(OSError):
                if path.is_file():
                    spoil(path)
        return ground.done(process).wrong(0, 1) or "; ".join([*ground.left(), *ground.faults({})])

    return case


def _limited(kind: str, limit: int) -> Case:
    """A resource of one process is used up: the sweep goes on, or says why not, and the same command ends it."""

    def case(ground: Ground) -> str:
        process = ground.start()
        ground.wait_for(3, process)
        hit = False
        while not hit and process.poll() is None:
            for victim in family(process)[kind][:1]:
                with suppress(psutil.Error, OSError):
                    used = {
                        resource.RLIMIT_AS: victim.memory_info().vms + _ROOM,
                        resource.RLIMIT_NOFILE: victim.num_fds(),
                    }
                    resource.prlimit(victim.pid, limit, (used[limit], used[limit]))
                    hit = True
        done = ground.done(process)
        if wrong := done.wrong(0, 1, 2) or "; ".join(ground.left()):
            return wrong
        return "; ".join(ground.faults({})) if done.status == 0 else again(ground)

    return case


def processes_used_up(ground: Ground) -> str:
    """No further process can be started: rows with their reason, or a message."""
    group = _PIDS / f"feedrate-{os.getpid()}"
    try:
        group.mkdir()
        (group / "pids.max").write_text("24")
    except OSError as error:
        raise NotHereError("limiting processes takes root and the control group pids") from error
    done = ground.run("bash", "-c", f'echo $$ >{group}/cgroup.procs; exec "$@"', "bash", *ground.command())
    wrong = done.wrong(0, 1, 2) or "; ".join(ground.left())
    with suppress(OSError):
        group.rmdir()
    return wrong


def clock_set_back(ground: Ground) -> str:
    """The clock goes back by an hour between two measurements: the run is whole and valid."""
    script = ground.folder / "back.py"
    script.write_text(
        "import sys, datetime as d\nfrom feedrate.__main__ import run\n"
        "from feedrate.sweep import observer, record, run as active, sweep\n"
        "class Back(d.datetime):\n    looks = 0\n    @classmethod\n    def now(cls, tz=None):\n        cls.looks += 1\n"
        "        return d.datetime.now(tz) - d.timedelta(hours=cls.looks > 1)\n"
        "for module in (observer, record, active, sweep):\n    module.datetime = Back\nsys.exit(run())\n"
    )
    words = ground.command()
    done = ground.run(words[0], str(script), *words[words.index("sweep") :])
    return done.wrong(0) or "; ".join(ground.faults({}))


def second_sweep(ground: Ground) -> str:
    """Another sweep of the same machine is refused while one runs, which ends as if nothing had been."""
    process = ground.start()
    ground.wait_for(2, process)
    other = Ground(ground.folder / "other")
    other.results = ground.results
    wrong = other.run().wrong(2, says="another|running|sweep")
    return wrong or ground.done(process).wrong(0) or "; ".join(ground.faults({}))


def read_hangs(ground: Ground) -> str:
    """A worker hangs in a read: the measurement is a row, the sweep goes on."""
    text = MATRIX.replace("timeout_s: 20", "timeout_s: 2").replace(
        "profiles:", "    - {mode: load, patch_size: 16, n_samples: 96, num_workers: 1, read_us: 60000000}\nprofiles:"
    )
    hanging = Ground(ground.folder / "hanging", text, blocks=1)
    done = hanging.run()
    outcomes = {outcome for run in runs.runs(hanging.results) for outcome in run.manifest.outcomes}
    missing = "" if "timeout" in outcomes else f"no timeout among {outcomes}"
    return done.wrong(0) or missing or "; ".join(hanging.left())


def _plugin(fault: str, after: int, outcomes: set[str]) -> Case:
    def case(ground: Ground) -> str:
        site = ground.folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(_BROKEN.replace("FAULT", fault).replace("AFTER", str(after)))
        ground.environment = {"PYTHONPATH": f"{site}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")}
        done = ground.run()._replace(text="")  # a reason may hold the traceback of a worker
        if wrong := done.wrong(0) or "; ".join([*ground.left(), *ground.faults({})]):
            return wrong
        (run,) = runs.runs(ground.results)
        occurred = set(run.manifest.outcomes)
        return "" if {"ok"} < occurred <= {"ok", *outcomes} else f"outcomes {occurred}"

    return case


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def site_killed(ground: Ground) -> str:
    """A build of the site is killed at three moments: the old one stays whole, and the next build ends."""
    site = [*FEEDRATE, "site", "--results", str(ground.results), "--out", str(ground.folder / "made")]
    if wrong := ground.run().wrong(0) or ground.run(*site).wrong(0):
        return wrong
    before = _tree(ground.folder / "made" / "site")
    for share in (0.2, 0.5, 0.9):
        shutil.rmtree(ground.folder / "made" / "kept", ignore_errors=True)
        process = ground.start(*site)
        time.sleep(12 * share)
        process.kill()
        process.wait()
        if (left := ground.left()) or _tree(ground.folder / "made" / "site") != before:
            return "; ".join(left) or f"the site is another after {share:.0%}"
    return ground.run(*site).wrong(0)


def compacting_killed(ground: Ground) -> str:
    """``results compact`` is killed at four moments: repeated, it has every run once."""
    words = [*FEEDRATE, "results", "compact", "--results", str(ground.results)]
    if wrong := ground.run().wrong(0) or _killed_often(ground, words):
        return wrong
    (counted,) = compact.query("SELECT count(*) AS n FROM runs", (), ground.results / compact.FOLDER).to_pylist()
    return "" if counted["n"] == 1 else f"{counted['n']} rows of 1 run"


def submitting_killed(ground: Ground) -> str:
    """``submit`` is killed at four moments: repeated, it makes the file; the run is as it was."""
    if wrong := ground.run().wrong(0):
        return wrong
    (run,) = runs.runs(ground.results)
    before, out = _tree(run.folder), ground.folder / "made"
    words = [*FEEDRATE, "submit", str(run.folder), "--yes", "--results", str(ground.results)]
    wrong = _killed_often(ground, [*words, "--out", str(out)])
    return wrong or ("" if _tree(run.folder) == before and any(out.iterdir()) else "another run, or no file")


def _killed_often(ground: Ground, words: Sequence[str]) -> str:
    for at in range(4):
        process = ground.start(*words)
        time.sleep(0.5 + 0.4 * at)
        process.kill()
        process.wait()
    return ground.run(*words).wrong(0)


CASES: dict[str, Case] = {
    "killed while packing": _killed_once(lambda ground: any(ground.data.rglob("*"))),
    "killed while writing parquet": _killed_once(lambda ground: any(ground.results.glob("*/*/*.parquet.tmp"))),
    "killed while building the site": site_killed,
    "killed while compacting": compacting_killed,
    "killed while submitting": submitting_killed,
    "SIGTERM": _ended_by(signal.SIGTERM),
    "SIGINT twice": _ended_by(signal.SIGINT, signal.SIGINT),
    "stopped for 3 s": _stopped("", 3, "stood still for [345] s"),
    "template stopped for good": _stopped("template", 0, "was lost"),
    "disk of the data full": _disk("data", "60k", says=_NO_ROOM, statuses=(1, 2)),
    "disk of the results full": results_full,
    "temporary folder full": _disk("tmp", "4k"),
    "results read-only": _disk("results", "64m", _READ_ONLY, _NOT_WRITTEN, (2,)),
    "data read-only": _disk("data", "64m", _READ_ONLY, _NOT_WRITTEN, (1, 2)),
    "disk of the data vanishes": _disk("data", "64m", _VANISHES),
    "disk of the results vanishes": _disk("results", "64m", _VANISHES),
    "files cut": _spoilt(_cut),
    "files changed": _spoilt(_change),
    "shared memory too small": _disk("shm", "16k"),
    **{
        f"memory of the {kind} used up": _limited(kind, resource.RLIMIT_AS)
        for kind in ("worker", "trial", "template", "parent")
    },
    **{
        f"file handles of the {kind} used up": _limited(kind, resource.RLIMIT_NOFILE)
        for kind in ("trial", "template", "parent")
    },
    "processes used up": processes_used_up,
    "clock set back": clock_set_back,
    "second sweep": second_sweep,
    "read hangs": read_hangs,
    "error of a plug-in while packing": _plugin("raise ValueError('planted')", 0, {"error"}),
    "error of a plug-in in a trial": _plugin("raise ValueError('planted')", 200, {"error"}),
    "segmentation fault while packing": _plugin("import ctypes; ctypes.string_at(0)", 0, {"error"}),
    "segmentation fault in a trial": _plugin("import ctypes; ctypes.string_at(0)", 200, {"crash", "error"}),
}
