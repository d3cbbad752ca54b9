"""The caps have room for the longest run that feedrate is thought to write, by figures that its own files keep to."""

from __future__ import annotations

import inspect
import io
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from feedrate.schema.columns import TABLES
from feedrate.schema.plugins import ROOT
from feedrate.share.validation import caps, parquet
from feedrate.share.validation import pages as validation_pages
from feedrate.share.validation.findings import Refused
from feedrate.store import runs as store_runs


def test_a_row_group_is_what_the_writer_makes_of_a_chunk(
    fake_run: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One row group at most for each chunk of a journal; its size is the writer's, footer and pages are as reckoned."""
    monkeypatch.setattr(store_runs, "GROUP_ROWS", 1)
    assert inspect.signature(store_runs.journal_chunks).parameters["trials"].default == caps.GROUP_TRIALS
    fake = fake_run.Fake(blocks=3, batches=(8, 32))
    tables = fake_run.rows(fake)
    sizes: dict[str, list[int]] = {name: [] for name in TABLES}
    for count in (1, 2, 3):
        folder = tmp_path / str(count)
        folder.mkdir()
        store_runs.write_run(folder, fake_run.manifest(fake, tables["trials"]), [tables] * count)
        for name in TABLES:
            file = (folder / f"{name}.parquet").read_bytes()
            metadata = pq.read_metadata(io.BytesIO(file))
            assert metadata.num_row_groups == count
            sizes[name].append(metadata.serialized_size)
            assert pages(file, metadata) <= 2 * metadata.num_columns * count
    for name, columns in TABLES.items():
        more = max(after - before for before, after in pairwise(sizes[name]))
        assert more <= len(columns) * caps.CHUNK_FOOTER_BYTES, name


def pages(file: bytes, metadata: pq.FileMetaData) -> int:
    """Count the pages of a file."""
    return sum(
        validation_pages.count_pages(file, chunk, 10**6)
        for chunk in validation_pages.declared_chunks(metadata, "a file")
    )


def test_the_longest_run_fits() -> None:
    """A day of trials, one a second, with as many steps as our own runs have, is within each cap on what is written."""
    groups = -(-caps.TRIALS // caps.GROUP_TRIALS)
    steps = caps.TRIALS * caps.STEPS
    widest = max(map(len, TABLES.values()))
    assert (groups, widest) == (caps.GROUPS, caps.WIDEST)
    written = {
        caps.ROWS_OF["trials"]: caps.TRIALS,
        caps.ROWS_OF["steps"]: steps,
        caps.FILE_BYTES: steps * caps.STEP_BYTES,
        caps.DECODED_BYTES: steps * caps.STEP_DECODED,
        caps.COLUMNS: widest,
        caps.ROW_GROUPS: groups,
        caps.FOOTER_BYTES: groups * widest * caps.CHUNK_FOOTER_BYTES + caps.MANIFEST_BYTES.most,
        caps.PAGES: groups * widest * 2,
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
            assert times * metadata.num_rows <= caps.ROWS_OF[name].most
            assert times * path.stat().st_size <= caps.FILE_BYTES.most
            assert times * unpacked(metadata) <= caps.DECODED_BYTES.most
            assert times * metadata.num_row_groups <= caps.ROW_GROUPS.most


def unpacked(metadata: pq.FileMetaData) -> int:
    """Bytes of a file's columns when they are decompressed."""
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    return sum(group.column(at).total_uncompressed_size for group in groups for at in range(metadata.num_columns))


def test_each_table_has_a_cap_of_its_own(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are many more than trials: more of them than of trials are accepted, and no more than their own cap."""
    few = caps.Cap("rows", 1, "rows", "a test")
    monkeypatch.setitem(caps.ROWS_OF, "trials", few)
    with pytest.raises(Refused, match="at most 1 rows"):
        parquet.open_table((run / "trials.parquet").read_bytes(), "trials", "trials.parquet")
    assert parquet.open_table((run / "steps.parquet").read_bytes(), "steps", "steps.parquet").count > 1
