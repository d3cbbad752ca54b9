"""Plug-ins by file name: a new workload, format, suite or chart is one new file.

Names come from a scan of the folder, requirements and traits from literals in the file (``REQUIRES``, ``TRAITS``), all
without importing it: planning must know what exists and what is missing, and may load neither torch nor an optional
library.
Files whose name begins with an underscore and sub-packages are not plug-ins.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.errors import InputError, expected_one_of

ROOT = Path(__file__).resolve().parent.parent


def names(package: str) -> tuple[str, ...]:
    """List the plug-ins of a package such as ``harness.formats``, sorted, without importing any of them."""
    folder = ROOT.joinpath(*package.split("."))
    return tuple(sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")))


@cache
def declared(package: str, name: str, literal: str) -> Any:
    """Read an annotated literal of a plug-in's file, such as ``REQUIRES``, without importing it.

    Returns:
        Its value; None where the file has no such literal.
    """
    path = ROOT.joinpath(*package.split("."), f"{name}.py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == literal:
            return ast.literal_eval(node.value) if node.value else None
    return None


@cache
def missing(package: str, name: str) -> dict[str, str]:
    """Say which third-party modules a plug-in needs and this environment lacks.

    Returns:
        Import name to the name that ``pip install`` takes; empty when the plug-in can be used.
    """
    requires: dict[str, str] = declared(package, name, "REQUIRES") or {}
    return {module: pip for module, pip in requires.items() if importlib.util.find_spec(module) is None}


def load(package: str, name: str) -> ModuleType:
    """Import one plug-in.

    Raises:
        InputError: there is no such plug-in, or a module that it needs is not installed.
    """
    if name not in names(package):
        raise InputError(f"{package}: unknown name '{name}'; {expected_one_of(name, names(package))}")
    if lacking := missing(package, name):
        raise InputError(f"{package}.{name}: needs {', '.join(lacking)}; run: pip install {' '.join(lacking.values())}")
    return importlib.import_module(f"{package}.{name}")
