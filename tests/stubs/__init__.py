"""Libraries of a GPU's driver that are not there, in C; compiled when a test needs them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def compile_library(name: str, folder: Path, *flags: str) -> Path:
    """Compile ``name.c`` to ``name.so.1``; gives the folder, for LD_LIBRARY_PATH."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source = Path(__file__).with_name(f"{name}.c")
    warnings = ("-Wall", "-Wextra", "-Werror")
    target = folder / f"{name}.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", *warnings, *flags, "-o", target, source], check=True)
    return folder
