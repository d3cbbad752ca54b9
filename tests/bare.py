"""Environments that have little installed: their packages are links to some of this one's."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(names: Iterable[str]) -> list[Distribution]:
    """Installed packages and all that they need, without what is optional."""
    packages = {normal(each.metadata["Name"]): each for each in distributions()}
    found: dict[str, Distribution] = {}
    wanted = [normal(name) for name in names]
    while wanted:
        name = wanted.pop()
        if name in found or name not in packages:
            continue
        found[name] = packages[name]
        required = (line for line in packages[name].requires or () if "extra ==" not in line)
        wanted += [normal(re.split(r"[^\w.-]", line, maxsplit=1)[0]) for line in required]
    return list(found.values())


def environment(folder: Path, names: Iterable[str]) -> Path:
    """Make a virtual environment with some packages and what they need; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    there = next(folder.glob("lib/python*/site-packages"))
    for package in needed(names):
        for top in {Path(file).parts[0] for file in package.files or ()} - {".."}:
            source = Path(sysconfig.get_path("purelib")) / top
            if source.exists() and not (there / top).exists():
                (there / top).symlink_to(source)
    return folder / "bin" / "python"
