"""All runs as one archive that can be cited: the archive, its checksum, and the metadata with which it gets a DOI.

Zenodo (https://developers.zenodo.org/#depositions) takes the metadata as it stands here. The archive is the same
whenever it is made of the same runs. It holds the runs that keep to every rule, with their marks, and bench records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from feedrate.schema import words
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import RESOURCES
from feedrate.share import validator
from feedrate.share.findings import FILES
from feedrate.share.submission import write_zip
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
    """What was written, and how many runs break a rule and are not in it."""

    archive: Path
    runs: int
    refused: int


def make(results: Path, out: Path) -> Release:
    """Write archive, ``SHA256SUMS`` and ``zenodo.json`` into a folder.

    Raises:
        InputError: there is no run.
        EnvironmentFault: the disk cannot be written, or a store cannot be read.
    """
    here = remote.copy(results)
    admitted = validator.admit(runs.folders(here))
    released = runs.runs(here, set(admitted.folders))
    if not released:
        raise InputError(f"{results}: no run that can be released; expected one at least: make sweep makes one")
    about = metadata(released)
    files = [run.folder / name for run in released for name in FILES]
    marked = [marks.mark_file(run.folder, kind) for run in released for kind in marks.KINDS]
    files = sorted([*files, *filter(Path.is_file, marked), *here.glob("*/bench/*.json")])
    texts = [("README.txt", _README.format(**about).encode()), (_CITATION.name, _CITATION.read_bytes())]
    contents = ((f"results/{path.relative_to(here).as_posix()}", path.read_bytes()) for path in files)
    path = runs.make_folder(out) / f"feedrate-data-{about['publication_date'].replace('-', '')}.zip"
    with runs.replacing(path) as file:
        write_zip(file, chain(texts, contents))
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    runs.write_whole(out / "SHA256SUMS", f"{digest}  {path.name}\n".encode())
    runs.write_whole(out / "zenodo.json", json.dumps({"metadata": about}, indent=1).encode() + b"\n")
    return Release(path, len(released), len(admitted.refused))


def metadata(released: Sequence[StoredRun]) -> dict[str, Any]:
    """Describe runs as Zenodo asks for it; the date is the newest run's."""
    cited = yaml.safe_load(_CITATION.read_text(encoding="utf-8"))
    manifests = [run.manifest for run in released]
    machines = len({manifest.machine.machine_id for manifest in manifests})
    devices = sorted({manifest.machine.gpu_name or "no GPU" for manifest in manifests})
    held = f"{words.plural(len(released), 'run')} of feedrate on {words.plural(machines, 'machine')}"
    protocol = f"({', '.join(devices)}), protocol {manifests[0].protocol_version}"
    return {
        "title": f"Results of {cited['title']}",
        "upload_type": "dataset",
        "description": f"{held} {protocol}: throughput and times of phases of training steps, by trial.",
        "creators": [{"name": author["name"]} for author in cited["authors"]],
        "license": cited["license"].lower(),
        "keywords": cited["keywords"],
        "version": cited["version"],
        "publication_date": max(manifest.ended_at for manifest in manifests)[:10],
        "access_right": "open",
    }
