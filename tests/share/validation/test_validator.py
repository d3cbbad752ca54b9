"""Every rule for files of others: what keeps to it passes, what breaks it is refused by its name."""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feedrate.schema import redaction
from feedrate.schema.columns import SCHEMA_VERSION
from feedrate.schema.plugins import ROOT
from feedrate.share.validation import manifest, parquet, row_rules, run_rules, validator
from feedrate.share.validation.findings import Finding, Validated, quote
from feedrate.share.validation.parquet import Rows
from feedrate.store import runs as store_runs


def once(change: Callable[[Any], Any], where: Callable[[Any], bool] = lambda value: value is not None) -> Any:
    """Change the first value of a column that is there."""

    def new(values: list[Any]) -> list[Any]:
        at = next(place for place, value in enumerate(values) if where(value))
        return [*values[:at], change(values[at]), *values[at + 1 :]]

    return new


def every(change: Callable[[Any], Any]) -> Any:
    """Change all values of a column that are there."""
    return lambda values: [None if value is None else change(value) for value in values]


def rules(validated: Validated) -> list[str]:
    """The rules that refuse a file; each says where, what and what was expected."""
    assert all(finding.where and finding.got and finding.expected for finding in validated.findings)
    return [finding.rule for finding in validated.findings]


def test_a_run_as_it_was_written_is_valid(run: Path) -> None:
    """A folder, and its file of trials alone, keep to every rule, and say which run they are."""
    for path in (run, run / "trials.parquet"):
        found = validator.judge(path)
        assert found.findings == ()
        assert (found.valid, found.run_id, found.machine_id) == (True, run.name, run.parent.name)
        assert found.rows == pq.read_metadata(run / "trials.parquet").num_rows


def test_committed_runs_are_valid() -> None:
    """Every run under results/ keeps to every rule, whatever version wrote it."""
    runs = store_runs.runs(ROOT / "results")
    assert runs
    assert [validator.judge(run.folder, in_place=True).findings for run in runs] == [()] * len(runs)


