"""The two packages with which the page Compare reads parquet files, from npm, beside the site's own scripts.

``site/package.json`` names them with their exact versions and ``site/package-lock.json`` with the hashes of what npm
may install; ``make setup`` installs them into ``.venv/npm``, so that building the site asks no network. They are copied
as they are, module by module, each with its licence: nothing is bundled or rewritten.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from harness.errors import EnvironmentFault
from harness.registry import ROOT

INSTALLED = ROOT / ".venv" / "npm" / "node_modules"
PINNED = ROOT / "site" / "package.json"
_LICENCE = "LICENSE"


@dataclass(frozen=True, slots=True)
class Package:
    """What is taken of one package."""

    name: str
    modules: str
    """Glob of its modules, for browsers."""
    entry: str
    """The module that others import, which becomes ``index.js``."""
    unfit: tuple[str, ...] = ()
    """Modules that only work outside of browsers."""


PACKAGES = (
    Package("hyparquet", "src/*.js", "src/index.js", ("node.js",)),
    Package("fzstd", "esm/index.mjs", "esm/index.mjs"),
)


def copy(target: Path, installed: Path = INSTALLED) -> None:
    """Copy the packages' modules, each package into a folder of its name.

    Args:
        target: gets the folders.
        installed: npm's ``node_modules``.

    Raises:
        EnvironmentFault: a package is missing, or not of the version that is pinned.
    """
    wanted: dict[str, str] = json.loads(PINNED.read_text(encoding="utf-8"))["dependencies"]
    for package in PACKAGES:
        source, folder = installed / package.name, target / package.name
        _check(source, wanted[package.name])
        folder.mkdir(parents=True)
        for path in sorted(source.glob(package.modules)):
            if path.name not in package.unfit:
                entry = path == source / package.entry
                shutil.copyfile(path, folder / ("index.js" if entry else path.name))
        shutil.copyfile(source / _LICENCE, folder / _LICENCE)


def _check(source: Path, wanted: str) -> None:
    try:
        found = json.loads((source / "package.json").read_text(encoding="utf-8"))["version"]
    except FileNotFoundError:
        found = "nothing"
    if found != wanted:
        raise EnvironmentFault(
            f"{source}: found {found}; expected version {wanted}, with which the page Compare reads files. "
            "Type make setup: it installs what site/package-lock.json names"
        )
