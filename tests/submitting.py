"""A checkout with a run that is not committed, a remote, and a made-up GitHub, for tests of submissions.

Every test file loads this module, so it imports no part of the harness before it is used.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

GH = """#!/bin/sh
printf '%s\\n' "$*" >> "$GH_LOG"
case "$*" in
"api user"*) echo ann ;;
"repo view --json"*) echo '{"nameWithOwner":"lab/feedrate","parent":null}' ;;
"repo view lab/feedrate --json url --jq .url") echo "$GH_BASE" ;;
"repo view lab/feedrate"*) printf '{"url":"%s","defaultBranchRef":{"name":"main"},"viewerPermission":"%s"}' \\
    "$GH_BASE" "$GH_RIGHT" ;;
"repo fork lab/feedrate --clone=false") [ -d "$GH_FORK" ] || git clone -q --bare "$GH_BASE" "$GH_FORK" ;;
"repo view ann/feedrate"*) echo "$GH_FORK" ;;
"pr create"*)
    if [ -f "$GH_DOWN" ]; then echo 'HTTP 502: try again' >&2; exit 1; fi
    /bin/cat > "$GH_BODY"
    echo https://github.com/lab/feedrate/pull/7 ;;
*) echo "fake gh: $*" >&2; exit 1 ;;
esac
"""
"""GitHub's command line, as far as it is asked: one repository, one account."""


def printed(call: Callable[[Console], object]) -> str:
    """What a function prints on a wide terminal."""
    console = Console(file=(text := io.StringIO()), width=200)
    call(console)
    return text.getvalue()


@dataclass
class Place:
    """A checkout with a remote, and an account on a made-up GitHub."""

    root: Path
    run: Path

    @property
    def checkout(self) -> Path:
        return self.root / "checkout"

    @property
    def remote(self) -> Path:
        return self.root / "lab.git"

    @property
    def fork(self) -> Path:
        return self.root / "ann.git"

    def git(self, *words: str, of: Path | None = None) -> str:
        done = subprocess.run(["git", *words], cwd=of or self.checkout, capture_output=True, text=True, check=True)
        return done.stdout

    def submit(self, answer: bool = True, **more: Any) -> str:
        """What is printed."""
        from feedrate.cli import submissions

        ask = {"ask": lambda _: answer, "checkout": self.checkout, "out": self.root / "build"}
        return printed(lambda console: submissions.publish(str(self.run), console, **ask, **more))

    @property
    def branch(self) -> str:
        return f"run/{self.run.parent.name}/{self.run.name}"

    @property
    def files(self) -> list[Path]:
        """What was made to be attached."""
        return list((self.root / "build").glob("*"))


def measured() -> Any:
    """The smallest run that was measured, as stored."""
    from feedrate.schema.plugins import ROOT
    from feedrate.store import runs

    return min(runs.runs(ROOT / "results"), key=lambda run: (run.folder / "steps.parquet").stat().st_size)


def make_faster(trials: Path) -> None:
    """Change one column of a run's trials, so that it breaks a rule."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    table = pq.read_table(trials)
    place = table.schema.get_field_index("samples_per_s")
    faster = pc.multiply(table.column("samples_per_s"), 1.5)
    pq.write_table(
        table.set_column(place, "samples_per_s", faster), trials, compression="zstd", write_page_checksum=True
    )


def prepared(tmp_path: Path, fake_run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A run that is not committed in a checkout of main, and ``git`` and ``gh`` alone on the path."""
    from feedrate.schema import redaction
    from feedrate.share import rules, validator

    run: Path = fake_run.write(tmp_path / "checkout" / "results", fake_run.Fake(blocks=3))
    made = Place(tmp_path, run)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(shutil.which("git") or "")
    (tmp_path / "bin" / "gh").write_text(GH)
    (tmp_path / "bin" / "gh").chmod(0o755)
    home = tmp_path / "home of zelda"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = Real Name\n\temail = real.name@example.org\n")
    for name, value in {
        "PATH": tmp_path / "bin",
        "HOME": home,
        "GH_LOG": tmp_path / "gh.log",
        "GH_BODY": tmp_path / "body.md",
        "GH_BASE": made.remote,
        "GH_FORK": made.fork,
        "GH_DOWN": tmp_path / "down",
        "GH_RIGHT": "WRITE",
        "GIT_CONFIG_NOSYSTEM": "1",
        "LOGNAME": "zelda",
    }.items():
        monkeypatch.setenv(name, str(value))
    for name in [name for name in os.environ if name.startswith(("GIT_DIR", "GIT_INDEX", "GIT_WORK"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(socket, "gethostname", lambda: "workhorse.example.org")
    # Files that were made up here harm no reader: no process of its own is started for each.
    monkeypatch.setattr(validator, "check", lambda folder, _: rules.judge(folder, in_place=True))
    redaction._own_names.cache_clear()
    made.git("init", "-q", "--bare", "-b", "main", str(made.remote), of=tmp_path)
    made.git("init", "-q", "-b", "main")
    (made.checkout / "README.md").write_text("feedrate\n")
    (made.checkout / "results" / "other").mkdir()
    (made.checkout / "results" / "other" / "run.json").write_text("{}")
    made.git("add", "README.md", "results/other")
    made.git("commit", "-q", "-m", "First")
    made.git("remote", "add", "origin", str(made.remote))
    made.git("push", "-q", "origin", "main")
    yield made
    redaction._own_names.cache_clear()
