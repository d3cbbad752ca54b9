"""What a Python must have installed to run feedrate, told without loading any of it.

This imports the standard library alone, and of that what every command needs: it is asked before anything else is
imported, and where nothing else can be. How old a package may be is read from ``pyproject.toml``.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain

from feedrate.schema.errors import EnvironmentFault
from feedrate.schema.plugins import ROOT

COMMAND = {"typer": "typer", "rich": "rich", "pydantic": "pydantic", "psutil": "psutil", "yaml": "pyyaml"}
"""What every command imports: import name → name that pip installs."""
SWEEPING = {"torch": "torch", "torchvision": "torchvision", "PIL": "pillow"}
"""What sweeping imports, which ``run``, ``tune`` and ``compare`` do without: they must not replace a script's torch."""
MEASURING = SWEEPING | {"numpy": "numpy", "pandas": "pandas", "pyarrow": "pyarrow"}
"""What measuring and checking import besides."""
EXTRAS = dict.fromkeys(("torch", "torchvision", "PIL", "lmdb", "pooch"), "sweep") | {"submitit": "slurm"}
"""Import name → the extra that brings it; of those that are not named, ``site``."""
IN_TURN = {
    "pydantic_core": "pydantic-core",
    "annotated_types": "annotated-types",
    "typing_inspection": "typing-inspection",
    "lmdb": "lmdb",
}
"""What pydantic imports, which an installation by hand may lack, and the format that claims about copies read."""
NVML = "libnvidia-ml.so.1"
"""The library of NVIDIA's driver that is asked for GPUs."""


def to_measure() -> dict[str, str]:
    """Say what must be installed to measure here: import name → name that pip installs.

    A machine with a driver and without pynvml would be taken for one without a GPU.
    """
    import ctypes

    try:
        ctypes.CDLL(NVML)
    except OSError:
        return COMMAND | MEASURING | IN_TURN
    return COMMAND | MEASURING | IN_TURN | {"pynvml": "nvidia-ml-py"}


def least() -> dict[str, str]:
    """Read the oldest versions that feedrate works with: name that pip installs → version."""
    checkout = ROOT / "pyproject.toml"
    if checkout.exists():
        import tomllib

        project = tomllib.loads(checkout.read_text(encoding="utf-8"))["project"]
        needs = list(chain(project["dependencies"], *project["optional-dependencies"].values()))
    else:
        from importlib.metadata import requires

        needs = requires("feedrate") or []
    lines = (re.match(r"([\w.-]+)>=([\d.]+)", line) for line in needs)
    return {line[1]: line[2] for line in lines if line}


def check(needed: Mapping[str, str], otherwise: str) -> None:
    """Check that packages are there and new enough; an EnvironmentFault names all others, and what else can be done."""
    from importlib import metadata

    oldest, old = least(), {}
    lacking = [pip for module, pip in needed.items() if importlib.util.find_spec(module) is None]
    for pip in (pip for pip in needed.values() if pip in oldest and pip not in lacking):
        with suppress(metadata.PackageNotFoundError):
            if _release(version := metadata.version(pip)) < _release(oldest[pip]):
                old[pip] = version
    if not lacking and not old:
        return
    problems = [f"lacks {', '.join(lacking)}"] if lacking else []
    problems += [f"has {', '.join(f'{pip} {named}' for pip, named in old.items())}"] if old else []
    wanted = [f"{pip}>={oldest[pip]}" if pip in oldest else pip for pip in (*lacking, *old)]
    raise EnvironmentFault(
        f"{sys.executable}: {' and '.join(problems)}; expected packages as new as pyproject.toml says. "
        f"Type: {shlex.join([sys.executable, '-m', 'pip', 'install', *wanted])}, or {otherwise}"
    )


def fault(error: ImportError, otherwise: str) -> EnvironmentFault:
    """Say why the command line itself cannot be imported."""
    try:
        check(COMMAND, otherwise)
    except EnvironmentFault as lacking:
        return lacking
    first = next(iter(str(error).splitlines()), type(error).__name__)
    return EnvironmentFault(
        f"{sys.executable}: {first}; expected packages that can be imported together. Install "
        f"{error.name or 'what is named there'} anew with pip, or {otherwise}"
    )


def missing_extra(error: ImportError) -> EnvironmentFault:
    """Say which optional part of feedrate a command needs that is not installed."""
    extra = EXTRAS.get((error.name or "").partition(".")[0], "site")
    return EnvironmentFault(
        f"{sys.executable}: lacks {error.name}; expected the packages that this command needs. Type: "
        f"{shlex.quote(sys.executable)} -m pip install 'feedrate[{extra}]'"
    )


def _release(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with, three at least: ``2.11.0a0+git1234`` → (2, 11, 0)."""
    numbers = re.match(r"\d+(?:\.\d+)*", text)
    parts = [int(number) for number in numbers[0].split(".")] if numbers else [sys.maxsize]
    return (*parts, *[0] * (3 - len(parts)))
