"""Storage on a suite's page: the answer, what to use, what a format takes, what is missing."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest
from made_trials import format_cells, make_format_trials
from reading import plain, table_rows

from feedrate.analysis.estimates import rows_of
from feedrate.pages.runs import RunView
from feedrate.plan.suite import Suite
from feedrate.questions.storage import charts
from feedrate.questions.storage import page as storage_page
from feedrate.questions.storage.analysis import choices
from feedrate.questions.suites import page as suites_page

Show = Callable[..., RunView]
FEW = ("png", "jpeg", "npy", "lmdb", "lmdb_png", "zarr", "webdataset")


@pytest.fixture(scope="module")
def compared(show: Show) -> RunView:
    return show(suites=("storage",), formats=FEW, blocks=5)


@pytest.fixture(scope="module")
def answers(compared: RunView) -> str:
    """What stands before the charts of that run."""
    return sections(compared)[0]


def sections(view: RunView) -> tuple[str, str]:
    return storage_page.sections(view, "storage", "suites/storage.md")


@pytest.mark.slow
def test_the_answer_is_made_from_the_numbers(compared: RunView, answers: str) -> None:
    """The first sentence names the format that is in most sets of what cannot be told from the fastest."""
    first, *_ = re.findall(r'<p class="fr-answer">.*?</p>', answers, re.DOTALL)
    found = choices(compared.trials)
    usual = found[found["purpose"].eq("speed") & found["mode"].eq("load") & found["access"].eq("random")]
    ties = usual.groupby("storage_format")["question"].nunique()
    name, count, cases = re.findall(r"(\w+) is the fastest .* in (\d) of (\d) cases", plain(first))[0]
    assert int(count) == ties[name] == ties.max()
    assert int(cases) == usual["question"].nunique()


def test_what_to_use_is_what_the_analysis_chose(compared: RunView, answers: str) -> None:
    """A row names the cheapest setting that ties with the best, its rate and its cache."""
    rows = [row for row in table_rows(answers) if len(row) > 4]
    chosen = choices(compared.trials)
    first = chosen[chosen["purpose"].eq("speed") & chosen["place"].eq(0) & chosen["mode"].eq("load")]
    for row in first.to_dict("records"):
        rate = float(f"{row['samples_per_s']:.3g}")
        assert any(line[2].startswith(row["storage_format"]) and line[3].startswith(f"{rate:,.0f}") for line in rows), (
            row["storage_format"]
        )
    assert any("cold cache" in line[1] for line in rows)
    waiting = choices(compared.trials.assign(cpu_util_pct=50.0, io_pressure_pct=20.0))
    (where, *_), *_ = (
        storage_page._where(row, compared.manifest.machine.storage) for row in rows_of(waiting) if row["disk_limits"]
    )
    assert where == "cold, from an NVMe disk (ext4)"
    full = {"page_cache": "full", "access": "random", "disk_limits": False, "read_mb_s": None}
    assert next(storage_page._where(full, None)) == "full: memory holds a part"
    assert any("warm, from memory" in line[1] for line in rows)


@pytest.mark.slow
def test_loss_is_never_recommended_silently(show: Show) -> None:
    """Where JPEG is the fastest of all it stands under its own heading, marked, and never under what to use."""
    view = show(suites=("storage",), formats=("png", "jpeg", "lmdb_png"), blocks=4)
    html, _ = sections(view)
    rows = table_rows(html)
    assert rows
    assert not any("jpeg" in cell for row in rows for cell in row[:-1])
    assert any("jpeg (lossy)" in row[-1] for row in rows)


def test_sizes_and_packing_are_told(compared: RunView) -> None:
    """Every format has a line with its bytes and what packing took."""
    _, text = sections(compared)
    rows = table_rows(text)
    assert {row[0].split()[0] for row in rows} == set(FEW)
    png = next(row for row in rows if row[0] == "png PNG")
    assert png[1:3] == ["34.3 kB", "0.62"]
    assert re.fullmatch(r"[\d.]+ µs [\d.]+–[\d.]+", png[3])
    assert re.fullmatch(r"[\d.]+ ms [\d.]+–[\d.]+", png[4])
    assert re.fullmatch(r"[\d.]+ s [\d.,]+/s", png[5])
    assert "packing has no interval" in " ".join(text.split())


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
    text = plain("".join(sections(view)))
    assert not re.search(r"\bnan\b", text)
    assert "NA" not in text.split()
    if states := what.get("states"):
        absent = {"warm": "cold, from", "cold": "warm, from"}[states[0]]
        assert absent not in text


@pytest.mark.slow
def test_the_page_has_its_parts_once(compared: RunView) -> None:
    """On the suite's page the section stands before and after the charts, and the usual answer makes room for it."""
    body = suites_page.page("storage", "suites/storage.md", Suite("Which?", ()), [compared]).body
    assert body.count("fr-answer") >= 1
    assert body.index("What to use") < body.index("Size, CPU and")
    assert "PyTorch’s default loader" not in unescape(body)


def test_tokens_are_told_without_a_size() -> None:
    """Answers, details and charts of a run of tokens name the workload alone."""
    rates = {"memmap": 900.0, "lmdb": 600.0}
    cells = [cell for workers in (0, 2) for cell in format_cells(rates, workload="tokens", num_workers=workers)]
    frame = make_format_trials(cells)
    manifest = SimpleNamespace(machine=SimpleNamespace(storage=None), excluded=(), datasets=())
    view: Any = SimpleNamespace(trials_of=lambda _: frame, manifest=manifest, mark="m", suites=("storage",))
    text = "".join(sections(view))
    assert "tokens" in text
    assert not re.search(r"[ \u00a0]px", text)
    ((part, _),) = charts.parts(frame)
    assert part.row()["patch_size"] is None
