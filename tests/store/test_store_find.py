"""A run that is not found: what the message says."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from feedrate.schema.errors import InputError
from feedrate.store import runs

RUN = "20260102T030405Z-fake"


def refused(run: str, results: Path) -> str:
    """The message."""
    with pytest.raises(InputError) as error:
        runs.find(run, results)
    return str(error.value)


def test_a_name_of_nothing_is_told_what_there_is(fake_run: ModuleType, tmp_path: Path) -> None:
    """Nothing typed, something else typed, nothing there: each message says one time what was expected."""
    none = refused("", tmp_path)
    assert none == f"RUN= is missing; {tmp_path} holds none yet: make sweep makes one"
    fake_run.write(tmp_path, fake_run.Fake(run_id=RUN, batches=(8,), workers=(0,), blocks=1))
    assert refused("", tmp_path) == f"RUN= is missing; expected the id of a run, such as {RUN}, or the folder of one"
    wrong = refused(RUN[:-1], tmp_path)
    assert wrong.startswith(
        f"'{RUN[:-1]}': no such run under {tmp_path}; expected one of {RUN} (did you mean '{RUN}'?)"
    )
    assert wrong.count("expected") == 1
