"""Every rule for files of others: what feedrate writes keeps to it, what somebody changed is refused by its name."""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest

from feedrate.attach import rows
from feedrate.plan.options import SweepOptions
from feedrate.schema.columns import SCHEMA_VERSION
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import ROOT
from feedrate.share import submission
from feedrate.share.validation import manifest, run_rules, validator
from feedrate.share.validation.findings import quote
from feedrate.store import migration, runs

STRANGE = "0123456789ab"
"""The id of no cell."""
HOSTILE = ("<script>alert(1)", "a b", "../../etc/passwd", "$(reboot)", "train.py;id", "x" * 61, "é.py")


def once(change: Callable[[Any], Any]) -> Any:
    """Change the first value of a column that is there."""

    def new(values: list[Any]) -> list[Any]:
        at = next(place for place, value in enumerate(values) if value is not None)
        return [*values[:at], change(values[at]), *values[at + 1 :]]

    return new


def every(change: Any) -> Any:
    """Change all values of a column that are there, or put one in their place."""
    new = change if callable(change) else lambda _: change
    return lambda values: [None if value is None else new(value) for value in values]


def rules(folder: Path, *, in_place: bool = False) -> list[str]:
    """The rules that refuse a run; each finding says in plain text where, what and what was expected."""
    found = validator.judge(folder, in_place=in_place)
    assert all(finding.where and finding.got and finding.expected for finding in found.findings)
    assert all(str(finding).isprintable() and "\x1b" not in str(finding) for finding in found.findings)
    return [finding.rule for finding in found.findings]


@pytest.fixture(scope="session")
def sources(run: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Path]:
    """Valid runs: of a sweep, of cold, sequential and full trials, of a script, and of a search."""
    fake, script, tuned = (request.getfixturevalue(f"fake_{name}") for name in ("run", "script", "tuned"))
    folder = tmp_path_factory.mktemp
    stored = fake.Fake(blocks=1, formats=("png", "lmdb"), states=("warm", "cold", "full"))
    return {
        "sweep": run,
        "stored": fake.write(folder("stored"), stored),
        "script": script.write(folder("script"), script.Script(headspace=True)),
        "search": tuned.write(folder("search"), tuned.Search(fails=4)),
    }


def test_what_feedrate_writes_is_valid(sources: dict[str, Path]) -> None:
    """Sweeps, scripts and searches, a file of trials alone, and the runs of every version that is kept here."""
    found = validator.judge(sources["sweep"] / "trials.parquet")
    count = pq.read_metadata(sources["sweep"] / "trials.parquet").num_rows
    assert (found.findings, found.run_id, found.rows) == ((), sources["sweep"].name, count)
    kept = [folder for version in migration.READ[1:] for folder in runs.folders(ROOT / "tests/golden" / f"v{version}")]
    kept += [*runs.folders(ROOT / "results"), *runs.folders(ROOT / "tests/golden/v5_tune")]
    assert len(kept) > len(migration.READ)
    for folder in (*sources.values(), *kept):
        assert rules(folder, in_place=True) == [], folder
    (oldest,) = runs.folders(ROOT / "tests/golden/v1")
    manifest.read_manifest((oldest / "run.json").read_bytes(), "run.json")


