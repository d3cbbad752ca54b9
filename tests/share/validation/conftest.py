"""What tests of files of others share: a small valid run, and ways to change one thing about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

KEY = b"feedrate"
Change = Callable[..., Path]


@pytest.fixture(scope="session")
def run(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small valid run: some trials failed, single steps and samples are there."""
    return fake_run.write(tmp_path_factory.mktemp("valid"), fake_run.Fake(blocks=3, batches=(8, 32)))


@pytest.fixture(scope="session")
def valid(run: Path) -> bytes:
    """Its file of trials."""
    return (run / "trials.parquet").read_bytes()


@pytest.fixture
def changed(run: Path, tmp_path: Path) -> Change:
    """Write the run anew with other columns or another manifest in every table, below its machine's folder."""

    def change(
        columns: dict[str, Callable[[list[Any]], list[Any]]] | None = None,
        table: str = "trials",
        source: Path = run,
        **manifest: Any,
    ) -> Path:
        folder = tmp_path / source.parent.name / source.name
        folder.mkdir(parents=True)
        said = json.loads((source / "run.json").read_text()) | manifest
        (folder / "run.json").write_text(json.dumps(said))
        for name in ("trials", "steps", "telemetry"):
            rows = pq.read_table(source / f"{name}.parquet").replace_schema_metadata({KEY: json.dumps(said).encode()})
            for column, new in (columns or {}).items() if name == table else ():
                place = rows.schema.get_field_index(column)
                field = rows.schema.field(place)
                rows = rows.set_column(place, field, pa.array(new(rows[column].to_pylist()), field.type))
            pq.write_table(rows, folder / f"{name}.parquet", compression="zstd", write_page_checksum=True)
        return folder

    return change


@pytest.fixture
def results(fake_run: ModuleType, tmp_path: Path) -> list[Path]:
    """The folders of three runs of three machines, the second one with a number that cannot be."""
    folders = [
        fake_run.write(
            tmp_path / "results",
            fake_run.Fake(run_id=f"2026010{number + 1}T030405Z-fake", blocks=1, batches=(8,), cores=16 + number),
        )
        for number in range(3)
    ]
    path = folders[1] / "trials.parquet"
    table = pq.read_table(path)
    walls = pa.array([-1, *table["wall_ns"].to_pylist()[1:]], pa.int64())
    pq.write_table(
        table.set_column(table.schema.get_field_index("wall_ns"), "wall_ns", walls), path, write_page_checksum=True
    )
    return folders
