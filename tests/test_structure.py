"""The structure that ARCHITECTURE.md tells: import-linter holds the order of packages, these hold their faces."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from feedrate.schema.plugins import PACKAGE, ROOT

FILES = sorted(path for path in PACKAGE.rglob("*.py") if not path.is_relative_to(PACKAGE / "resources"))
MODULES = {
    ".".join(("feedrate", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__") for path in FILES
}


def package(module: str) -> str:
    """The package whose face a module lies behind; each question is one."""
    parts = module.split(".")
    return ".".join(parts[: 3 if parts[1:2] == ["questions"] else 2])


def imports(path: Path) -> Iterator[str]:
    """Modules of feedrate that a file imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("feedrate"):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else str(node.module) for name in names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_through_faces(path: Path) -> None:
    """Another package's module is used only where that package names it in its ``__all__``."""
    own = package(".".join(("feedrate", *path.relative_to(PACKAGE).with_suffix("").parts)))
    for module in imports(path):
        face = package(module)
        if face not in (own, "feedrate", module):
            assert module.removeprefix(f"{face}.") in importlib.import_module(face).__all__, f"{face} keeps {module}"


def test_the_top_holds_packages() -> None:
    """A newcomer meets packages, few of them, and hardly a module."""
    modules = {path.stem for path in PACKAGE.glob("*.py")}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"suites"}  # which lies at the top
    assert modules == {"__init__", "__main__"}
    assert len(packages) <= 20


def test_the_map_names_every_package() -> None:
    """ARCHITECTURE.md tells of every package and of no other file than those that are there."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for path in PACKAGE.glob("*/__init__.py"):
        assert f"`{path.parent.name}" in text or path.parent.name == "suites", path
    for name in re.findall(r"`([a-z]+/[\w/]+\.py|[a-z]+/[\w/]+/)`", text):
        assert "NAME" in name or "QUESTION" in name or (PACKAGE / name).exists() or (ROOT / name).exists(), name
