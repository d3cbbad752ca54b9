"""What a Python lacks is told at once, before anything is imported that may be missing, too old or broken."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from feedrate.machine import packages
from feedrate.schema.errors import EnvironmentFault
from feedrate.schema.plugins import ROOT

SOURCE = str(ROOT / "harness")


@pytest.mark.parametrize("driver", [True, False])
def test_what_asks_the_driver_is_needed_where_there_is_one(driver: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pynvml a machine with a GPU would pass for one without; where there is no driver nothing asks for it."""

    def load(library: str) -> None:
        if not driver:
            raise OSError(library)

    there = importlib.util.find_spec
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pynvml" else there(name))
    if driver:
        with pytest.raises(EnvironmentFault, match=r"lacks nvidia-ml-py; .*pip install 'nvidia-ml-py>="):
            packages.check(packages.to_measure(), "")
    else:
        packages.check(packages.to_measure(), "")


NEW_ENOUGH = ("2.11.0+cu128", "2.15.0a0+git1234", "3.0", "3", "2.11", "unknown")


@pytest.mark.parametrize("found", [*NEW_ENOUGH, "2.10.1", "2.9.1+cu117", "2"])
def test_a_torch_that_is_too_old_is_refused(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its number, whatever it was built for; the message names both versions and what to type."""
    monkeypatch.setattr(metadata, "version", lambda _: found)
    monkeypatch.setattr(packages, "least", lambda: {"torch": "2.11"})
    if found in NEW_ENOUGH:
        packages.check({"torch": "torch"}, "")
    else:
        with pytest.raises(EnvironmentFault, match=rf"has torch {re.escape(found)}; .*'torch>=2.11'"):
            packages.check({"torch": "torch"}, "")


def test_all_that_is_missing_or_too_old_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every package that pyproject.toml asks a version of, beside those that are missing; and what to type."""
    old = {"pyarrow": "14.0.1", "pandas": "1.5.3", "numpy": "1.26.4", "pydantic": "1.10.2"}
    monkeypatch.setattr(metadata, "version", lambda name: old.get(name, "1000"))
    with pytest.raises(EnvironmentFault) as told:
        packages.check({"no_such": "pillow"} | packages.COMMAND | packages.MEASURING, "")
    assert "lacks pillow and has pydantic 1.10.2, numpy 1.26.4, pandas 1.5.3, pyarrow 14.0.1;" in str(told.value)
    oldest = packages.least()
    assert all(f"'{name}>={oldest[name]}'" in str(told.value) for name in (*old, "pillow"))
    needed = {"no_such_module": "no-such-package", "json": "json", "no_such_yaml": "pyyaml"}
    typed = r"pip install no-such-package 'pyyaml>=[\d.]+', or do without"
    with pytest.raises(EnvironmentFault, match=rf"lacks no-such-package, pyyaml; .*{typed}"):
        packages.check(needed, "do without")


def test_what_is_needed_is_what_the_project_says() -> None:
    """Every package has an oldest version in pyproject.toml, read as pip reads it, and so has Python: 3.11 to 3.13."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = chain(project["dependencies"], *project["optional-dependencies"].values())
    depends = {each.name: each.specifier for each in map(Requirement, lines)}
    needed = {*packages.COMMAND.values(), *packages.MEASURING.values(), "nvidia-ml-py"}
    assert {name: str(depends[name]) for name in needed} == {name: f">={packages.least()[name]}" for name in needed}
    assert all(SpecifierSet(project["requires-python"]).contains(f"3.{minor}") for minor in (11, 12, 13))


def refused(*words: str, **environment: str) -> str:
    """What the command line says where it cannot be imported."""
    command = [sys.executable, *words]
    env = os.environ | environment
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == EnvironmentFault.exit_status, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("named", "told"),
    [("pydantic-1.10.2", "has pydantic 1.10.2; expected"), ("other-1", "cannot import name .* from 'pydantic'")],
)
@pytest.mark.parametrize("command", ["plan", "gpu-reference"])
def test_a_package_that_cannot_be_used_is_named(command: str, named: str, told: str, tmp_path: Path) -> None:
    """One that is older than the command line's imports is told by its version, else by what the import came to."""
    (tmp_path / "pydantic.py").write_text("class BaseModel: ...\n")
    (tmp_path / f"{named}.dist-info").mkdir()
    name, _, number = named.partition("-")
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n"
    (tmp_path / f"{named}.dist-info" / "METADATA").write_text(metadata)
    assert re.search(told, refused("-m", "feedrate", command, PYTHONPATH=f"{tmp_path}:{SOURCE}"))


def test_a_python_that_is_too_old_is_told(tmp_path: Path) -> None:
    """Before anything of feedrate is read, which such a Python may not be able to."""
    (tmp_path / "python").write_text("#!/bin/sh\n[ $1 = -V ] && echo Python 3.10.1\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    command = ["make", "gpu-reference", f"PYTHON={tmp_path / 'python'}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "needs Python 3.11 or newer" in done.stdout
    assert "Python 3.10.1" in done.stdout


def test_a_python_without_packages_says_so() -> None:
    """No traceback where not even the command line can be read; each command names its own way out."""
    own = ", ".join(packages.COMMAND.values())
    others = refused("-S", "-m", "feedrate", "plan", PYTHONPATH=SOURCE)
    assert f"lacks {own}; " in others
    assert "or type make commands, which make an environment of their own" in others
    reference = refused("-S", "-m", "feedrate", "gpu-reference", PYTHONPATH=SOURCE)
    assert f"lacks {own}, {', '.join((*packages.MEASURING.values(), *packages.IN_TURN.values()))}" in reference
    assert "or name another Python (PYTHON=)" in reference
    assert "make commands" not in reference
