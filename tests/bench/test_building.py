"""A site is built by the command that people type; one that is not built says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.bench import building
from harness.errors import FeedrateError


@pytest.mark.slow
def test_a_build_is_watched_to_its_end(tmp_path: Path) -> None:
    """The site is built by the command that people type, and its memory is seen; a build that fails says why."""
    built = building.build("no results", tmp_path / "results", tmp_path / "build")
    assert (built.folder / "index.html").is_file()
    assert built.took_s > 1
    assert 5e7 < built.peak_bytes < 4e9
    precious = tmp_path / "mine" / "site" / "precious.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("mine")
    with pytest.raises(FeedrateError, match=r"a foreign folder was not built.*did not make"):
        building.build("a foreign folder", tmp_path / "results", tmp_path / "mine")
