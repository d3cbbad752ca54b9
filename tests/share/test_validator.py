"""Files of others: what feedrate writes passes, what somebody changed is refused, and no file harms its reader."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import many_runs
import pyarrow.parquet as pq
import pytest
from beside import times
from click.testing import Result
from typer.testing import CliRunner

from feedrate.cli import app
from feedrate.plan.options import SweepOptions
from feedrate.schema.columns import SCHEMA_VERSION
from feedrate.schema.plugins import ROOT
from feedrate.share import findings, parquet, rules, validator
from feedrate.store import marks, runs

STRANGE = "0123456789ab"
"""The id of no cell."""
HOSTILE = ("<script>alert(1)", "a b", "../../etc/passwd", "$(reboot)", "train.py;id", "x" * 61, "é.py")


def once(change: Callable[[Any], Any]) -> Any:
    """Change the first value of a column that is there."""

    def new(values: list[Any]) -> list[Any]:
        at = next(place for place, value in enumerate(values) if value is not None)
        return [*values[:at], change(values[at]), *values[at + 1 :]]

    return new


def every(value: Any) -> Any:
    """Put one value in the place of all that are there."""
    return lambda values: [None if one is None else value for one in values]


def twice(values: list[Any]) -> list[Any]:
    return [values[0], values[0], *values[2:]]


def said(folder: Path, *, in_place: bool = False) -> str:
    """What is wrong with a run: in plain text where, what was found, what was expected, what to do."""
    for finding in rules.judge(folder, in_place=in_place).findings:
        assert all((finding.where, finding.got, finding.expected, finding.advice))
        assert str(finding).isprintable()
        return str(finding)
    return ""


def test_what_feedrate_writes_is_valid(sources: dict[str, Path]) -> None:
    """Sweeps, scripts and searches, a file of trials alone, and every run under results/."""
    found = rules.judge(sources["sweep"] / "trials.parquet")
    count = pq.read_metadata(sources["sweep"] / "trials.parquet").num_rows
    assert (found.run_id, found.rows) == (sources["sweep"].name, count)
    kept = runs.folders(ROOT / "results")
    assert kept
    for folder in (*sources.values(), *kept):
        assert said(folder, in_place=True) == "", folder


VALUES: list[tuple[str, str, str, Any, str]] = [
    ("sweep", "trials", "outcome", once(lambda _: None), "in every row"),
    ("sweep", "trials", "half_ratio", once(lambda _: float("nan")), "expected numbers"),
    ("sweep", "telemetry", "load_1m", once(lambda _: float("inf")), "0 to 9.0072e+15"),
    ("sweep", "trials", "startup_ns", once(lambda _: 2**62), "0 to 9.0072e+15"),
    ("sweep", "trials", "cpu_util_pct", once(lambda _: 102.0), "102; expected 0 to 101"),
    ("sweep", "steps", "fetch_ns", once(lambda _: -1), "-1; expected 0 to"),
    ("sweep", "trials", "run_id", every("../../../etc/passwd"), "what the manifest says"),
    ("sweep", "trials", "device", every("cuda"), "what the manifest says"),
    ("sweep", "trials", "suite", every("other"), "what the manifest says"),
    ("sweep", "trials", "data_hash", every("f" * 16), "what the manifest says"),
    ("sweep", "trials", "started_at", once(lambda _: "yesterday"), "'yesterday'; expected a text such as"),
    ("sweep", "trials", "started_at", every("2030-01-02T03:04:05Z"), "a trial outside of its run"),
    ("sweep", "trials", "flags", lambda values: ["none,of,these", *values[1:]], "a text such as (?:foreign_cpu|"),
    ("sweep", "trials", "error_message", once(lambda text: f"{text}\x1b[31m"), "one short line of plain text"),
    ("sweep", "trials", "error_message", once(lambda _: "x" * 501), "one short line of plain text"),
    ("sweep", "trials", "error_kind", once(lambda _: "a\u202eb"), "one short line of plain text"),
    ("sweep", "trials", "position", once(lambda value: value + 500), "run_id, block and position, joined"),
    ("sweep", "trials", "block position trial_id", twice, "one at each place of a block"),
    ("sweep", "trials", "cell_id", every("<script>alert(1)"), "by its axes"),
    ("sweep", "trials", "num_workers", once(lambda value: value + 1), "by its axes"),
    ("sweep", "trials", "storage_format", every("zip"), "one of"),
    ("stored", "trials", "memory_limit_mib", every(0), "by its axes"),
    ("sweep", "trials", "error_kind", once(lambda _: None), "a kind where a trial failed"),
    ("sweep", "trials", "samples_per_s", once(lambda _: None), "a value where a window was timed"),
    ("sweep", "trials", "fact", lambda values: [True, *values[1:]], "a value where a check ended well"),
    ("sweep", "trials", "host_h2d_ns", lambda values: [5, *values[1:]], "nothing, on a CPU"),
    ("sweep", "trials", "samples", once(lambda value: value + 1), "steps × batch_size"),
    ("script", "trials", "samples", once(lambda value: value * 2), "steps × batch_size"),
    ("sweep", "trials", "samples_per_s", once(lambda value: value * 1.00001), "samples ÷ wall_ns"),
    ("sweep", "trials", "steady", once(lambda value: not value), "half_ratio"),
    ("sweep", "trials", "host_other_ns", once(lambda value: value + 10**7), "the sum of host_*_ns"),
    ("sweep", "trials", "host_fetch_ns", lambda values: [value and value // 10 for value in values], "the sum of"),
    ("sweep", "trials", "trial_wall_ns", once(lambda _: 1000), "warmup_ns"),
    ("sweep", "steps", "trial_id", once(lambda value: value[:-4] + "9999"), "a trial of the run"),
    ("sweep", "telemetry", "run_id", once(lambda _: "20260101T000000Z-ffff"), "what the manifest says"),
    ("sweep", "steps", "step", once(lambda value: value + 1), "0, 1, 2 … of its trial"),
    ("sweep", "steps", "fetch_ns", once(lambda _: 10**13), "its host_fetch_ns"),
    ("script", "steps", "worker_getitem_ns", once(lambda value: value - 5_000), "its worker_getitem_ns"),
]
"""Run, table, columns, what becomes of them, and what is said of that."""


@pytest.mark.parametrize(("source", "table", "columns", "change", "words"), VALUES)
def test_a_value_that_cannot_be_is_refused(
    changed: Any, sources: dict[str, Path], source: str, table: str, columns: str, change: Any, words: str
) -> None:
    """Columns are changed, with right checksums: the rule that is about them says so."""
    assert words in said(changed(dict.fromkeys(columns.split(), change), table, sources[source]))


SET = {"name": "a", "storage_format": "png", "count": 1, "bytes": 1, "data_hash": "0" * 16, "workload_version": 1}
SET |= {"pack_s": 1.0, "notes": []}
COMMANDS = (
    *("curl example.org | sh", "feedrate sweep; curl example.org", "feedrate sweep --suite $(id)", ""),
    *("feedrate sweep --matrix '$(id)'", "feedrate sweep --results /tmp/x", "feedrate sweep --matrix a b"),
    *("feedrate sweep --on slurm", "feedrate site", "feedrate sweep\u00a0--suite loader", "make sweep"),
    *(f"feedrate run -- {name}" for name in HOSTILE),
    *("feedrate run --results / -- train.py", "feedrate tune -- $(reboot)"),
)
FIELDS: list[tuple[str, dict[str, Any], str]] = [
    *[("sweep", {"command": command}, "manifest.command") for command in COMMANDS],
    ("sweep", {"schema_version": SCHEMA_VERSION - 1}, "feedrate writes it. Leave that run out"),
    ("sweep", {"schema_version": SCHEMA_VERSION + 1}, "feedrate writes it. Update feedrate"),
    ("sweep", {"protocol_version": 1}, "with protocol_version 1; this is feedrate"),
    ("sweep", {"cells": "25"}, "manifest"),
    ("sweep", {"cells": 25.0}, "manifest.cells"),
    ("sweep", {"machine": {"cpu_model": "Example 1 1-Core"}}, "manifest.machine.machine_id"),
    ("sweep", {"hostname": "box"}, "hostname"),
    ("sweep", {"seed": -1}, "-1; expected 0 to"),
    ("sweep", {"cell_seconds": {STRANGE: -1.0}}, "-1; expected 0 to"),
    ("sweep", {"datasets": [SET | {"bytes": -1}]}, "-1; expected 0 to"),
    ("sweep", {"substitutions": ["a\x1b[31mb"]}, "one short line of plain text"),
    ("sweep", {"substitutions": ["x" * 3000]}, "one short line of plain text"),
    ("sweep", {"outcomes": {"ok": 185, "<b>x": 3}}, "names of fields"),
    ("sweep", {"suites": {"y/../..": []}}, "names of fields"),
    ("sweep", {"suites": {"loader": [{"<b>": [1]}]}}, "names of fields"),
    ("sweep", {"stop_reason": "=HYPERLINK(1)"}, "manifest.stop_reason"),
    ("sweep", {"control": "../.."}, "manifest.control"),
    ("sweep", {"datasets": [SET | {"name": "../x"}]}, "manifest.datasets.0.name"),
    ("sweep", {"outcomes": {"ok": 1}}, "by the rows"),
    ("sweep", {"blocks": 99}, "the blocks that have trials"),
    ("sweep", {"cells": 1}, "the cells of its rows"),
    ("sweep", {"cell_seconds": {STRANGE: 1.0}}, "the mean of the cell's trials"),
    ("sweep", {"ended_at": "2999-01-01T00:00:00Z"}, "a day in the future at most"),
    ("sweep", {"ended_at": "2026-13-45T99:99:99Z"}, "a day in the future at most"),
    ("script", {"command": "feedrate run -- other.py"}, "those of feedrate run -- other.py"),
    ("script", {"command": "feedrate sweep"}, "those of feedrate sweep"),
    ("script", {"suites": {"script": {}, "loader": {}}}, "those of feedrate run -- train.py"),
    ("search", {"tuned": []}, "those of feedrate tune -- train.py"),
    ("search", {"tuned": {"recommended": STRANGE}}, "cells of its trials"),
    ("search", {"tuned": {"audits": [{"cell_id": STRANGE, "predicted": 0.5, "measured": 0.5}]}}, "cells of its trials"),
    ("search", {"tuned": {"trials": 3}}, "by the rows"),
    ("search", {"tuned": {"bound_pct": 99.0, "known": True}}, "false, by bound_pct over within_pct"),
]
"""Run, fields of its manifest, and what is said of them; those of ``machine`` and ``tuned`` are some of all there."""


@pytest.mark.parametrize(("source", "fields", "words"), FIELDS, ids=str)
def test_a_manifest_that_cannot_be_is_refused(
    changed: Any, sources: dict[str, Path], source: str, fields: dict[str, Any], words: str
) -> None:
    """Fields are changed with right checksums: the finding names the field, or says what the rows say."""
    whole = json.loads((sources[source] / "run.json").read_text())
    if "machine" in fields:
        fields = {"machine": whole["machine"] | fields["machine"]}
    if isinstance(fields.get("tuned"), dict):
        fields = {"tuned": [whole["tuned"][0] | fields["tuned"]]}
    assert words in said(changed({}, source=sources[source], **fields))


def chunk_elsewhere(file: bytes, raw: ModuleType) -> bytes:
    footer = raw.footer_of(file)
    raw.chunks(footer)[0].update({9: (raw.I64, 2**40), 11: (raw.I64, 2**40)})
    return bytes(raw.closed(file, footer))


def without_rows(table: Any) -> bytes:
    pq.ParquetWriter(sink := io.BytesIO(), table.schema).close()
    return sink.getvalue()


BYTES: dict[str, Callable[[bytes, Any, ModuleType], bytes]] = {
    "a parquet file": lambda file, _, __: file[:-1],
    "no wall_ns (int64)": lambda _, table, corpus: corpus.written(table.drop_columns(["wall_ns"])),
    "checksum": lambda file, _, corpus: corpus.damaged(file, "worker_collate_ns", random.Random(3)),
    "pages with checksums": lambda _, table, corpus: corpus.written(table, write_page_checksum=False),
    "a footer that contradicts the file": lambda file, _, corpus: chunk_elsewhere(file, corpus.raw),
    "one trial at least": lambda _, table, __: without_rows(table),
    "at most 268,435,456": lambda file, _, __: file + bytes(findings.FILE_BYTES.most),
}
"""What is said, and what makes a file of trials deserve it."""


@pytest.mark.slow
@pytest.mark.parametrize("words", BYTES)
def test_a_file_that_is_not_as_it_was_written_is_refused(
    valid: bytes, corpus: ModuleType, tmp_path: Path, words: str
) -> None:
    """Its structure, its bytes, its manifest or its rows were touched: that is said."""
    (tmp_path / "trials.parquet").write_bytes(BYTES[words](valid, corpus.read(valid), corpus))
    assert words in said(tmp_path / "trials.parquet")


def test_a_folder_holds_a_run_and_nothing_else(run: Path, tmp_path: Path) -> None:
    """A file more or less, a link, another manifest in run.json, another name: refused, and so is what is no file."""

    def copy(name: str) -> Path:
        folder = tmp_path / name / run.parent.name / run.name
        shutil.copytree(run, folder)
        return folder

    more, less, link, other, named = map(copy, ("more", "less", "link", "other", "named"))
    (more / "setup.py").write_text("raise SystemExit")
    (less / "steps.parquet").unlink()
    (link / "steps.parquet").unlink()
    (link / "steps.parquet").symlink_to(run / "steps.parquet")
    (other / "run.json").write_text((run / "run.json").read_text().replace('"seed": 7', '"seed": 8'))
    named = named.rename(named.with_name("20260102T030405Z-othr"))
    (tmp_path / "whole").symlink_to(run)
    os.mkfifo(tmp_path / "pipe")
    paths = (more, less, link, other, named, tmp_path / "whole", tmp_path / "pipe", Path("/dev/zero"), Path("/"))
    wanted = "'setup.py'|no steps.parquet|a link|several manifests|Move it there|a link|a device|a device|alone"
    for path, words in zip(paths, wanted.split("|"), strict=True):
        assert words in said(path, in_place=True)


def test_every_command_that_is_written_is_accepted(run: Path, tmp_path: Path) -> None:
    """What feedrate writes for any options passes."""
    whole = json.loads((run / "run.json").read_text())
    given = {"matrix": tmp_path / "my_matrix-2.yaml", "profile": "gpu", "suite": "storage", "budget": "1.5h"}
    many = SweepOptions(**given, data=tmp_path, data_root=tmp_path, tune=True)
    together = replace(many, on="slurm", nodes=64, together=True)
    spaced = SweepOptions(matrix=Path("my matrix.yaml"), budget="8m20s")
    for options in (SweepOptions(), many, together, replace(together, on="local"), spaced):
        parquet.check_fields(whole | {"command": options.command(), "profile": options.profile}, "manifest")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"seconds": 0.01}, "it takes longer than 0.01 s"),
        ({"memory_bytes": 2**24}, "it takes more than 16 MiB of memory"),
    ],
)
def test_a_file_that_takes_too_much_is_refused(
    valid: bytes, corpus: ModuleType, tmp_path: Path, limits: Any, words: str
) -> None:
    """Of time or of memory; the next one is looked at all the same."""
    _, data = next(corpus.KINDS["bombs"](valid, random.Random(3)))
    (tmp_path / "trials.parquet").write_bytes(data)
    (tmp_path / "no").touch()
    asked = [(tmp_path / "trials.parquet", False), (tmp_path / "no", False)]
    first, second = validator.judged(asked, **limits)
    assert words in str(first.findings[0])
    assert second.path == str(tmp_path / "no")


@pytest.mark.slow
def test_the_command_says_what_is_wrong(results: list[Path], tmp_path: Path) -> None:
    """A refused file or a path that names nothing leaves with 2; --json says the same to machines.

    A mark stands for its run, and a copy below another machine is refused.
    """
    folder = results[0].parents[1]

    def validate(*words: object) -> Result:
        return CliRunner().invoke(app, ["validate", *map(str, words), "--results", str(folder)])

    text = validate(results[0], marks.mark_file(results[0], "tier"), tmp_path / "no")
    assert [line.split()[0] for line in text.output.splitlines() if results[0].name in line] == ["valid"]
    assert "1 valid, 1 refused." in text.output
    assert findings.UNCHANGED in text.output
    shutil.copytree(results[0], folder / "z-other-machine" / results[0].name)
    (tmp_path / "empty").mkdir()
    printed = validate(folder, tmp_path / "no", tmp_path / "empty", "--json")
    assert (text.exit_code, printed.exit_code) == (2, 2)
    report = json.loads(printed.output)
    assert (report["valid"], report["refused"]) == (2, 4)
    assert [file["valid"] for file in report["files"]] == [True, False, True, False, False, False]
    (finding, *_), moved, *none = [file["findings"] for file in report["files"] if not file["valid"]]
    assert {"where", "got", "expected", "advice"} == set(finding)
    assert moved[0]["advice"] == "Move it there"
    assert [file[0]["got"] for file in none] == ["a link, a folder, a device or nothing", "no run.json"]


@pytest.mark.slow
def test_only_runs_that_can_be_trusted_are_shown(results: list[Path], fake_run: ModuleType, tmp_path: Path) -> None:
    """In their order; each other one is refused with its reason, and nobody takes over another's page.

    Refused are one that breaks a rule, a copy below another machine, a link, an id that two machines claim, and a run
    beside which a file is damaged.
    """
    first, wrong, third = results
    root, linked = first.parents[1], tmp_path / "linked" / first.parent.name / first.name
    fakes = [fake_run.Fake(run_id=f"2026020{day}T030405Z-fake", blocks=1, batches=(8,)) for day in range(1, 4)]
    claimed, long, torn, forged = (fake_run.write(root, fake) for fake in (*fakes, replace(fakes[0], cores=64)))
    copy = shutil.copytree(third, root / "other-machine" / third.name)
    linked.parents[1].mkdir()
    linked.parent.symlink_to(first.parent)
    marks.label(first, "Workstation")
    marks.mark_file(long, "label").write_text(" " * (marks.FILE_MOST + 1))
    marks.mark_file(torn, "withdrawn").write_text("{")
    wanted = {
        wrong: "wall_ns",
        **dict.fromkeys((copy, linked), "Move it there"),
        **dict.fromkeys((claimed, forged), "under another machine too"),
        long: f"{long.name}.label.json: 8,193 bytes; expected a plain file of at most 8,192 bytes",
        torn: f"{torn.name}.withdrawn.json: the whole: Invalid JSON",
    }
    admitted = validator.admit([first, *wanted, third])
    assert admitted.folders == (first, third)
    assert [one.path for one in admitted.refused] == list(map(str, wanted))
    for refused, words in zip(admitted.refused, wanted.values(), strict=True):
        assert words in str(refused.findings[0])
    assert validator.admit([]).folders == ()


@pytest.mark.slow
def test_time_grows_as_rows_do_and_memory_has_an_end(tmp_path: Path) -> None:
    """50,000 trials take at most 15 times the processor time of 5,000, and 256 MiB."""
    many_runs.write(tmp_path / "one", 1)
    (one,) = (tmp_path / "one").glob("*/*/trials.parquet")
    small, large = tmp_path / "small.parquet", tmp_path / "large.parquet"
    many_runs.write_repeated(one, 5_000, small)
    many_runs.write_repeated(one, 50_000, large)

    def judged(path: Path) -> float:
        begun = time.process_time()
        assert rules.judge(path).valid
        return time.process_time() - begun

    assert times(lambda: judged(large), lambda: judged(small), 15) <= 15
    (result,) = validator.judged([(large, False)], memory_bytes=2**28)
    assert (result.rows, result.findings) == (50_000, ())
