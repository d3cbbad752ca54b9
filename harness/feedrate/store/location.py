"""Where results lie: a folder, or a store that fsspec reaches by a URL such as ``s3://bucket/results``.

A folder is a ``pathlib.Path``. A store is a ``upath.UPath``, which has the same methods; types say ``Path`` for both.
What differs is here: a store is listed as a whole, as a request for each folder would take longer than all of the rest;
many small files are asked for at once; and of a long table only the blocks that are wanted are fetched.

Credentials are those that the store's own client finds in the user's environment; a URL that holds any is refused.
"""

from __future__ import annotations

import os
import re
import secrets
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from feedrate.schema.errors import EnvironmentFault, FeedrateError, InputError
from feedrate.schema.redaction import one_line

_URL = re.compile(r"(?P<protocol>[A-Za-z][\w.+-]*)(?P<chained>::[^/]*)?://(?P<rest>.*)", re.DOTALL)
_SECRET = re.compile(r":[^@]*@|[?#]")
"""What only a URL with a password, a token or a signature has."""
_ENDING = re.compile(r"\?\S+")
"""What a client's message says of a request behind its path: signatures among it."""
_OBJECTS = frozenset(("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "hf", "memory"))
"""Stores that show an object when all of it is there; elsewhere a file is written under another name and renamed."""
_LOCAL = ("file", "local")
_EXPECTED = "expected a folder, or a URL such as s3://bucket/results, gs://bucket/results or ssh://host/results"
_BLOCK = 2**20
"""Bytes that are asked for together: what a store sends in the time that it takes to answer at all, about. Half of a
table of trials is its footer, and few are longer than this: those come in one request."""
_SHOWN = 300
"""Characters of what a client says."""


def parse(text: str | Path) -> Path:
    """Read a location as people type it; nothing is asked of a store yet, and a password is refused."""
    if not isinstance(text, str) or not (url := _URL.fullmatch(text)):
        return Path(text).expanduser()
    protocol, rest = url["protocol"].lower(), url["rest"]
    if url["chained"] or _SECRET.search(rest):
        advice = "Credentials come from the environment or the configuration of the store's own client"
        raise InputError(f"{protocol}://…: a URL with a password, a token or a second protocol; {_EXPECTED}. {advice}")
    if protocol in _LOCAL:
        return Path(rest)
    _require_client(protocol)
    from upath import UPath

    with warnings.catch_warnings(action="ignore", category=UserWarning):  # that a protocol has no class of its own
        return cast("Path", UPath(f"{protocol}://{rest.rstrip('/')}"))


def _require_client(protocol: str) -> None:
    import fsspec

    try:
        fsspec.get_filesystem_class(protocol)
    except ValueError as error:
        raise InputError(f"{protocol}://: no store's protocol; {_EXPECTED}") from error
    except ImportError as error:
        missing = getattr(error.__cause__ or error, "name", None) or protocol
        package = missing.partition(".")[0].replace("_", "-")
        advice = f"expected {package}. Type pip install {package}"
        raise InputError(f"{protocol}://: the store's client is not installed; {advice}") from error


def identity(path: Path) -> str:
    """Name a path of a store, with the host that the text of some paths leaves out."""
    store = cast("Any", path)
    return f"{store.protocol} {sorted(store.storage_options.items())} {store.path}"


def remote(path: Path) -> bool:
    """Whether a path is in a store."""
    return not isinstance(path, Path)


@contextmanager
def answered(path: Path) -> Iterator[None]:
    """Turn whatever a store's client raises into an EnvironmentFault; what a folder raises passes."""
    try:
        yield
    except Exception as error:
        if isinstance(error, FeedrateError) or not remote(path):
            raise
        message = f"{type(error).__name__}: {_ENDING.sub('', one_line(str(error)))[:_SHOWN]}"
        expected = "expected one that can be reached with the credentials of this environment"
        raise EnvironmentFault(f"{path}: the store did not do what was asked: {message}; {expected}") from error


def glob(folder: Path, pattern: str) -> list[Path]:
    """List the files below a folder whose names match a pattern such as ``*/*/run.json``, in no order."""
    if not remote(folder):
        return list(folder.glob(pattern))
    depth = pattern.count("/")  # which fnmatch takes for any other character
    return [folder / name for name in listing(folder) if name.count("/") == depth and fnmatchcase(name, pattern)]


def listing(folder: Path) -> dict[str, int]:
    """Map every file below a folder of a store, by its path from there, to its bytes."""
    files, root = _client(folder)
    with answered(folder):
        files.invalidate_cache()
        entries = files.find(root, detail=True)
    return {name.removeprefix(root).lstrip("/"): int(about["size"] or 0) for name, about in entries.items()}


def _client(path: Path) -> tuple[Any, str]:
    """The client of a store, and what it calls a path."""
    upath = cast("Any", path)
    with answered(path):
        return upath.fs, upath.path.rstrip("/")


def is_file(path: Path) -> bool:
    """Whether there is a file of this name."""
    with answered(path):
        return path.is_file()


def status(path: Path) -> os.stat_result | None:
    """What is known of a file, or of the link that it is; None where there is none."""
    with answered(path):
        try:
            return path.stat() if remote(path) else path.lstat()
        except FileNotFoundError:
            return None


def contents(paths: Sequence[Path]) -> list[bytes]:
    """Read small files whole, those of a store at once."""
    if not paths or not remote(paths[0]):
        return [path.read_bytes() for path in paths]
    files, _ = _client(paths[0])
    names = [_client(path)[1] for path in paths]
    with answered(paths[0].parent):
        data = files.cat(names)
    return [data[name] for name in names]


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Give a table in the form in which ``pyarrow`` reads the parts that it needs, and those alone."""
    if not remote(path):
        yield path
        return
    files, name = _client(path)
    with answered(path):
        file = files.open(name, "rb", block_size=_BLOCK, cache_type="blockcache")
    with file:
        file.read = answered(path)(file.read)  # what reads it takes an error of the store for a damaged table
        yield file


def put(path: Path, data: bytes | Path) -> None:
    """Write a file of a store, from bytes or from a file here, so that a reader sees all of it or none.

    Raises:
        EnvironmentFault: the store did not take it; it is as it was.
    """
    files, name = _client(path)
    whole = cast("Any", path).protocol in _OBJECTS
    target = name if whole else f"{name}.{secrets.token_hex(4)}.tmp"
    with answered(path):
        if not whole:
            files.makedirs(name.rpartition("/")[0], exist_ok=True)
        if isinstance(data, bytes):
            files.pipe_file(target, data)
        else:
            files.put_file(str(data), target)
        if not whole:
            files.mv(target, name)


def get(folder: Path, names: Sequence[str], into: Path) -> None:
    """Copy files below a folder of a store into a folder here, several at once; a cut leaves some of them, or parts."""
    files, root = _client(folder)
    with answered(folder):
        files.get([f"{root}/{name}" for name in names], [str(into / name) for name in names])