BROKEN_VALUES: list[tuple[str, str, Any]] = [
    ("present", "trial_id", once(lambda _: None)),
    ("present", "outcome", once(lambda _: None)),
    ("finite", "half_ratio", once(lambda _: float("nan"))),
    ("finite", "samples_per_s", once(lambda _: float("inf"))),
    ("range", "wall_ns", once(lambda _: -1)),
    ("range", "startup_ns", once(lambda _: 2**62)),
    ("range", "cpu_util_pct", once(lambda _: 101.0)),
    ("range", "gpu_util_pct", lambda values: [-1.0, *values[1:]]),
    ("name", "run_id", every(lambda _: "../../../etc/passwd")),
    ("name", "trial_id", once(lambda value: f"{value}/..")),
    ("name", "cell_id", every(lambda _: "<script>alert(1)")),
    ("name", "started_at", once(lambda _: "yesterday")),
    ("name", "outcome", once(lambda _: "splendid")),
    ("name", "flags", once(lambda _: "none,of,these", where=lambda _: True)),
    ("name", "suite", once(lambda _: "Lo ader")),
    ("free_text", "error_message", once(lambda value: f"{value}\x1b[31m")),
    ("free_text", "error_message", once(lambda _: "x" * 501)),
    ("free_text", "error_kind", once(lambda _: "a\u202eb")),
    ("of_run", "run_id", once(lambda _: "20260101T000000Z-ffff")),
    ("of_run", "machine_id", every(lambda _: "other-16c-00000000")),
    ("of_run", "device", every(lambda _: "cuda")),
    ("of_run", "protocol_version", every(lambda value: value + 1)),
    ("trial_id", "position", once(lambda value: value + 500)),
    ("cell", "cell_id", every(lambda _: "0123456789ab")),
    ("cell", "batch_size", once(lambda value: value * 2)),
    ("cell", "storage_format", every(lambda _: "zip")),
    ("outcome", "outcome", once(lambda _: "oom", where=lambda value: value == "ok")),
    ("outcome", "error_kind", once(lambda _: None)),
    ("outcome", "samples_per_s", once(lambda _: None)),
    ("samples", "samples", once(lambda value: value + 1)),
    ("rate", "samples_per_s", once(lambda value: value * 1.00001)),
    ("phases", "host_other_ns", once(lambda value: value + 10**7)),
    ("phases", "host_fetch_ns", every(lambda value: value // 10)),
    ("worked", "worker_collate_ns", once(lambda value: value * 140)),
    ("steady", "steady", once(lambda value: not value)),
    ("whole", "trial_wall_ns", once(lambda _: 1000)),
    ("clock", "started_at", every(lambda _: "2030-01-02T03:04:05Z")),
    ("named", "data_hash", every(lambda _: "f" * 16)),
    ("named", "suite", every(lambda _: "other")),
    ("device", "host_h2d_ns", lambda values: [5, *values[1:]]),
]
"""Rule, column, and what becomes of it."""
BROKEN_FIELDS: list[tuple[str, str, Any]] = [
    ("outcomes", "outcomes", {"ok": 1}),
    ("blocks", "blocks", 99),
    ("cells", "cells", 1),
    ("cell_seconds", "cell_seconds", {"0123456789ab": 1.0}),
    ("clock", "ended_at", "2999-01-01T00:00:00Z"),
    ("named", "datasets", []),
    ("version", "schema_version", SCHEMA_VERSION + 1),
    ("manifest_name", "cluster", {"sweep": "../nodes", "node": 0, "nodes": 2, "together": False}),
    ("manifest_range", "cluster", {"sweep": "20260101T000000Z-0a1b", "node": 0, "nodes": 10**7, "together": False}),
]
"""Rule, field of the manifest, and its value."""
BROKEN_TRACES: list[tuple[str, str, str, Any]] = [
    ("range", "steps", "fetch_ns", once(lambda _: -1)),
    ("trace_of_run", "steps", "trial_id", once(lambda value: value[:-4] + "9999")),
    ("trace_order", "steps", "step", once(lambda value: value + 1)),
    ("sums", "steps", "fetch_ns", once(lambda _: 10**13)),
    ("worker", "steps", "worker", once(lambda value: value + 9)),
    ("stages", "steps", "worker_begun_ns", once(lambda value: value + 2_000)),
    ("stages", "steps", "worker_read_ns", once(lambda value: value + 2_000)),
    ("trace_of_run", "telemetry", "run_id", once(lambda _: "20260101T000000Z-ffff")),
    ("trace_order", "telemetry", "t_ns", once(lambda _: 10**14)),
    ("finite", "telemetry", "load_1m", once(lambda _: float("nan"))),
]
"""Rule, table, column, and what becomes of it."""


@pytest.mark.parametrize(("rule", "column", "change"), BROKEN_VALUES)
def test_a_value_that_breaks_a_rule_is_refused_by_it(changed: Any, rule: str, column: str, change: Any) -> None:
    """One column is changed; the rule that is about it refuses the file, and says where."""
    assert rules(validator.judge(changed({column: change}) / "trials.parquet"))[:1] == [rule]


@pytest.mark.parametrize(("rule", "field", "value"), BROKEN_FIELDS)
def test_a_field_that_breaks_a_rule_is_refused_by_it(changed: Any, rule: str, field: str, value: Any) -> None:
    """One field of the manifest is changed; the rule that is about it refuses the file, and says where."""
    assert rules(validator.judge(changed(**{field: value}) / "trials.parquet"))[:1] == [rule]


@pytest.mark.parametrize(("rule", "table", "column", "change"), BROKEN_TRACES)
def test_steps_and_samples_are_held_against_their_trials(
    changed: Any, rule: str, table: str, column: str, change: Any
) -> None:
    """A step or a sample that its trial cannot have refuses the run."""
    found = validator.judge(changed({column: change}, table))
    assert rules(found)[:1] == [rule]
    assert f"{table}.parquet" in found.findings[0].where


def test_no_two_trials_have_one_place(changed: Any) -> None:
    """A trial that is there twice refuses the file."""
    twice = {name: lambda values: [values[0], values[0], *values[2:]] for name in ("block", "position", "trial_id")}
    assert rules(validator.judge(changed(twice) / "trials.parquet"))[:1] == ["once"]


def test_a_folder_holds_a_run_and_nothing_else(run: Path, tmp_path: Path) -> None:
    """A file more or less, a link, another manifest in run.json, another name: refused."""

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
    found = [validator.judge(path, in_place=True) for path in (more, less, link, other, named, tmp_path / "whole")]
    assert [rules(each)[0] for each in found] == [
        *("folder", "folder", "plain_file", "same_manifest", "place", "plain_file")
    ]
    assert "setup.py" in found[0].findings[0].got


def written(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **({"compression": "zstd", "write_page_checksum": True} | options))
    return sink.getvalue()


def without_rows(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.ParquetWriter(sink, table.schema, write_page_checksum=True).close()
    return sink.getvalue()


def on_other_machine(table: pa.Table) -> pa.Table:
    fields = json.loads(table.schema.metadata[b"feedrate"])
    fields["machine"]["cpu_model"] = "Example 1 1-Core"
    return table.replace_schema_metadata({b"feedrate": json.dumps(fields).encode()})


def chunk_elsewhere(file: bytes, raw: ModuleType) -> bytes:
    footer = raw.footer_of(file)
    raw.chunks(footer)[0].update({9: (raw.I64, 2**40), 11: (raw.I64, 2**40)})
    return bytes(raw.closed(file, footer))


def bytes_of_noise(file: bytes, raw: ModuleType) -> bytes:
    """A page that cannot be decompressed, with the right checksum of what it holds."""
    footer = raw.footer_of(file)
    chunk = raw.chunks(footer)[0]
    begin, size = raw.place(chunk)
    reader = raw.Reader(file, begin)
    header = reader.struct()
    body = b"\xff" * 4 + file[reader.at + 4 : reader.at + header[3][1]]
    header[4] = (raw.I32, raw.checksum(body))
    rest = file[reader.at + len(body) : begin + size]
    return bytes(raw.repointed(file, footer, chunk, raw.struct(header) + body + rest))


BROKEN_FILES: dict[str, Callable[[bytes, pa.Table, ModuleType], bytes]] = {
    "parquet": lambda file, _, __: file[:-1],
    "column": lambda _, table, __: written(table.drop_columns(["wall_ns"])),
    "decodes": lambda file, _, raw: bytes_of_noise(file, raw),
    "checksums": lambda _, table, __: written(table, write_page_checksum=False),
    "chunks": lambda file, _, raw: chunk_elsewhere(file, raw),
    "codec": lambda _, table, __: written(table, compression="gzip"),
    "machine_id": lambda _, table, __: written(on_other_machine(table)),
    "some_trials": lambda _, table, __: without_rows(table),
}
"""Rule, and what makes a file of trials break it."""


@pytest.mark.parametrize("rule", BROKEN_FILES)
def test_a_file_that_is_not_as_it_was_written_is_refused(
    valid: bytes, corpus: ModuleType, tmp_path: Path, rule: str
) -> None:
    """Its structure, its compression, its manifest or its rows were touched: the rule about that refuses it."""
    table = pq.read_table(io.BytesIO(valid))
    (tmp_path / "trials.parquet").write_bytes(BROKEN_FILES[rule](valid, table, corpus.raw))
    assert rules(validator.judge(tmp_path / "trials.parquet")) == [rule]


@pytest.mark.parametrize("table", ["trials", "steps", "telemetry"])
def test_bytes_that_changed_since_are_refused(run: Path, corpus: ModuleType, tmp_path: Path, table: str) -> None:
    """64 other bytes in a page of any table fail its checksum, whatever they decode to, and the message says so."""
    name = {"trials": "worker_collate_ns", "steps": "worker_collate_ns", "telemetry": "load_1m"}[table]
    folder = tmp_path / run.parent.name / run.name
    shutil.copytree(run, folder)
    file = folder / f"{table}.parquet"
    file.write_bytes(corpus.damaged(file.read_bytes(), name, random.Random(3)))
    found = validator.judge(folder)
    assert rules(found) == ["decodes"]
    assert "checksum" in found.findings[0].got


def test_stages_may_miss_by_what_rounding_leaves(changed: Any) -> None:
    """What stages take is held against a batch's beginning and end to the microsecond, and no closer."""
    assert validator.judge(changed({"worker_begun_ns": every(lambda value: value + 900)}, "steps")).valid


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_had_so_much_time_and_no_more(changed: Any, run: Path, workers: int) -> None:
    """As much as all workers together had since the loader's start is believed, and a millisecond more is not."""
    trials = pq.read_table(run / "trials.parquet").to_pandas()
    parts = ["wall_ns", "warmup_ns", "startup_ns", "compile_ns"]
    room = trials[parts].fillna(0).sum(axis=1) * trials["num_workers"].clip(lower=1)
    stages = [f"worker_{stage}_ns" for stage in ("read", "decode", "transform")]
    left = (room - trials[stages].fillna(0).sum(axis=1)).tolist()
    whose = (trials["num_workers"].eq(workers) & trials["worker_collate_ns"].notna()).tolist()
    assert any(whose)

    def filled(more: int) -> Callable[[list[Any]], list[Any]]:
        return lambda values: [
            int(space) + more if own else value for value, space, own in zip(values, left, whose, strict=True)
        ]

    found = validator.judge(changed({"worker_collate_ns": filled(0)}) / "trials.parquet")
    assert found.valid
    shutil.rmtree(Path(found.path).parent)
    assert rules(validator.judge(changed({"worker_collate_ns": filled(10**6)}) / "trials.parquet")) == ["worked"]


def test_a_machine_has_what_it_can_have(fake_run: ModuleType, tmp_path: Path) -> None:
    """A machine of more cores than there can be is refused, though its id is right."""
    fake = fake_run.Fake(blocks=1, batches=(8,), cores=5000)
    assert rules(validator.judge(fake_run.write(tmp_path, fake))) == ["facts"]


def test_halves_are_computed_anew(
    fake_run: ModuleType, changed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all steps of a window are there, a ratio of its halves that they do not give is refused."""
    monkeypatch.setattr(sys.modules["fake_trial"], "STEPS_KEPT", sys.modules["fake_trial"].STEPS)
    source = fake_run.write(tmp_path / "source", fake_run.Fake(blocks=1, batches=(8,)))
    assert validator.judge(source).valid
    found = validator.judge(changed({"half_ratio": every(lambda _: 1.04)}, source=source))
    assert found.valid, "within what stamps leave open"
    shutil.rmtree(found.path)
    halves = {"half_ratio": every(lambda _: 1.5), "steady": every(lambda _: False)}
    assert rules(validator.judge(changed(halves, source=source))) == ["half_ratio"]


@pytest.mark.parametrize("least", [0.79, None, 0.81])
def test_cold_trials_have_read_their_samples(
    fake_run: ModuleType, changed: Any, tmp_path: Path, least: float | None
) -> None:
    """One that read less in its window, or does not say, is refused; before protocol 2 nobody had to prove it."""
    fake = fake_run.Fake(blocks=1, formats=("png", "lmdb"), states=("warm", "cold"))
    source = fake_run.write(tmp_path / "source", fake)
    read = {"read_bytes": every(lambda value: least and value and int(value * least))}
    found = validator.judge(changed(read, source=source))
    assert rules(found) == ([] if least == 0.81 else ["cold"])
    shutil.rmtree(found.path)
    read["protocol_version"] = every(lambda _: 1)
    assert validator.judge(changed(read, source=source, protocol_version=1)).valid


@pytest.mark.parametrize(("cached_pct", "access", "valid"), [(80, "random", False), (99, "sequential", True)])
def test_cold_trials_left_the_rest_on_the_disk(
    fake_run: ModuleType, changed: Any, tmp_path: Path, cached_pct: float, access: str, valid: bool
) -> None:
    """What was not read lies in memory: refused in random order; in the disk's own it comes next."""
    source = fake_run.write(tmp_path / "source", fake_run.Fake(blocks=1, formats=("png",), states=("cold",)))
    orders = pq.read_table(source / "trials.parquet")["access"].to_pylist()
    assert access in orders

    def cached(values: list[float]) -> list[float]:
        return [
            max(value, cached_pct) if order == access else value for value, order in zip(values, orders, strict=True)
        ]

    found = validator.judge(changed({"cached_after_pct": cached}, source=source))
    assert rules(found) == ([] if valid else ["cold"])


@pytest.mark.parametrize(("column", "value"), [(None, 0), ("read_bytes", 0), ("cached_after_pct", 100.0)])
def test_a_full_memory_did_not_hold_all(
    fake_run: ModuleType, changed: Any, tmp_path: Path, column: str | None, value: float
) -> None:
    """A trial whose memory was full has read something, and did not end with all of its set in memory."""
    source = fake_run.write(tmp_path / "source", fake_run.Fake(blocks=1, formats=("png",), states=("full",)))
    found = validator.judge(changed({column: every(lambda _: value)} if column else {}, source=source))
    assert rules(found) == (["full"] if column else [])


def test_a_time_before_the_first_day_is_no_time() -> None:
    """What Python's dates cannot hold in UTC is no moment, and no error of a reader."""
    assert run_rules.moment("0001-01-01T00:00:00+14:00") is None
    assert run_rules.moment("2026-01-02T03:04:05") is None


IN_OTHER_TESTS = {
    *("plain_file", "folder", "same_manifest", "place", "once", "facts", "half_ratio", "cold", "full", "manifest_text"),
    *("manifest", "manifest_range", "manifest_name", "command"),  # test_manifest
    *("script", "ready"),  # test_scripts
    "tuned",  # test_tuned
}
"""Rules that tests of their own are about."""


def test_every_rule_refuses_something_and_says_what_holds() -> None:
    """No rule is without a file that it refuses; each has a name and a sentence of its own."""
    tested = {*(rule for rule, *_ in (*BROKEN_VALUES, *BROKEN_FIELDS, *BROKEN_TRACES)), *BROKEN_FILES, *IN_OTHER_TESTS}
    assert tested == {rule.name for rule in validator.RULES}
    assert len({rule.name for rule in validator.RULES}) == len(validator.RULES)
    assert all(rule.says.endswith(".") for rule in validator.RULES)


def test_a_step_that_is_there_twice_is_named(changed: Any) -> None:
    """Its trial is named, and which step."""
    found = validator.judge(changed({"step": once(lambda _: 1, where=lambda step: step == 2)}, "steps"))
    trial = pq.read_table(Path(found.path) / "steps.parquet")["trial_id"][0].as_py()
    assert rules(found) == ["trace_order"]
    assert f"'{trial}'" in found.findings[0].where
    assert found.findings[0].got == "step 1 is there twice"


def test_samples_are_in_order_whatever_lies_between(changed: Any, run: Path) -> None:
    """Samples of two trials by turns are held against those of their own trial, in later batches too."""
    rows = pq.read_table(run / "telemetry.parquet").select(["trial_id", "t_ns"]).slice(0, 6).to_pylist()
    assert len({row["trial_id"] for row in rows}) == 2
    turns = [rows[at] for at in (2, 3, 1, 4, 0, 5)]
    first = {name: lambda values, name=name: [row[name] for row in turns] + values[6:] for name in ("trial_id", "t_ns")}
    found = validator.judge(changed(first, "telemetry"))
    assert [(finding.rule, finding.where) for finding in found.findings] == [("trace_order", "telemetry.parquet row 2")]


def test_samples_are_in_order_over_batches(run: Path) -> None:
    """The last sample of a trial is kept from one batch to the next."""
    trials, samples = (
        parquet.open_table((run / f"{name}.parquet").read_bytes(), name, name) for name in ("trials", "telemetry")
    )
    traces, table = run_rules.Traces(next(trials.rows())), next(samples.rows()).table
    parts = [Rows("telemetry", table.slice(at, 1), samples.manifest, first=at) for at in range(3)]
    assert not list(traces.check("telemetry", parts))
    wrong = [finding.where for finding in traces.check("telemetry", [parts[0], parts[2], parts[1]])]
    assert wrong == ["telemetry.parquet row 1"]


def test_markup_in_the_manifest_is_only_text(changed: Any) -> None:
    """Pages escape it."""
    assert validator.judge(changed(substitutions=["<script>alert(1)</script>"])).valid


@pytest.mark.parametrize("command", ["make \x1b[31msweep", "make\nsweep", "x" * 3000, "\u202esweep"])
def test_control_characters_in_the_manifest_are_refused(changed: Any, command: str) -> None:
    """What a terminal would obey is in no manifest, nor are endless texts; the finding shows them as text."""
    found = validator.judge(changed(command=command))
    assert rules(found) == ["manifest_text"]
    assert str(found.findings[0]).isprintable()


def test_what_is_quoted_of_a_file_is_text() -> None:
    """Whatever a file holds becomes one short line of ASCII."""
    for value in ("\x1b[2J", "a\nb", "\ud800", "x" * 10_000, b"\xff", None, {"a": "\u202e"}):
        assert (text := quote(value)).isascii()
        assert text.isprintable()
        assert len(text) <= 1300


def test_what_no_text_may_hold_is_the_same_everywhere() -> None:
    """What redaction takes out of a text no manifest and no column holds, and everything else they may."""
    for code in [0, 7, 0x1F, 0x20, 0x41, 0x7F, 0x9F, 0xE9, 0x61C, 0x200B, 0x2029, 0x202E, 0x2066, 0xFEFF]:
        text = f"a{chr(code)}b"
        taken_out = redaction.one_line(text) != text
        rows = Rows("trials", pa.table({"error_message": pa.array([text]).dictionary_encode()}), None)  # type: ignore[arg-type]
        findings: list[Finding] = list(row_rules.broken(row_rules.VALUES[-1:], rows, ""))
        assert bool(manifest._UNPRINTABLE.search(text)) == bool(findings) == taken_out
