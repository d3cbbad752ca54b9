"""Storage on a suite's page: the answer, what to use, what a format takes, what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pandas as pd
import pytest

from feedrate.machine.identity import Storage
from feedrate.pages.runs import RunView
from feedrate.plan.suite import Suite
from feedrate.questions.storage import page as storage_page
from feedrate.questions.storage.analysis import choices, larger
from feedrate.questions.suites import page as suites_page

Show = Callable[..., RunView]
FEW = ("png", "jpeg", "npy", "lmdb", "lmdb_png", "zarr", "webdataset")


def plain(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def cells(html: str) -> list[list[str]]:
    """Rows of the tables, headings left out, as plain text."""
    return [[plain(cell) for cell in re.findall(r"<td.*?</td>", row)] for row in re.findall(r"<tr.*?</tr>", html)]


def knob_rows(trials: pd.DataFrame) -> list[list[str]]:
    return [[plain(cell) for cell in row] for row in storage_page.knob_effects(trials)]


@pytest.fixture(scope="module")
def compared(show: Show) -> RunView:
    return show(suites=("storage",), formats=FEW, blocks=5)


@pytest.fixture(scope="module")
def answers(compared: RunView) -> str:
    """What stands before the charts of that run."""
    return section(compared).answers("suites/storage.md")


def section(view: RunView, suite: str = "storage") -> storage_page.StorageSection:
    return storage_page.StorageSection(view, suite)


def test_the_answer_is_made_from_the_numbers(compared: RunView, answers: str) -> None:
    """The first sentence names the larger effect and the span of both; each setting stands below it."""
    first, each = re.findall(r'<p class="fr-answer">.*?</p>|<ul>.*?</ul>', answers, re.DOTALL)
    found = larger(compared.trials)
    assert set(found["larger"]) == {"pixels"}
    assert "In every setting what is stored matters more" in plain(first)
    numbers = [float(number) for number in re.findall(r"\d+\.?\d*", plain(first))]
    usual = found.sort_values("num_workers").drop_duplicates(["patch_size", "page_cache"])
    for ratio in (usual["pixels_ratio"].max(), usual["container_ratio"].max(), usual["times"].max()):
        assert float(f"{ratio:.2g}") in numbers
    assert each.count("<li>") == len(usual)
    assert f"n = {usual['n'].max()}" in plain(each)


def test_what_to_use_is_what_the_analysis_chose(compared: RunView, answers: str) -> None:
    """A row names the cheapest of the set that cannot be told from the best, its rate, its bytes, and the disk."""
    rows = [row for row in cells(answers) if len(row) > 4]
    chosen = choices(compared.trials)
    first = chosen[chosen["purpose"].eq("speed") & chosen["place"].eq(0) & chosen["mode"].eq("load")]
    for row in first.to_dict("records"):
        rate = float(f"{row['samples_per_s']:.3g}")
        assert any(line[2].startswith(row["storage_format"]) and line[3].startswith(f"{rate:,.0f}") for line in rows), (
            row["storage_format"]
        )
    assert any("cold, from an NVMe disk (ext4)" in line[1] for line in rows)
    assert any("warm, from memory" in line[1] for line in rows)


def test_loss_is_never_recommended_silently(show: Show) -> None:
    """Where JPEG is the fastest of all it stands under its own heading, marked, and never under what to use."""
    view = show(suites=("storage",), formats=("png", "jpeg", "lmdb_png"), blocks=4)
    html = section(view).answers("suites/storage.md")
    rows = [row for row in cells(html) if row]
    assert rows
    assert not any("jpeg" in cell for row in rows for cell in row[:-1])
    assert any("jpeg (lossy)" in row[-1] for row in rows)


def test_orders_of_reading_are_apart(answers: str) -> None:
    """What is read in the order of the disk is compared in a table of its own."""
    usual, _, other = answers.partition("<summary>Read in the order of the disk")
    assert "webdataset" not in usual
    assert "in the order of the disk" not in usual.partition("What to use")[2]
    assert "in the order of the disk" in plain(other)


def test_streams_say_how_they_shuffle(show: Show) -> None:
    """A run of streams alone has its table, and beside the name stands what each worker shuffles within."""
    text = plain(
        section(show(suites=("storage",), formats=("tfrecord", "webdataset"), blocks=3)).answers("suites/storage.md")
    )
    assert "streamed: shards in random order, each worker shuffles within 256 samples" in text
    assert "If your images are" in text


def test_sizes_packing_and_what_is_missing_are_told(compared: RunView) -> None:
    """Every format has a line with its bytes and what packing took; what was left out has its reason."""
    text = section(compared).details()
    rows = [row for row in cells(text.partition("Knobs of single")[0]) if row]
    assert {row[0].split()[0] for row in rows} == set(FEW)
    png = next(row for row in rows if row[0] == "png PNG")
    assert png[1:3] == ["34.3 kB", "0.62"]
    assert re.fullmatch(r"[\d.]+ s [\d.,]+/s", png[3])
    assert "no spread" in text
    said = plain(text)
    assert "it has no random access" in said
    assert "zarr, cold, 480 px: every trial of" in said
    assert "not in this run: arrow" in said


def test_other_suites_and_single_formats_show_nothing(show: Show, compared: RunView) -> None:
    """A suite that asks another question has no such section, nor has a run with one format or none that ended."""
    assert not section(compared, "loader")
    single = section(show(suites=("storage",), formats=("png",), blocks=2))
    assert not single
    assert single.answers("suites/storage.md") == single.details() == ""
    failed = section(show(suites=("storage",), formats=("png", "lmdb"), blocks=2, fails="all"))
    assert failed.answers("suites/storage.md") == ""
    assert "every trial of" in plain(failed.details())


@pytest.mark.parametrize(
    "what",
    [
        {"states": ("warm",)},
        {"blocks": 1},
        pytest.param({"states": ("cold",)}, marks=pytest.mark.slow),
        pytest.param({"nulls": True}, marks=pytest.mark.slow),
    ],
)
def test_parts_that_are_missing_break_nothing(show: Show, what: dict[str, Any]) -> None:
    """Without cold or warm cells, with one block, or without what a probe gives, the page says what it can."""
    view = show(**{"suites": ("storage",), "formats": ("png", "lmdb", "lmdb_png", "npy"), "blocks": 3, **what})
    text = plain(section(view).answers("suites/storage.md") + section(view).details())
    assert not re.search(r"\bnan\b", text)
    assert "NA" not in text.split()
    if states := what.get("states"):
        absent = {"warm": "cold, from", "cold": "warm, from"}[states[0]]
        assert absent not in text


def test_the_page_has_its_parts_once(compared: RunView) -> None:
    """On the suite's page the section stands before and after the charts, and the usual answer makes room for it."""
    body = suites_page.page("storage", "suites/storage.md", Suite("Which?", ()), [compared]).body
    assert body.count("fr-answer") >= 1
    assert body.index("What to use") < body.index("On disk, and packing") < body.index("What is missing")
    assert "PyTorch’s default loader" not in unescape(body)


