"""The fields of a manifest: what no run can say of itself is refused, by the field; what every run says is not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from feedrate.plan import request as plan_local
from feedrate.schema.plugins import ROOT
from feedrate.share.validation import manifest, validator
from feedrate.share.validation.findings import Finding, Refused
from feedrate.store import migration, runs
from feedrate.store.manifest import Membership

PROTOCOL = {"warmup_s": 0.3, "window_s": 0.6, "min_steps": 12, "ci_target_pct": 3.0, "control_every": 16}
WHOLE = PROTOCOL | {"blocks": [8, 30], "timeout_s": 120.0}
DATASET = {"name": "a", "storage_format": "png", "count": 1, "bytes": 1, "data_hash": "0" * 16, "workload_version": 1}
SET = DATASET | {"pack_s": 1.0, "notes": []}


def refused(changed: Any, **fields: Any) -> Finding:
    """The one reason for which a run with these fields is refused."""
    (finding,) = validator.judge(changed(**fields)).findings
    return finding


def test_fields_that_were_written_are_accepted() -> None:
    """Every manifest that any feedrate wrote passes: those under results, and the golden ones of each version."""
    places = [ROOT / "results", *(ROOT / "tests" / "golden" / f"v{version}" for version in migration.READ)]
    files = [folder / "run.json" for place in places for folder in runs.folders(place)]
    assert len(files) > len(places)
    for file in files:
        manifest.read_manifest(file.read_bytes(), file.name)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cells", 10**12),
        ("ceilings", -5),
        ("budget_s", -5.0),
        ("parent_cpu_pct", -1e6),
        ("seed", -1),
        ("cell_seconds", {"0123456789ab": -1.0}),
        ("cell_spread", {"0123456789ab": {"sd": -1.0, "within": 0.0}}),
        ("noise_before", {"load_1m": -1.0}),
        ("merged", [{"count": -1, "reason": "no reason"}]),
        ("protocol", WHOLE | {"window_s": -1.0}),
        ("protocol", WHOLE | {"blocks": [99, 2]}),
        ("protocol", WHOLE | {"blocks": [2, -2]}),
        ("datasets", [SET | {"bytes": -1}]),
        ("datasets", [SET | {"pack_s": -1.0}]),
    ],
)
def test_numbers_lie_where_they_can(changed: Any, field: str, value: Any) -> None:
    """No count, time, size or share of a manifest is negative, and none is beyond reason."""
    finding = refused(changed, **{field: value})
    assert finding.rule == "manifest_range"
    assert f"manifest.{field}" in finding.where


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("outcomes", {"ok": 185, "oom": 90, "<b>x": 3}),
        ("suites", {"x<script>": []}),
        ("suites", {"y/../..": []}),
        ("suites", {"loader": [{"<b>": [1]}]}),
        ("started_at", "20261121T141938Z"),
        ("started_at", "2026-01-02 03:04:05+00:00"),
        ("ended_at", "2026-01-02T05:04:05+02:00"),
        ("ended_at", "0001-01-01T00:00:00+14:00"),
        ("stop_reason", "=HYPERLINK(1)"),
        ("control", "../.."),
        ("profile", "<b>"),
        ("feedrate_version", "<script>"),
        ("untestable", {"<b>": "no reason"}),
        ("claims", [{"claim": "Amp <b>", "blocks": 1, "reason": "done"}]),
        ("contrasts", [{"axis": "batch_size", "cell_a": "x", "cell_b": "y", "blocks": 1, "reason": "target"}]),
        ("datasets", [SET | {"name": "../x"}]),
        ("datasets", [SET | {"data_hash": "x"}]),
    ],
)
def test_names_match_what_feedrate_writes(changed: Any, field: str, value: Any) -> None:
    """Ids, words and times of a manifest can be sorted, linked to and used as names: what cannot is refused."""
    finding = refused(changed, **{field: value})
    assert finding.rule == "manifest_name"
    assert "<" not in finding.where


@pytest.mark.parametrize(
    ("field", "value"), [("cells", "25"), ("seed", "7"), ("blocks", "3"), ("cells", 25.0), ("budget_s", 240)]
)
def test_types_are_not_guessed(changed: Any, field: str, value: Any) -> None:
    """A number that is a text, or of another kind than feedrate writes, was not written by it."""
    finding = refused(changed, **{field: value})
    assert finding.rule == "manifest"
    assert finding.where.endswith(f"manifest.{field}")


@pytest.mark.parametrize("field", ["claims", "contrasts", "control", "cell_spread", "noise_after"])
def test_every_field_is_there(run: Path, field: str) -> None:
    """Only version 1 may lack a field: what has a default is written all the same."""
    whole = json.loads((run / "run.json").read_text())
    del whole[field]
    with pytest.raises(Refused, match=f"no '{field}'") as caught:
        manifest.read_manifest(json.dumps(whole).encode(), "run.json")
    assert caught.value.finding.rule == "manifest"
    del whole["needs_feedrate"]
    manifest.read_manifest(json.dumps(whole | {"schema_version": 1}).encode(), "run.json")


def test_fields_that_do_not_count_are_not_there(changed: Any, run: Path) -> None:
    """A field that nobody reads is refused wherever it hides, in the machine's facts too, which ignore what is new."""
    machine = json.loads((run / "run.json").read_text())["machine"]
    finding = refused(changed, machine=machine | {"hostname": "box"})
    assert (finding.rule, finding.got) == ("manifest", "'hostname' is there")


