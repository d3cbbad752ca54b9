"""The pages of storage: samples that are no images have no size to say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
from made_trials import format_cells, make_format_trials

from feedrate.questions.storage import charts
from feedrate.questions.storage.page import StorageSection


def tokens() -> pd.DataFrame:
    """Windows of tokens, loaded from two formats with and without workers."""
    rates = {"memmap": 900.0, "lmdb": 600.0}
    cells = [*format_cells(rates, workload="tokens"), *format_cells(rates, workload="tokens", num_workers=2)]
    return make_format_trials(cells)


def test_tokens_are_told_without_a_size() -> None:
    """Answers, details and charts of a run name the workload alone."""
    frame = tokens()
    machine = SimpleNamespace(storage=None)
    manifest: Any = SimpleNamespace(machine=machine, excluded=(), datasets=())
    view: Any = SimpleNamespace(trials_of=lambda _: frame, manifest=manifest, mark="m", suites=("storage",))
    section = StorageSection(view, "storage")
    text = section.answers("suites/storage.md") + section.details()
    assert "tokens" in text
    assert " px" not in text
    assert "\u00a0px" not in text
    (part,) = charts.parts(frame)
    assert part.row()["patch_size"] is None
