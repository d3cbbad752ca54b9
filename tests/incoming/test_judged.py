"""Every rule for files of others: what keeps to it passes, what breaks it is refused by its name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness import store
from harness.incoming import cells, judged, plausible, ranges, said, traces
from harness.incoming.findings import shown
from harness.registry import ROOT

Values = list[Any]


def once(change: Callable[[Any], Any], where: Callable[[Any], bool] = lambda value: value is not None) -> Any:
    """Change the first value of a column that is there."""

    def new(values: Values) -> Values:
        at = next(place for place, value in enumerate(values) if where(value))
        return [*values[:at], change(values[at]), *values[at + 1 :]]

    return new


def every(change: Callable[[Any], Any]) -> Any:
    """Change all values of a column that are there."""
    return lambda values: [None if value is None else change(value) for value in values]


def test_a_run_as_it_was_written_is_valid(run: Path) -> None:
    """A folder, and its file of trials alone, keep to every rule, and say which run they are."""
    for path in (run, run / "trials.parquet"):
        found = judged.judge(path)
        assert found.findings == ()
        assert (found.valid, found.run_id, found.machine_id) == (True, run.name, run.parent.name)
        assert found.rows == pq.read_metadata(run / "trials.parquet").num_rows


def test_committed_runs_are_valid() -> None:
    """Every run under results/ keeps to every rule, whatever version wrote it."""
    runs = store.runs(ROOT / "results")
    assert runs
    assert {run.folder.name: judged.judge(run.folder, placed=True).findings for run in runs} == {
        run.folder.name: () for run in runs
    }


@pytest.mark.parametrize(
    ("rule", "column", "change"),
    [
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
        ("steady", "steady", once(lambda value: not value)),
        ("whole", "trial_wall_ns", once(lambda _: 1000)),
        ("once", "trial_id", None),
        ("outcomes", "outcomes", {"ok": 1}),
        ("blocks", "blocks", 99),
        ("cells", "cells", 1),
        ("cell_seconds", "cell_seconds", {"0123456789ab": 1.0}),
        ("clock", "started_at", every(lambda _: "2030-01-02T03:04:05Z")),
        ("clock", "ended_at", "2999-01-01T00:00:00Z"),
        ("named", "data_hash", every(lambda _: "f" * 16)),
        ("named", "suite", every(lambda _: "other")),
    ],
)
def test_what_breaks_a_rule_is_refused_by_it(changed: Any, rule: str, column: str, change: Any) -> None:
    """One thing is changed; the rule that is about it refuses the file, and says where."""
    if rule == "once":
        folder = changed({name: lambda values: [values[0], values[0], *values[2:]] for name in ("block", "position")})
        table = pq.read_table(folder / "trials.parquet")
        ids = table["trial_id"].to_pylist()
        place = table.schema.get_field_index("trial_id")
        pq.write_table(table.set_column(place, "trial_id", [[ids[0], ids[0], *ids[2:]]]), folder / "trials.parquet")
    else:
        folder = changed({column: change}) if callable(change) else changed(**{column: change})
    found = judged.judge(folder / "trials.parquet")
    assert [finding.rule for finding in found.refusals][:1] == [rule]
    assert not found.valid
    assert all(finding.where and finding.got and finding.expected for finding in found.findings)


@pytest.mark.parametrize(
    ("rule", "table", "column", "change"),
    [
        ("range", "steps", "fetch_ns", once(lambda _: -1)),
        ("trace_of_run", "steps", "trial_id", once(lambda value: value[:-4] + "9999")),
        ("trace_order", "steps", "step", once(lambda value: value + 1)),
        ("sums", "steps", "fetch_ns", once(lambda _: 10**13)),
        ("worker", "steps", "worker", once(lambda value: value + 9)),
        ("trace_of_run", "telemetry", "run_id", once(lambda _: "20260101T000000Z-ffff")),
        ("trace_order", "telemetry", "t_ns", once(lambda _: 10**14)),
        ("finite", "telemetry", "load_1m", once(lambda _: float("nan"))),
    ],
)
def test_steps_and_samples_are_held_against_their_trials(
    changed: Any, rule: str, table: str, column: str, change: Any
) -> None:
    """A step or a sample that its trial cannot have refuses the run."""
    found = judged.judge(changed({column: change}, table))
    assert [finding.rule for finding in found.refusals][:1] == [rule]
    assert f"{table}.parquet" in found.refusals[0].where


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
    refused = {path: judged.judge(path, placed=True) for path in (more, less, link, other, named, tmp_path / "whole")}
    rules = [found.refusals[0].rule for found in refused.values()]
    assert rules == ["folder", "folder", "plain_file", "same_manifest", "place", "plain_file"]
    assert "setup.py" in refused[more].refusals[0].got


def test_a_machine_cannot_borrow_a_name(changed: Any, run: Path) -> None:
    """The machine's id is computed from its facts: another processor under the same id is refused."""
    machine = json.loads((run / "run.json").read_text())["machine"]
    found = judged.judge(changed(machine=machine | {"cpu_model": "Example 1 1-Core"}))
    assert [finding.rule for finding in found.refusals] == ["machine_id"]


