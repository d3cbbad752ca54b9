"""The caps have room for the longest run that feedrate is thought to write, by figures that its own files keep to."""

from __future__ import annotations

import inspect
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from feedrate.schema.columns import TABLES
from feedrate.schema.plugins import ROOT
from feedrate.share.validation import caps, parquet
from feedrate.share.validation.findings import Refused
from feedrate.store import runs as store_runs


def test_the_longest_run_fits() -> None:
    """A day of trials, one a second, with as many steps as our own runs have, is within each cap on what is written."""
    assert inspect.signature(store_runs.journal_chunks).parameters["trials"].default == caps.GROUP_TRIALS
    steps = caps.TRIALS * caps.STEPS
    written = {
        caps.ROWS_OF["trials"]: caps.TRIALS,
        caps.ROWS_OF["steps"]: steps,
        caps.FILE_BYTES: steps * caps.STEP_BYTES,
        caps.DECODED_BYTES: steps * caps.STEP_DECODED,
        caps.COLUMNS: caps.WIDEST,
        caps.ROW_GROUPS: caps.GROUPS,
        caps.FOOTER_BYTES: caps.GROUPS * caps.WIDEST * caps.CHUNK_FOOTER_BYTES + caps.MANIFEST_BYTES.most,
        caps.PAGES: caps.GROUPS * caps.WIDEST * 2,
    }
    assert [cap.name for cap, most in written.items() if cap.exceeded(most)] == []


def test_each_of_our_own_runs_could_last_a_day() -> None:
    """Had any run under results gone on for a day, no cap would refuse it."""
    runs = store_runs.runs(ROOT / "results")
    assert runs
    for run in runs:
        begun, ended = map(datetime.fromisoformat, (run.manifest.started_at, run.manifest.ended_at))
        times = 24 * 3600 / (ended - begun).total_seconds()
        for name in TABLES:
            path = run.folder / f"{name}.parquet"
            metadata = pq.read_metadata(path)
            groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
            chunks = [group.column(at) for group in groups for at in range(metadata.num_columns)]
            assert times * metadata.num_rows <= caps.ROWS_OF[name].most
            assert times * path.stat().st_size <= caps.FILE_BYTES.most
            assert times * sum(chunk.total_uncompressed_size for chunk in chunks) <= caps.DECODED_BYTES.most
            assert times * metadata.num_row_groups <= caps.ROW_GROUPS.most


def test_each_table_has_a_cap_of_its_own(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are many more than trials: more of them than of trials are accepted, and no more than their own cap."""
    few = caps.Cap("rows", 1, "rows", "a test")
    monkeypatch.setitem(caps.ROWS_OF, "trials", few)
    with pytest.raises(Refused, match="at most 1 rows"):
        parquet.open_table((run / "trials.parquet").read_bytes(), "trials", "trials.parquet")
    assert parquet.open_table((run / "steps.parquet").read_bytes(), "steps", "steps.parquet").count > 1
