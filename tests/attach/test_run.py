"""``feedrate run`` on real scripts: what it says is what the script's own clock says, and its record is a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attaching import Place, preparing

from feedrate.attach.terminal import script_name
from feedrate.questions.compare import comparison
from feedrate.share import submission, validator
from feedrate.store import runs

SHORT = ["--workers", "2", "--sample-ms", "3", "--steps", "110"]
PLANTED: dict[str, tuple[list[str], dict[str, Any]]] = {
    "no workers": (
        ["--workers", "0", "--sample-ms", "2", "--steps", "90", "--kind", "iterable"],
        {"num_workers": 0, "prefetch_factor": None, "iterable": True},
    ),
    "fork": (SHORT, {"num_workers": 2, "prefetch_factor": 2, "iterable": False, "start_method": "fork"}),
}
"""Trainings whose costs are planted, and what their loader is."""
slow = pytest.mark.slow


class Planted:
    """Runs of the planted script, each once, in one store."""

    def __init__(self, folder: Path) -> None:
        self.place = Place(folder)
        self.script = self.place.planted()
        self._seen: dict[str, tuple[dict[str, Any], Any, runs.StoredRun]] = {}

    def __getitem__(self, kind: str) -> tuple[dict[str, Any], Any, runs.StoredRun]:
        """The script's own clock, the report, and the stored run."""
        if kind not in self._seen:
            done = self.place.python(self.script, *PLANTED[kind][0], options=("--name", "planted"))
            assert done.status == 0, done.err
            self._seen[kind] = json.loads(done.out), self.place.report, runs.runs(self.place.results)[-1]
        return self._seen[kind]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    place = Planted(tmp_path_factory.mktemp("planted"))
    yield place
    assert place.place.left() == []


@slow
@pytest.mark.parametrize("kind", PLANTED)
def test_what_is_said_is_what_the_scripts_own_clock_says(planted: Planted, kind: str) -> None:
    """Pace and waits agree with a clock inside the script, over the same steps."""
    clock, report, _ = planted[kind]
    steps = report["pacing"]["steps"]
    waits, walls = (sum(clock[name][-steps:]) for name in ("waits", "walls"))
    assert len(clock["walls"]) / 2 < steps < len(clock["walls"])
    assert report["pacing"]["steps_per_s"]["value"] == pytest.approx(steps / walls, rel=0.02)
    assert report["pacing"]["wait_share"]["value"] == pytest.approx(waits / walls, abs=0.02)
    assert report["loader"]["steps"] == len(clock["walls"])


@slow
@pytest.mark.parametrize(("kind", "row"), [("no workers", "here"), ("fork", "waiting")])
def test_the_cause_is_who_prepares_and_the_planted_line(planted: Planted, kind: str, row: str) -> None:
    """The training process itself or its workers, in the line that takes three quarters; a step's phases are rows."""
    _, report, _ = planted[kind]
    assert report["cause"]["row"] == row
    assert set(report["account"]["rows"]) >= {"forward", "backward", "optimizer"}
    first = preparing(report)[0]
    source = Path(planted.script).read_text().splitlines()
    assert (first["file"], first["code"]) == (planted.script, source[first["line"] - 1].strip())
    assert first["code"].endswith("# the hot line")
    assert 0.5 < first["share"] < 0.95


@pytest.mark.parametrize("kind", ["fork", pytest.param("no workers", marks=slow)])
def test_the_loader_is_named(planted: Planted, kind: str) -> None:
    """A loader is the line that makes it, and what it was made with."""
    _, report, _ = planted[kind]
    lines = Path(planted.script).read_text().splitlines()
    file, line, function = report["loader"]["made"][0]
    assert (file, lines[line - 1].strip(), function) == (planted.script, "return DataLoader(", "planted_loader")
    expected = {"batch_size": 8, "pin_memory": False, "persistent_workers": False, **PLANTED[kind][1]}
    assert {name: report["loader"][name] for name in expected} == expected


@pytest.mark.parametrize("kind", ["fork", pytest.param("no workers", marks=slow)])
def test_a_script_is_a_run(planted: Planted, kind: str) -> None:
    """The record is a run as any other: valid, a cell of the script's name and settings, a block a stretch."""
    _, report, run = planted[kind]
    checked = validator.check(run.folder, planted.place.results)
    assert checked.valid, checked.findings
    trials = run.table("trials")
    cell = {"workload": "script", "script": "planted", "mode": "train", "batch_size": 8}
    cell["num_workers"] = PLANTED[kind][1]["num_workers"]
    assert {name: set(trials[name]) for name in cell} == {name: {value} for name, value in cell.items()}
    assert len(set(trials["cell_id"])) == 1
    assert list(trials["block"]) == list(range(report["pacing"]["stretches"]))
    assert trials["steps"].sum() == report["pacing"]["steps"]


