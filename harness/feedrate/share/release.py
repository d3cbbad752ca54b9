"""All runs as one archive that can be cited: the archive, its checksum, and the metadata with which it gets a DOI.

Zenodo (https://developers.zenodo.org/#depositions) takes the metadata as it stands here; other repositories of data ask
for the same. The archive is the same whenever it is made of the same runs. It holds the runs that keep to every rule,
with their marks, so that a run that was withdrawn says so, and what ``make bench`` found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from feedrate.schema import words
from feedrate.schema.errors import EnvironmentFault, InputError
from feedrate.schema.plugins import RESOURCES
from feedrate.share.submission import write_zip
from feedrate.share.validation import admission
from feedrate.share.validation.validator import FILES
from feedrate.store import marks, remote, runs
from feedrate.store.runs import StoredRun

_CITATION = RESOURCES / "CITATION.cff"
_README = """\
{title}

{description}

results/<machine_id>/<run_id>/run.json       what was run, where and how
results/<machine_id>/<run_id>/*.parquet      trials, steps and telemetry; each column says its unit and meaning
results/<machine_id>/<run_id>.<mark>.json    who vouches for a run, its label, whether it was withdrawn and why
results/<machine_id>/bench/<time>.json       how accurate feedrate was on that machine

pandas.read_parquet reads the tables; feedrate makes a website of all: feedrate site --results results
"""


class Release(NamedTuple):
    """What was written."""

    archive: Path
    runs: int
    refused: int
    """Runs that break a rule, and are not in it."""


def make(results: Path, out: Path) -> Release:
    """Write archive, ``SHA256SUMS`` and ``zenodo.json`` into a folder.

    Raises:
        InputError: there is no run.
        EnvironmentFault: the disk cannot be written, or a store cannot be read.
    """
    here = remote.copy(results)
    let_in = admission.admit(runs.folders(here))
    found = runs.runs(here, set(let_in.folders))
    if not found:
        raise InputError(f"{results}: no run that can be released; expected one at least: make sweep makes one")
    about = metadata(found)
    path = out / f"feedrate-data-{about['publication_date'].replace('-', '')}.zip"
    try:
        out.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            write_zip(file, _files(found, here, about))
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EnvironmentFault(f"{out}: {error.strerror}; expected a folder with free space (--out)") from error
    runs.write_whole(out / "SHA256SUMS", f"{digest}  {path.name}\n".encode())
    runs.write_whole(out / "zenodo.json", json.dumps({"metadata": about}, indent=1).encode() + b"\n")
    return Release(path, len(found), len(let_in.refused))


def metadata(found: Sequence[StoredRun]) -> dict[str, Any]:
    """Describe runs as Zenodo asks for it; the date is the newest run's."""
    cited = yaml.safe_load(_CITATION.read_text(encoding="utf-8"))
    manifests = [run.manifest for run in found]
    machines = len({manifest.machine.machine_id for manifest in manifests})
    versions = ", ".join(sorted({str(manifest.protocol_version) for manifest in manifests}))
    devices = sorted({manifest.machine.gpu_name or "no GPU" for manifest in manifests})
    return {
        "title": f"Results of {cited['title']}",
        "upload_type": "dataset",
        "description": f"{words.plural(len(found), 'run')} of feedrate on {words.plural(machines, 'machine')} "
        f"({', '.join(devices)}), protocol {versions}: throughput and times of phases of training steps, by trial.",
        "creators": [{"name": author["name"]} for author in cited["authors"]],
        "license": cited["license"].lower(),
        "keywords": cited["keywords"],
        "version": cited["version"],
        "publication_date": max(manifest.ended_at for manifest in manifests)[:10],
        "access_right": "open",
    }


def _files(found: Sequence[StoredRun], here: Path, about: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    yield "README.txt", _README.format(**about).encode()
    yield _CITATION.name, _CITATION.read_bytes()
    paths = [run.folder / name for run in found for name in FILES if (run.folder / name).is_file()]
    paths += [mark for run in found for kind in marks.KINDS if (mark := marks.place(run.folder, kind)).is_file()]
    for path in sorted([*paths, *here.glob("*/bench/*.json")]):
        yield f"results/{path.relative_to(here).as_posix()}", path.read_bytes()
