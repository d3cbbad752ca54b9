"""Commands of feedrate as a user types them, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def harness(*arguments: str, path: Path | None = None) -> str:
    """Run a command to its good end, finding other programs in one folder if it is named: what it printed."""
    from feedrate.schema.plugins import ROOT

    done = subprocess.run(
        [sys.executable, "-m", "feedrate", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | ({"PATH": str(path)} if path else {}),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