@slow
def test_the_report_stays_at_home(planted: Planted) -> None:
    """What was said lies beside the run and is in no submission: it names files of the user's."""
    _, report, run = planted["fork"]
    kept = run.folder.with_name(f"{run.folder.name}.report.json")
    assert json.loads(kept.read_text())["lines"] == report["lines"]
    prepared = submission.prepare(run)
    tables = {f"{table}.parquet" for table in ("trials", "steps", "telemetry")}
    assert {Path(name).name for name in prepared.files} == {"run.json", *tables}
    assert not [name for name, data in prepared.files.items() if str(planted.place.folder).encode() in data]


@slow
def test_two_runs_of_a_script_are_compared(planted: Planted) -> None:
    """Runs of one script with other settings are one cell; the ratio is that of the script's own clocks."""
    (*before, a), (*after, b) = planted["no workers"], planted["fork"]
    found = comparison.compare(a.manifest.run_id, b.manifest.run_id, planted.place.results)
    assert len(found.found.cells) == 1
    pace = []
    for clock, report in (before, after):
        steps = report["pacing"]["steps"]  # those after the warm-up
        pace.append(steps / sum(clock["walls"][-steps:]))
    assert found.found.cells["ratio"].iloc[0] == pytest.approx(pace[1] / pace[0], rel=0.1)
    assert ("num_workers", 0, 2) in [tuple(change) for change in found.found.changed]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("runs"))


@slow
def test_headspace_measures_the_step_and_the_loader_alone(place: Place) -> None:
    """After --steps real batches it gives the step without loader and the loader without step, and says the cost."""
    words = ["--workers", "2", "--sample-ms", "4", "--batch", "4", "--step-ms", "16", "--steps", "400"]
    done = place.python(place.planted(), *words, options=("--headspace", "--steps", "30"))
    assert (done.status, done.out) == (0, b"")
    assert place.report["account"]["steps"] == 30
    alone = place.report["headspace"]
    assert 0.7 < alone["compute"] * 0.016 < 1.02  # a sleep is never too short, and longer where the machine is busy
    assert 0.7 < alone["load"] * 0.008 < 1.1
    assert "the script's weights are spoiled" in done.err
    run = runs.runs(place.results)[-1]
    assert set(run.table("trials")["mode"]) == {"train", "compute", "load"}
    assert validator.check(run.folder, place.results).valid


@slow
def test_json_goes_to_stdout_behind_the_scripts_own(place: Place) -> None:
    """With --json - what the script printed comes first, then one JSON object, and a signal does not lose it."""
    text = "print('of the script', flush=True)\nfor _ in feedrate.watch(range(20)):\n    pass\n"
    script = place.script(text + "os.kill(os.getpid(), signal.SIGTERM)\n", torch=False)
    done = place.python(script, options=("--json", "-"))
    assert done.status == 143, done.err
    first, _, rest = done.out.partition(b"\n")
    assert first == b"of the script"
    report = json.loads(rest)
    assert report["status"] == "killed by SIGTERM"
    assert report["loader"]["steps"] == 20


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --epochs 3", "train.py"),
        ("python -u src/my train.py", "train.py"),
        ("torchrun --nproc-per-node 2 /home/me/fit.py", "fit.py"),
        ("python -m kit.train", "kit.train"),
        ("fit-a-model --fast", "fit-a-model"),
    ],
)
def test_a_script_is_called_by_its_file(command: str, name: str) -> None:
    """Runs of one script have one name, whatever starts it; folders of the user's are no part of it."""
    assert script_name(command.split()) == name


@slow
def test_ranks_are_told_apart(place: Place) -> None:
    """Below torchrun every rank is measured, and the report is of the one that waits most."""
    text = """
def batches():
    for batch in range(60):
        time.sleep(0.005 + 0.005 * int(os.environ["RANK"]))
        yield batch

waits, asked = [], [time.perf_counter()]
for batch in feedrate.watch(batches()):
    waits.append(time.perf_counter() - asked[-1])
    time.sleep(0.01)
    asked.append(time.perf_counter())
print([waits, asked])
"""
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", place.script(text, torch=False)]
    done = place.python(*words)
    assert done.status == 0, done.err
    assert [rank for rank, _ in place.report["ranks"]] == [0, 1]
    assert "2 processes; each waits for data" in done.err
    shares = [pace["wait_share"]["value"] for _, pace in place.report["ranks"]]
    assert place.report["pacing"]["wait_share"]["value"] == max(shares)
    steps, clocks = place.report["pacing"]["steps"], [json.loads(line) for line in done.out.splitlines()]
    own = sorted(sum(waits[-steps:]) / (asked[-1] - asked[-1 - steps]) for waits, asked in clocks)
    assert sorted(shares) == pytest.approx(own, abs=0.02)
    assert set(runs.runs(place.results)[-1].table("trials")["world_size"]) == {2}
