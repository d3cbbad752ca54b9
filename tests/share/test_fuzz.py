"""Files that are not what they should be: each is refused with a reason, or holds what it held.

Nothing crashes, nothing hangs, nothing takes more memory than it may, nothing is written.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

from feedrate.share import validator

SEED = 7
OF_A_KIND = 8
"""Files of each kind; ``SHORT`` are the kinds that have few, each of them another."""
SHORT = ("magic", "schemas", "bombs", "ambiguous")


def placed(files: Iterable[tuple[str, bytes]], run: Path, root: Path) -> Iterator[tuple[str, Path]]:
    """Put files in the place of a run's trials, each in a copy of its own: its name and the folder."""
    for at, (name, data) in enumerate(files):
        folder = root / str(at)
        folder.mkdir(parents=True)
        for other in ("run.json", "steps.parquet", "telemetry.parquet"):
            os.link(run / other, folder / other)
        (folder / "trials.parquet").write_bytes(data)
        yield name, folder


def chosen(corpus: ModuleType, valid: bytes) -> Iterator[tuple[str, bytes]]:
    """The first files of every kind, or all of a short one."""
    for kind, make in corpus.KINDS.items():
        files = make(valid, random.Random(f"{SEED}:{kind}"))
        yield from files if kind in SHORT else islice(files, OF_A_KIND)


@pytest.mark.slow
def test_no_mutation_is_accepted_whose_values_differ(
    run: Path, valid: bytes, corpus: ModuleType, tmp_path: Path
) -> None:
    """Each file is refused with where and what, or holds what it held; nothing beside it is written."""
    assert corpus.raw.closed(valid, corpus.raw.footer_of(valid)) == valid
    original, manifest = corpus.read(valid), json.loads((run / "run.json").read_text())
    files = list(placed(chosen(corpus, valid), run, tmp_path / "files"))
    before = sorted(tmp_path.rglob("*"))
    results = list(validator.judged([(folder, False) for _, folder in files]))
    assert sorted(tmp_path.rglob("*")) == before
    counts = Counter(name.partition("/")[0] for name, _ in files)
    assert counts.keys() == corpus.KINDS.keys()
    assert min(counts[kind] for kind in counts.keys() - SHORT) == OF_A_KIND
    for (name, folder), result in zip(files, results, strict=True):
        kind = name.partition("/")[0]
        assert not result.valid or kind not in corpus.BROKEN, name
        for finding in result.findings:
            assert all((finding.where, finding.got, finding.expected)), name
            assert str(finding).isprintable(), name
            assert len(str(finding)) < 4_000, name
        if result.valid and kind != "values":  # what is written anew, with right checksums, may be another truth
            read = corpus.read((folder / "trials.parquet").read_bytes())
            assert read.equals(original), name
            assert json.loads(read.schema.metadata[b"feedrate"]) == manifest, name