def test_texts_of_the_manifest_are_plain(changed: Any) -> None:
    """Escape sequences and endless texts in the manifest refuse the file; markup is only text."""
    assert judged.judge(changed(command="make sweep <script>alert(1)</script>")).valid


@pytest.mark.parametrize("command", ["make \x1b[31msweep", "make\nsweep", "x" * 3000, "\u202esweep"])
def test_control_characters_in_the_manifest_are_refused(changed: Any, command: str) -> None:
    """What a terminal would obey is in no manifest."""
    found = judged.judge(changed(command=command))
    assert [finding.rule for finding in found.refusals] == ["manifest_text"]
    assert "\x1b" not in str(found)
    assert "\n" not in str(found.refusals[0])


def test_what_is_shown_of_a_file_is_text() -> None:
    """Whatever a file holds becomes one short line of ASCII."""
    for value in ("\x1b[2J", "a\nb", "\ud800", "x" * 10_000, b"\xff", None, {"a": "\u202e"}):
        assert (text := shown(value)).isascii()
        assert text.isprintable()
        assert len(text) <= 1300


def test_odd_runs_are_flagged_and_not_refused(run: Path, tmp_path: Path) -> None:
    """A run whose cells are far off those of a machine of the same make is valid, with a flag."""
    results = tmp_path / "results" / run.parent.name
    shutil.copytree(run, results / run.name)
    slow = pq.read_table(run / "trials.parquet")
    for name in ("wall_ns", "trial_wall_ns", *(column for column in slow.column_names if column.startswith("host_"))):
        values = [None if value is None else value * 10 for value in slow[name].to_pylist()]
        place = slow.schema.get_field_index(name)
        slow = slow.set_column(place, slow.schema.field(place), pa.array(values, pa.int64()))
    rates = [None if value is None else value / 10 for value in slow["samples_per_s"].to_pylist()]
    place = slow.schema.get_field_index("samples_per_s")
    slow = slow.set_column(place, slow.schema.field(place), pa.array(rates, pa.float64()))
    pq.write_table(slow, tmp_path / "slow.parquet")
    own = (run / "run.json").read_text().replace(run.name, "20260101T000000Z-othr")
    (results / run.name / "run.json").write_text(own)
    found = judged.judge(tmp_path / "slow.parquet", tmp_path / "results")
    assert found.valid
    assert [finding.rule for finding in found.flags] == [plausible.UNLIKE_OTHERS.name]


def test_every_rule_has_a_name_and_a_sentence_of_its_own() -> None:
    """Rules are told apart by their names, and each says what holds."""
    rules = [*judged.rules(), *plausible.RULES]
    assert len({rule.name for rule in rules}) == len(rules)
    assert all(rule.says.endswith(".") for rule in rules)


def test_constants_that_live_elsewhere_are_the_same() -> None:
    """What no text may hold is what redaction takes out."""
    from harness import redaction

    for code in [*range(0x300), *range(0x2000, 0x2100), 0xD800, 0xDFFF]:
        letter = chr(code)
        assert bool(said.UNPRINTABLE.search(letter)) <= bool(redaction._UNPRINTABLE.search(letter))
    assert ranges.EXACT == 2**53
    assert traces.RULES
    assert cells.problem_of