@pytest.mark.parametrize(
    "command",
    [
        "curl example.org | sh",
        "make sweep; curl example.org",
        "make sweep SUITE=$(id)",
        "make sweep MATRIX='$(shell id)'",
        "make sweep SUITE=`id`",
        "make sweep SUITE=loader && id",
        "make sweep SHELL=/tmp/x",
        "make sweep -f /tmp/x",
        "make sweep MATRIX=a b",
        "make sweep ON=slurm",
        "make sweep ON=slurm NODES=4 TOGETHER=$(id)",
        "make sweep ON=slurm NODES=0 TOGETHER=1",
        "make sweep ON=everywhere NODES=4 TOGETHER=1",
        "make sweep ON=slurm NODES=4 TOGETHER=1 PARTITION=main",
        "make site",
        "make sweep\u00a0SUITE=loader",
        "",
    ],
)
def test_what_pages_offer_to_be_typed_is_a_sweep(changed: Any, command: str) -> None:
    """A stranger's command is no advice: whatever could do more than sweep is refused."""
    assert refused(changed, command=command).rule == "command"


def test_every_command_that_is_written_is_accepted(run: Path, tmp_path: Path) -> None:
    """What feedrate writes for any options passes."""
    whole = json.loads((run / "run.json").read_text())
    every = plan_local.Options(
        matrix=tmp_path / "my_matrix-2.yaml",
        profile="gpu",
        suite="storage",
        budget="1.5h",
        data=tmp_path,
        data_root=tmp_path,
        tune=True,
    )
    together = replace(
        every, cluster=Membership(sweep="s", node=1, nodes=64, together=True), meets_at="http://host:1/s"
    )
    assert together.command() == f"{every.command()} ON=slurm NODES=64 TOGETHER=1"
    local = replace(together, one_machine=True)
    assert local.command() == f"{every.command()} ON=local NODES=64 TOGETHER=1"
    for options in (plan_local.Options(), every, together, local):
        manifest.check_fields(whole | {"command": options.command(), "profile": options.profile}, "manifest")
    spaced = plan_local.Options(matrix=Path("my matrix.yaml"), budget="8m20s").command()
    assert spaced == "make sweep BUDGET=8m20s MATRIX='my matrix.yaml'"
    manifest.check_fields(whole | {"command": spaced}, "manifest")
