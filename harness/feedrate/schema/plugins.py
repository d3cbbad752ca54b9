"""Plug-ins by file name: a new workload, format or suite is one new file.

Names come from a scan of the folder, requirements and traits from literals in the file (``REQUIRES``, ``TRAITS``), all
without importing it: planning must know what exists and what is missing, and may load neither torch nor an optional
library. Files whose name begins with an underscore and sub-packages are not plug-ins.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from feedrate.schema.errors import InputError, expected_one_of

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parents[1]
"""The checkout, where feedrate runs from one."""
RESOURCES = PACKAGE / "resources"
"""The matrix, the site's sources and the texts that lie at the top of a checkout; a wheel holds copies."""


@cache
def names(package: str) -> tuple[str, ...]:
    """List the plug-ins of a package such as ``feedrate.formats``, sorted, without importing any of them."""
    return tuple(sorted(path.stem for path in _folder(package).glob("[!_]*.py")))


def _folder(package: str) -> Path:
    return PACKAGE.joinpath(*package.split(".")[1:])


@cache
def declared(package: str, name: str, literal: str) -> Any:
    """Read an annotated literal of a plug-in's file, such as ``REQUIRES``, without importing it; None without one."""
    if name not in names(package):
        return None
    for node in ast.parse((_folder(package) / f"{name}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == literal:
            return ast.literal_eval(node.value) if node.value else None
    return None


@cache
def missing(package: str, name: str) -> dict[str, str]:
    """Third-party modules that a plug-in needs and this environment lacks: import name to the name that pip takes."""
    requires: dict[str, str] = declared(package, name, "REQUIRES") or {}
    return {module: pip for module, pip in requires.items() if not _installed(module)}


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it belongs to
        return False


def load(package: str, name: str) -> ModuleType:
    """Import one plug-in; ``InputError`` where there is none, or a module that it needs is not installed."""
    if name not in names(package):
        raise InputError(f"{package}: unknown name '{name}'; {expected_one_of(name, names(package))}")
    if lacking := missing(package, name):
        raise InputError(f"{package}.{name}: needs {', '.join(lacking)}; run: pip install {' '.join(lacking.values())}")
    return importlib.import_module(f"{package}.{name}")


def samples_of(workload: str) -> str:
    """Say what a workload holds: ``images``, also where it does not say, ``files`` of any size, or ``tokens``."""
    return str(declared("feedrate.workloads", workload, "SAMPLES") or "images")


def on_device(decoder: str) -> bool:
    """Whether a decoder is the device's, which is handed the bytes of files."""
    return declared("feedrate.formats.decoders", decoder, "DEVICE") is not None


STREAM_SHARDS = 32
"""Files that a format which can only be streamed is cut into: at most so many workers can share it."""


ENCODED = ("png", "jpeg")
"""What image files are encoded as."""


@dataclass(frozen=True, slots=True)
class Traits:
    """A format's ``TRAITS``, a dictionary of literals in its file."""

    container: str
    """What holds the samples: files, lmdb, hdf5, raw file, zarr, arrow, tfrecord, recordio, tar, litdata."""
    stores: str
    """What a sample is on disk: pixels, lz4 or gzip (pixels, compressed), png, jpeg, files (as they are)."""
    holds: tuple[str, ...]
    """Kinds of samples (``SAMPLES`` of a workload) that can be packed: images, files of any size, tokens."""
    access: tuple[str, ...] = ("random", "sequential")
    """Orders in which samples can be read. A format without ``random`` is streamed: each worker reads whole shards."""
    knobs: tuple[str, ...] = ()
    """Axes that this format has and others have not: decoder, readahead, swmr."""
    lossy: bool = False
    """Whether what is read differs from what was packed."""
    mapped: bool = False
    """Whether its file is read through a memory map: around every fault the kernel reads as much as the disk is set to
    read ahead, unless ``readahead`` forbids it."""

    @property
    def streamed(self) -> bool:
        """Whether it can only be read from one end of a shard to the other."""
        return "random" not in self.access

    @property
    def encoded(self) -> bool:
        """Whether a sample is an image file, which is decoded, rather than its pixels."""
        return self.stores in ENCODED


@cache
def traits(storage_format: str) -> Traits:
    """Read the traits of a format by its name; one without ``TRAITS`` holds pixels in a container of its name.

    A name that is no format is left for others to complain of.
    """
    given: dict[str, Any] = {"container": storage_format, "stores": "pixels"}
    if storage_format in names("feedrate.formats"):
        given |= declared("feedrate.formats", storage_format, "TRAITS") or {}
    given.setdefault("holds", ("images",) if given["stores"] in ENCODED else ("images", "tokens"))
    return Traits(**given)


@dataclass(frozen=True, slots=True)
class LoaderTraits:
    """A loader's ``TRAITS``."""

    title: str
    """As its authors write it."""
    workers: str
    """What its workers are: ``processes``, or ``threads`` of the training process."""
    knobs: tuple[str, ...] = ()
    """Axes that this loader has and others have not: start_method, persistent_workers."""
    spawns: bool = False
    """Whether each worker is a fresh interpreter, which imports torch anew."""
    lacks: str = ""
    """What it cannot do that another can, in words."""
    streams: tuple[str, ...] = ()
    """Storage formats that it streams by itself, and nothing else. Without any it reads samples one by one."""
    decodes: bool = False
    """Whether it decodes and crops image files by itself, and hands over whole batches."""
    delivers: str = "bytes"
    """What the pixels of one that decodes are: ``bytes``, or ``floats`` that are normalised."""
    order: str = "any"
    """In which order it can deliver samples, in words."""
    errors: str = "raised"
    """What becomes of a sample that fails, in words: raised, or skipped."""
    resumes: bool = False
    """Whether its own state can be saved and restored in the middle of an epoch, with no sample twice or never."""


@cache
def loader_traits(loader: str) -> LoaderTraits:
    """Read the traits of a loader by its name; a name that is no loader is left for others to complain of."""
    return LoaderTraits(**declared("feedrate.loaders", loader, "TRAITS") or {"title": loader, "workers": "processes"})
