"""What tests of files of others share: small valid runs, and a way to change one thing about them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

KEY = b"feedrate"


def rewritten(path: Path, target: Path, columns: dict[str, Any], manifest: dict[str, Any] | None = None) -> None:
    """Write a table anew, with right checksums: some columns by what becomes of their values, another manifest."""
    table = pq.read_table(path)
    for name, new in columns.items():
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        table = table.set_column(place, field, pa.array(new(table[name].to_pylist()), field.type))
    if manifest:
        table = table.replace_schema_metadata({KEY: json.dumps(manifest).encode()})
    pq.write_table(table, target, compression="zstd", write_page_checksum=True)


@pytest.fixture(scope="session")
def run(fake_run: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep in which some trials failed."""
    return Path(fake_run.write(tmp_path_factory.mktemp("sweep"), fake_run.Fake(blocks=2, batches=(8, 32))))


@pytest.fixture(scope="session")
def sources(run: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Valid runs: that sweep, one in which all trials failed, one of page caches, a script's, and a search."""
    fake, script, tuned = (request.getfixturevalue(f"fake_{name}") for name in ("run", "script", "tuned"))
    folder, stored = tmp_path_factory.mktemp, {"formats": ("png", "lmdb"), "states": ("warm", "cold", "full")}
    return {
        "sweep": run,
        "failed": fake.write(folder("failed"), fake.Fake(blocks=1, batches=(8,), fails="all")),
        "stored": fake.write(folder("stored"), fake.Fake(blocks=1, **stored)),
        "script": script.write(folder("script"), script.Script(headspace=True)),
        "search": tuned.write(folder("search"), tuned.Search(most=2, blocks=3, fails=2, steps=40)),
    }


@pytest.fixture(scope="session")
def valid(run: Path) -> bytes:
    """Its file of trials."""
    return (run / "trials.parquet").read_bytes()


@pytest.fixture
def changed(run: Path, tmp_path: Path) -> Callable[..., Path]:
    """Write a run anew with other columns in a table, or another manifest in run.json and trials, which come first."""

    def change(columns: dict[str, Any], table: str = "trials", source: Path = run, **fields: Any) -> Path:
        folder = tmp_path / source.parent.name / source.name
        folder.mkdir(parents=True)
        manifest = json.loads((source / "run.json").read_text()) | fields
        (folder / "run.json").write_text(json.dumps(manifest))
        for path in source.glob("*.parquet"):
            if path.stem == table:
                rewritten(path, folder / path.name, columns, manifest)
            else:
                os.link(path, folder / path.name)
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
    rewritten(path, path, {"wall_ns": lambda values: [-1, *values[1:]]})
    return folders
