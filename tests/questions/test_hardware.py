"""The page of all hardware leads to every run of a store, in files and on a page that are bounded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from feedrate.bench import generated
from feedrate.pages.selection import Selection
from feedrate.questions.hardware import page as hardware_page
from feedrate.store import summaries

RUNS = 600
NOBODY = Selection([], [], [], [])
"""No run has a page."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of which only the summaries are there."""
    folder = tmp_path_factory.mktemp("many") / "results"
    generated.write_summaries(folder, RUNS)
    return folder


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    """A folder for the page's files."""
    folder = tmp_path / "shards"
    folder.mkdir()
    return folder


def test_every_run_is_in_one_file(results: Path, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files together hold each run once, none is too large, and each kind's row links those that hold its runs."""
    monkeypatch.setattr(hardware_page, "ROWS", 250)
    monkeypatch.setattr(hardware_page, "LIMIT", 6_000)
    page = hardware_page.page(NOBODY, shards, results)
    shown = {name: Path(path) for name, path in page.files.items() if name.endswith(".parquet")}
    tables = {name: pq.read_table(path) for name, path in shown.items()}
    assert len(tables) > 3
    found = [run for table in tables.values() for run in table["run_id"].to_pylist()]
    assert sorted(found) == sorted(summaries.query("SELECT run_id FROM runs", results=results)["run_id"].to_pylist())
    assert len(found) == RUNS
    assert all(path.stat().st_size <= 6_000 for path in shown.values())
    rows = page.body.partition("<tbody")[2].split('<tr role="row">')[1:]
    for name, table in tables.items():
        for cpu in table["cpu"].unique().to_pylist():
            (row,) = (row for row in rows if f">{cpu}<" in row)
            assert name in row or (" to " in row and row.count("runs-") >= 2)


def test_the_page_is_bounded(results: Path, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lists so many kinds of hardware, and says where the others are."""
    monkeypatch.setattr(hardware_page, "KINDS", 5)
    body = hardware_page.page(NOBODY, shards, results).body
    assert body.count('<tr role="row">') == 6
    assert "Listed are the 5 kinds of hardware" in body


def test_the_index_says_what_each_file_holds(results: Path, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The values of each file's runs, so that a search may pass over it; less where there is no room for all."""
    monkeypatch.setattr(hardware_page, "ROWS", 250)
    limit, listed = hardware_page.INDEX_LIMIT, []
    for _ in range(2):
        monkeypatch.setattr(hardware_page, "INDEX_LIMIT", limit)
        page = hardware_page.page(NOBODY, shards, results)
        text = str(page.files[hardware_page.INDEX])
        size = len(gzip.compress(text.encode()))
        assert size <= limit
        files = {file["file"]: file for file in json.loads(text)["files"]}
        assert {*files, hardware_page.INDEX} == set(page.files)
        for name, file in files.items():
            table = pq.read_table(page.files[name])
            assert file["bytes"] == Path(page.files[name]).stat().st_size
            for column in hardware_page.HELD:
                values = {"" if value is None else str(value) for value in table[column].to_pylist()}
                assert file[column] is None or set(file[column]) == values
        listed.append(sum(file[column] is not None for file in files.values() for column in hardware_page.HELD))
        limit = size - 1
    assert listed[1] < listed[0] == len(files) * len(hardware_page.HELD)
