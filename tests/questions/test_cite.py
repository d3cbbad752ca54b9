"""The page Cite says what is so: commands that check, hashes that are those of the files, and of use when empty."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest

from feedrate.charts import render
from feedrate.charts.citation import data_hash
from feedrate.pages.runs import RunView, place
from feedrate.questions.cite import page as cite_page
from feedrate.questions.loader.charts import throughput


@pytest.mark.slow
def test_the_command_that_checks_a_hash_prints_it(show: Callable[..., RunView], tmp_path: Path) -> None:
    """What the page says to type, typed at the files that the figure offers, prints what the page says."""
    view = show(batches=(8,), blocks=2)
    placed = place(throughput.draw(view.cells), "loader-throughput-x", "suites/loader.md", view.origin)
    for path, content in placed.files.items():
        (tmp_path / Path(path).name).write_text(content, encoding="utf-8")
    (tmp_path / "trials.parquet").write_bytes((view.run.folder / "trials.parquet").read_bytes())
    body = unescape(cite_page.page([placed], [view]).body)
    commands = re.findall(r"<code>(sha256sum .*?)</code></div></td> <td[^>]*>(?:<div>)?(?:<code>)?([\w ]+)", body)
    assert len(commands) == 2
    assert placed.citation
    hashes = [placed.citation.data_hash, data_hash((tmp_path / "trials.parquet").read_bytes())]
    assert commands[0][1] == hashes[0]
    for (command, _), expected in zip(commands, hashes, strict=True):
        printed = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert printed.stdout.strip() == expected
    assert hashes[1] in body


@pytest.mark.slow
def test_the_same_records_give_the_same_files(show: Callable[..., RunView]) -> None:
    """Read, estimated and drawn again: table, picture and specification are the same bytes, and so is the HTML."""
    view = show(batches=(8,), blocks=2)
    first = place(throughput.draw(view.cells), "x", "index.md", view.origin)
    render._drawn.cache_clear()
    again = RunView(view.run)
    assert place(throughput.draw(again.cells), "x", "index.md", again.origin) == first
    assert {Path(path).suffix for path in first.files} == {".csv", ".svg", ".json"}


def test_without_figures_the_page_is_still_of_use() -> None:
    """Without runs it cites the project, offers no file, and says what to type."""
    page = cite_page.page([], [])
    assert "The feedrate developers" in page.body
    assert "make sweep" in page.body
    assert page.all_files() == {}
    assert "figures.bib</a>" not in page.body
