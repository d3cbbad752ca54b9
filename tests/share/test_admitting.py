"""One damaged file beside a run leaves out that run, and the site is built from the others."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from feedrate.share.validation import admission
from feedrate.store import marks
from feedrate.store.marks import FILE_MOST


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("label", " " * (FILE_MOST + 1), "8,193 bytes; expected a plain file of at most 8,192 bytes"),
        ("label", json.dumps({"label": "two\nlines"}), "label: Value error, holds control characters"),
        ("withdrawn", "{", "the whole: Invalid JSON"),
    ],
)
def test_a_damaged_file_beside_a_run_leaves_out_that_run(
    tmp_path: Path, fake_run: ModuleType, monkeypatch: pytest.MonkeyPatch, kind: str, text: str, words: str
) -> None:
    """The run is refused by a rule of its own, with the file and what is wrong with it; the others may be shown."""
    # What is inside a run's folder is the business of tests/incoming.
    monkeypatch.setattr(admission, "_validate", lambda folders, _: (dict.fromkeys(folders, ""), []))
    good, bad = (
        fake_run.write(tmp_path, fake_run.Fake(run_id=f"2026010{day}T030405Z-aaaa", blocks=1, batches=(8,)))
        for day in (2, 3)
    )
    marks.label(good, "Workstation")
    marks.place(bad, kind).write_text(text)
    found = admission.admit([good, bad])
    assert found.folders == (good,)
    (refused,) = found.refused
    assert refused.path == str(bad)
    (finding,) = refused.refusals
    assert finding.rule == admission.BESIDE.name
    assert f"{bad.name}.{kind}.json: {words}" in str(finding)
