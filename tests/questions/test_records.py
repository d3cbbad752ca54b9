"""The page Data says what is so: commands that check, hashes that are those of the files, and of use when empty."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from feedrate.charts.citation import data_hash
from feedrate.pages.runs import RunView, place
from feedrate.questions.loader.charts import throughput
from feedrate.questions.records import page as data_page


@pytest.mark.slow
def test_the_command_that_checks_a_hash_prints_it(show: Callable[..., RunView], tmp_path: Path) -> None:
    """What the page says to type, typed at the files that the figure offers, prints what the page says."""
    view = show(batches=(8,), blocks=2)
    placed = place(throughput.draw(view.cells), "loader-throughput-x", "suites/loader.md", view.origin)
    for path, content in placed.files.items():
        (tmp_path / Path(path).name).write_text(content, encoding="utf-8")
    (tmp_path / "trials.parquet").write_bytes((view.run.folder / "trials.parquet").read_bytes())
    body = unescape(data_page.page([view], [], [], [placed]).body)
    commands = re.findall(r"<code>(sha256sum .*?)</code></div></td> <td[^>]*>(?:<div>)?(?:<code>)?([\w ]+)", body)
    assert len(commands) == 2
    assert placed.citation
    hashes = [placed.citation.data_hash, data_hash((tmp_path / "trials.parquet").read_bytes())]
    assert commands[0][1] == hashes[0]
    for (command, _), expected in zip(commands, hashes, strict=True):
        printed = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert printed.stdout.strip() == expected
    assert hashes[1] in body


def test_without_figures_the_page_is_still_of_use() -> None:
    """Without runs it cites the project, offers no file, and says what to type."""
    page = data_page.page([], [], [], [])
    assert "The feedrate developers" in page.body
    assert "make sweep" in page.body
    assert page.all_files() == {}
    assert "figures.bib</a>" not in page.body


def test_every_run_is_named_with_what_it_asks(show: Callable[..., RunView]) -> None:
    """Newest first, beside what it asks; below them stands what changed in feedrate."""
    few: dict[str, Any] = {"batches": (8,), "workers": (0,), "blocks": 1}
    first, second = show(**few), show(device="cuda", run_id="20260103T030405Z-gpu", **few)
    text = data_page.page([second, first], [], [], []).body
    assert text.index(second.manifest.run_id) < text.index(first.manifest.run_id)
    for view in (first, second):
        assert f'href="{view.page.replace(".md", ".html")}"' in text
    assert "<h3>0.2" in text.partition("{ #feedrate }")[2]