def test_text_from_records_stays_text(show: Show) -> None:
    """Markup in a machine's or a workload's name makes no element."""
    view = show(suites=("storage",), formats=("png", "lmdb"), blocks=2, hostile=True)
    html = section(view).answers("suites/storage.md") + section(view).details()
    assert "<script" not in html
    assert "<img" not in html
    assert "&lt;script&gt;" in html
    disk = Storage(file_system="<b>", device_class="nvme", rotational=False)
    assert storage_page.disk_words(disk) == "an NVMe disk (<b>)"
    assert storage_page.disk_words(None) == "the disk"


def test_knobs_of_single_formats_are_compared_with_their_default(compared: RunView) -> None:
    """Readahead, decoder and order have a line each with the default first; the faster decoder is called so."""
    rows = {(row[0], row[1], row[2]): row for row in knob_rows(compared.trials)}
    decoder = rows["decoder pil → cv2", "png", "div2k_standin, 96 px, warm, batch 32, 0 workers"]
    assert float(decoder[3]) == pytest.approx(1.19, abs=0.05)
    assert decoder[-1] == "faster"
    assert any(key[0] == "readahead true → false" and key[1] == "lmdb" for key in rows)
    assert any(key[0] == "access random → sequential" for key in rows)
    assert knob_rows(compared.trials.iloc[:0]) == []
    assert knob_rows(compared.trials[compared.trials["access"].eq("random")].head(1)) == []


def test_a_contrast_is_turned_round_to_start_at_the_default() -> None:
    """Turned round, the ratio and its ends are inverted in order, and the verdict with them."""
    row = {
        "axis": "decoder",
        "a_value": "cv2",
        "b_value": "pil",
        "ratio": 0.8,
        "lo": 0.5,
        "hi": 0.9,
        "verdict": "slower",
    }
    found = storage_page.start_at_default(row)
    assert (found["a_value"], found["b_value"], found["verdict"]) == ("pil", "cv2", "faster")
    assert [found[end] for end in ("ratio", "lo", "hi")] == pytest.approx([1.25, 1 / 0.9, 2])
    assert storage_page.start_at_default(found) == found


def test_both_answers_are_told() -> None:
    """Where the larger effect differs from setting to setting, either side is counted, each with its span."""
    row = {"pixels_pairs": "png → npy", "pixels_ratio": 3.0, "container_ratio": 2.0}
    rows = [row | {"larger": "pixels", "times": 1.5}, row | {"larger": "container", "times": 0.25}]
    assert storage_page.compare_effects(rows).startswith(
        "In 1 of 2 settings what is stored matters more than the container that holds it (1.5 times the other effect); "
        "in 1 the container matters more (4.0 times the other effect). In the same container, decoded pixels load "
        "3.0 times as fast as PNG;"
    )
