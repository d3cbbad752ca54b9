"""Commands of feedrate as a user types them, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def harness(*arguments: str, cores: set[int] | None = None, path: Path | None = None) -> str:
    """Run a command to its good end.

    Args:
        arguments: what is typed after ``python -m feedrate``.
        cores: the only ones that it may use; all if none are named.
        path: the only folder in which it finds other programs; as here if none is named.

    Returns:
        What it printed.
    """
    from feedrate.schema.plugins import ROOT

    done = subprocess.run(
        [sys.executable, "-m", "feedrate", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | ({"PATH": str(path)} if path else {}),
        preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