BROKEN: list[tuple[str, str, str, str, Any]] = [
    ("sweep", "present", "trials", "outcome", once(lambda _: None)),
    ("sweep", "finite", "trials", "half_ratio", once(lambda _: float("nan"))),
    ("sweep", "finite", "telemetry", "load_1m", once(lambda _: float("inf"))),
    ("sweep", "range", "trials", "wall_ns", once(lambda _: -1)),
    ("sweep", "range", "trials", "startup_ns", once(lambda _: 2**62)),
    ("sweep", "range", "trials", "cpu_util_pct", once(lambda _: 101.0)),
    ("sweep", "range", "steps", "fetch_ns", once(lambda _: -1)),
    ("sweep", "text", "trials", "run_id", every("../../../etc/passwd")),
    ("sweep", "text", "trials", "cell_id", every("<script>alert(1)")),
    ("sweep", "text", "trials", "started_at", once(lambda _: "yesterday")),
    ("sweep", "text", "trials", "outcome", once(lambda _: "splendid")),
    ("sweep", "text", "trials", "flags", lambda values: ["none,of,these", *values[1:]]),
    ("sweep", "text", "trials", "error_message", once(lambda value: f"{value}\x1b[31m")),
    ("sweep", "text", "trials", "error_message", once(lambda _: "x" * 501)),
    ("sweep", "text", "trials", "error_kind", once(lambda _: "a\u202eb")),
    ("sweep", "of_run", "trials", "run_id", once(lambda _: "20260101T000000Z-ffff")),
    ("sweep", "of_run", "trials", "device", every("cuda")),
    ("sweep", "of_run", "trials", "protocol_version", every(lambda value: value + 1)),
    ("sweep", "of_run", "trials", "host_h2d_ns", lambda values: [5, *values[1:]]),
    ("sweep", "trial_id", "trials", "position", once(lambda value: value + 500)),
    ("sweep", "cell", "trials", "cell_id", every(STRANGE)),
    ("sweep", "cell", "trials", "batch_size", once(lambda value: value * 2)),
    ("sweep", "cell", "trials", "storage_format", every("zip")),
    ("sweep", "outcome", "trials", "error_kind", once(lambda _: None)),
    ("sweep", "outcome", "trials", "samples_per_s", once(lambda _: None)),
    ("sweep", "rate", "trials", "samples", once(lambda value: value + 1)),
    ("sweep", "rate", "trials", "samples_per_s", once(lambda value: value * 1.00001)),
    ("sweep", "rate", "trials", "steady", once(lambda value: not value)),
    ("sweep", "times", "trials", "host_other_ns", once(lambda value: value + 10**7)),
    ("sweep", "times", "trials", "host_fetch_ns", every(lambda value: value // 10)),
    ("sweep", "times", "trials", "worker_collate_ns", once(lambda value: value * 140)),
    ("sweep", "times", "trials", "trial_wall_ns", once(lambda _: 1000)),
    ("sweep", "clock", "trials", "started_at", every("2030-01-02T03:04:05Z")),
    ("sweep", "named", "trials", "data_hash", every("f" * 16)),
    ("sweep", "named", "trials", "suite", every("other")),
    ("stored", "page_cache", "trials", "read_bytes", every(lambda value: int(value * 0.79))),
    ("stored", "page_cache", "trials", "read_bytes", every(0)),
    ("stored", "page_cache", "trials", "cached_after_pct", every(100.0)),
    ("stored", "cell", "trials", "memory_limit_mib", every(0)),
    ("script", "cell", "trials", "script", once(lambda _: "other.py")),
    ("script", "cell", "trials", "workload", every("synthetic")),
    ("script", "rate", "trials", "samples", once(lambda value: value * 2)),
    ("script", "sums", "trials", "worker_getitem_ns", once(lambda value: value - 10_000)),
    ("sweep", "trace_of_run", "steps", "trial_id", once(lambda value: value[:-4] + "9999")),
    ("sweep", "trace_of_run", "telemetry", "run_id", once(lambda _: "20260101T000000Z-ffff")),
    ("sweep", "trace_order", "steps", "step", once(lambda value: value + 1)),
    ("sweep", "trace_order", "telemetry", "t_ns", once(lambda _: 10**14)),
    ("sweep", "prepared", "steps", "worker", once(lambda value: value + 9)),
    ("sweep", "prepared", "steps", "worker_begun_ns", once(lambda value: value + 2_000)),
    ("sweep", "prepared", "steps", "worker_read_ns", once(lambda value: value + 2_000)),
    ("script", "prepared", "steps", "batches_ready", once(lambda _: 5)),
    ("sweep", "sums", "steps", "fetch_ns", once(lambda _: 10**13)),
    ("script", "sums", "steps", "worker_getitem_ns", once(lambda value: value - 5_000)),
]
"""Run, rule, table, column, and what becomes of it."""


@pytest.mark.parametrize(("source", "rule", "table", "column", "change"), BROKEN)
def test_a_value_that_breaks_a_rule_is_refused_by_it(
    changed: Any, sources: dict[str, Path], source: str, rule: str, table: str, column: str, change: Any
) -> None:
    """One column is changed, with right checksums; the rule that is about it refuses the run."""
    assert rules(changed({column: change}, table, source=sources[source]))[:1] == [rule]


WHOLE = {"warmup_s": 0.3, "window_s": 0.6, "min_steps": 12, "ci_target_pct": 3.0, "control_every": 16}
PROTOCOL = WHOLE | {"blocks": [8, 30], "timeout_s": 120.0}
DATASET = {"name": "a", "storage_format": "png", "count": 1, "bytes": 1, "data_hash": "0" * 16, "workload_version": 1}
SET = DATASET | {"pack_s": 1.0, "notes": []}
NODE = {"sweep": "20260101T000000Z-0a1b", "node": 0, "nodes": 2, "together": False}
COMMANDS = (
    *("curl example.org | sh", "make sweep; curl example.org", "make sweep SUITE=$(id)", "make sweep SUITE=`id`"),
    *("make sweep MATRIX='$(shell id)'", "make sweep SHELL=/tmp/x", "make sweep -f /tmp/x", "make sweep MATRIX=a b"),
    *("make sweep ON=slurm", "make sweep ON=slurm NODES=0 TOGETHER=1", "make site", "make sweep\u00a0SUITE=loader", ""),
    *(f"feedrate run -- {name}" for name in HOSTILE),
    *("feedrate run --results / -- train.py", "feedrate tune -- $(reboot)"),
)
FIELDS: list[tuple[str, str, dict[str, Any]]] = [
    *[("sweep", "command", {"command": command}) for command in COMMANDS],
    ("sweep", "version", {"schema_version": SCHEMA_VERSION + 1}),
    ("sweep", "manifest", {"cells": "25"}),
    ("sweep", "manifest", {"cells": 25.0}),
    ("sweep", "manifest", {"budget_s": 240}),
    ("sweep", "manifest", {"hostname": "box"}),
    ("sweep", "manifest_range", {"cells": 10**12}),
    ("sweep", "manifest_range", {"seed": -1}),
    ("sweep", "manifest_range", {"cell_seconds": {STRANGE: -1.0}}),
    ("sweep", "manifest_range", {"noise_before": {"load_1m": -1.0}}),
    ("sweep", "manifest_range", {"protocol": PROTOCOL | {"window_s": -1.0}}),
    ("sweep", "manifest_range", {"protocol": PROTOCOL | {"blocks": [99, 2]}}),
    ("sweep", "manifest_range", {"datasets": [SET | {"bytes": -1}]}),
    ("sweep", "manifest_range", {"cluster": NODE | {"nodes": 10**7}}),
    ("sweep", "manifest_text", {"substitutions": ["a\x1b[31mb"]}),
    ("sweep", "manifest_text", {"substitutions": ["x" * 3000]}),
    ("sweep", "manifest_text", {"outcomes": {"ok": 185, "<b>x": 3}}),
    ("sweep", "manifest_text", {"suites": {"y/../..": []}}),
    ("sweep", "manifest_text", {"suites": {"loader": [{"<b>": [1]}]}}),
    ("sweep", "manifest_text", {"ended_at": "2026-01-02T05:04:05+02:00"}),
    ("sweep", "manifest_text", {"stop_reason": "=HYPERLINK(1)"}),
    ("sweep", "manifest_text", {"control": "../.."}),
    ("sweep", "manifest_text", {"datasets": [SET | {"name": "../x"}]}),
    ("sweep", "manifest_text", {"cluster": NODE | {"sweep": "../nodes"}}),
    ("sweep", "counts", {"outcomes": {"ok": 1}}),
    ("sweep", "counts", {"blocks": 99}),
    ("sweep", "counts", {"cells": 1}),
    ("sweep", "counts", {"cell_seconds": {STRANGE: 1.0}}),
    ("sweep", "clock", {"ended_at": "2999-01-01T00:00:00Z"}),
    ("sweep", "clock", {"ended_at": "2026-13-45T99:99:99Z"}),
    ("sweep", "named", {"datasets": []}),
    ("sweep", "script", {"stop_reason": "ended"}),
    ("script", "script", {"command": "feedrate run -- other.py"}),
    ("script", "script", {"command": "make sweep"}),
    ("script", "script", {"stop_reason": "target"}),
    ("script", "script", {"profile": "quick"}),
    ("script", "script", {"suites": {"script": {}, "loader": {}}}),
    ("search", "script", {"command": "feedrate run -- train.py"}),
    ("search", "tuned", {"tuned": []}),
    *[
        ("search", "tuned", {"tuned": entry})
        for entry in (
            {"recommended": STRANGE},
            {"audits": [{"cell_id": STRANGE, "predicted": 0.5, "measured": 0.5}]},
            {"trials": 3},
            {"known": False},
            {"bound_pct": 99.0},
            {"bound_pct": None},
            {"gain": [2.0, 2.5, 3.0]},
            {"aside": [{"count": 1_000, "reason": "too many"}]},
        )
    ],
]
"""Run, rule, and fields of its manifest; those of ``tuned`` belong to its one entry."""


@pytest.mark.parametrize(("source", "rule", "fields"), FIELDS, ids=str)
def test_a_field_that_breaks_a_rule_is_refused_by_it(
    changed: Any, sources: dict[str, Path], source: str, rule: str, fields: dict[str, Any]
) -> None:
    """Fields of the manifest are changed in every file; the rule that is about them refuses the run."""
    if isinstance(fields.get("tuned"), dict):
        (entry,) = json.loads((sources[source] / "run.json").read_text())["tuned"]
        fields = {"tuned": [entry | fields["tuned"]]}
    assert rules(changed(source=sources[source], **fields))[:1] == [rule]


def on_other_machine(table: Any) -> Any:
    fields = json.loads(table.schema.metadata[b"feedrate"])
    fields["machine"]["cpu_model"] = "Example 1 1-Core"
    return table.replace_schema_metadata({b"feedrate": json.dumps(fields).encode()})


def chunk_elsewhere(file: bytes, raw: ModuleType) -> bytes:
    footer = raw.footer_of(file)
    raw.chunks(footer)[0].update({9: (raw.I64, 2**40), 11: (raw.I64, 2**40)})
    return bytes(raw.closed(file, footer))


def without_rows(table: Any) -> bytes:
    sink = io.BytesIO()
    pq.ParquetWriter(sink, table.schema).close()
    return sink.getvalue()


FILES: dict[str, Callable[[bytes, Any, ModuleType], bytes]] = {
    "parquet": lambda file, _, __: file[:-1],
    "column": lambda _, table, corpus: corpus.written(table.drop_columns(["wall_ns"])),
    "decodes": lambda file, _, corpus: corpus.damaged(file, "worker_collate_ns", random.Random(3)),
    "checksums": lambda _, table, corpus: corpus.written(table, write_page_checksum=False),
    "chunks": lambda file, _, corpus: chunk_elsewhere(file, corpus.raw),
    "machine_id": lambda _, table, corpus: corpus.written(on_other_machine(table)),
    "some_trials": lambda _, table, __: without_rows(table),
}
"""Rule, and what makes a file of trials break it."""


@pytest.mark.parametrize("rule", FILES)
def test_a_file_that_is_not_as_it_was_written_is_refused(
    valid: bytes, corpus: ModuleType, tmp_path: Path, rule: str
) -> None:
    """Its structure, its bytes, its manifest or its rows were touched: the rule about that refuses it."""
    (tmp_path / "trials.parquet").write_bytes(FILES[rule](valid, corpus.read(valid), corpus))
    assert rules(tmp_path / "trials.parquet") == [rule]


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
    found = [rules(path, in_place=True)[0] for path in (more, less, link, other, named, tmp_path / "whole")]
    assert found == ["folder", "folder", "plain_file", "same_manifest", "place", "plain_file"]


def test_no_two_trials_have_one_place(changed: Any) -> None:
    """A trial that is there twice refuses the file."""
    twice = {name: lambda values: [values[0], *values[:1], *values[2:]] for name in ("block", "position", "trial_id")}
    assert rules(changed(twice) / "trials.parquet")[:1] == ["counts"]


def test_every_rule_refuses_something_and_says_what_holds() -> None:
    """No rule is without a case that it refuses; each has a name and a sentence of its own."""
    elsewhere = {"plain_file", "folder", "same_manifest", "place"}
    tested = {*(rule for _, rule, *_ in (*BROKEN, *FIELDS)), *FILES, *elsewhere}
    assert tested == {rule.name for rule in validator.RULES}
    assert len({rule.says for rule in validator.RULES}) == len(validator.RULES)


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_had_so_much_time_and_no_more(changed: Any, run: Path, workers: int) -> None:
    """As much as all workers together had since the loader's start is believed, and a millisecond more is not."""
    trials = pq.read_table(run / "trials.parquet").to_pandas()
    parts = ["wall_ns", "warmup_ns", "startup_ns", "compile_ns"]
    room = trials[parts].fillna(0).sum(axis=1) * trials["num_workers"].clip(lower=1)
    left = room - trials[[f"worker_{stage}_ns" for stage in ("read", "decode", "transform")]].fillna(0).sum(axis=1)
    chosen = trials["num_workers"].eq(workers) & trials["worker_collate_ns"].notna()
    assert chosen.any()
    for more, expected in ((0, []), (10**6, ["times"])):
        full = [
            int(space) + more if own else value
            for value, space, own in zip(
                pq.read_table(run / "trials.parquet")["worker_collate_ns"].to_pylist(), left, chosen, strict=True
            )
        ]
        folder = changed({"worker_collate_ns": lambda _, full=full: full})
        assert rules(folder / "trials.parquet") == expected
        shutil.rmtree(folder)


def test_samples_are_in_order_over_batches(run: Path) -> None:
    """Samples of trials by turns are held against those of their own trial, from one batch to the next."""
    trials, samples = (
        next(validator.open_table((run / f"{name}.parquet").read_bytes(), name, name).rows())
        for name in ("trials", "telemetry")
    )

    def check(*order: int) -> list[str]:
        parts = [type(samples)("telemetry", samples.table.slice(at, 1), samples.run, at) for at in order]
        return [
            finding.where
            for finding in run_rules.check_traces("telemetry", parts, trials.frame(run_rules.TRACE_COLUMNS))
        ]

    assert check(0, 3, 1, 4, 2) == []
    assert check(0, 3, 2, 1) == ["telemetry.parquet column t_ns row 1"]


def test_what_is_quoted_of_a_file_is_text() -> None:
    """Whatever a file holds becomes one short line of ASCII."""
    for value in ("\x1b[2J", "a\nb", "\ud800", "x" * 10_000, b"\xff", None, {"a": "\u202e"}):
        assert (text := quote(value)).isascii()
        assert text.isprintable()
        assert len(text) <= 1300


def test_every_command_that_is_written_is_accepted(run: Path, tmp_path: Path) -> None:
    """What feedrate writes for any options passes."""
    whole = json.loads((run / "run.json").read_text())
    many = SweepOptions(
        matrix=tmp_path / "my_matrix-2.yaml",
        profile="gpu",
        suite="storage",
        budget="1.5h",
        data=tmp_path,
        data_root=tmp_path,
        tune=True,
    )
    together = replace(many, on="slurm", nodes=64, together=True)
    spaced = SweepOptions(matrix=Path("my matrix.yaml"), budget="8m20s")
    for options in (SweepOptions(), many, together, replace(together, on="local"), spaced):
        manifest.check_fields(whole | {"command": options.command(), "profile": options.profile}, "manifest")


def test_batches_of_a_script_may_lack_their_size_and_their_stamps(fake_script: ModuleType, tmp_path: Path) -> None:
    """A sampler that does not say its size, and a batch whose preparation was not seen, are valid."""
    ended = fake_script.ended(fake_script.Script())
    loader = ended.report.loader
    settings, batches = {**loader.settings, "batch_size": None}, loader.batches
    batches = batches[batches["iterator"].ne(0) | batches["batch"].ne(60)]
    ended = replace(ended, report=replace(ended.report, loader=replace(loader, settings=settings, batches=batches)))
    stored = rows.save(ended, tmp_path, "train.py")
    assert rules(stored.folder) == []
    assert stored.table("trials")["worker_getitem_ns"].isna().sum() == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_not_recorded(fake_script: ModuleType, tmp_path: Path, name: str) -> None:
    """A name that is no name is refused before anything is written."""
    with pytest.raises(InputError, match="--name"):
        rows.save(fake_script.ended(fake_script.Script()), tmp_path, name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("source", ["script", "search"])
def test_only_the_name_of_a_script_is_published(sources: dict[str, Path], source: str) -> None:
    """No file of a submission holds a path, an argument or a line of code, and its text says what was measured."""
    prepared = submission.prepare(runs.find(str(sources[source])))
    assert {path.rpartition("/")[2] for path in prepared.files} == set(validator.FILES)
    for data in prepared.files.values():
        assert not any(word in data for word in (b"somebody", b"secret", b"Image.open", b"Pictures"))
    assert f"(`feedrate {'run' if source == 'script' else 'tune'} -- train.py`)" in prepared.body
