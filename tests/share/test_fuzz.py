"""Files that are not what they should be, by the thousand: each is refused with a reason, or holds what it held.

Nothing crashes, nothing hangs, nothing takes more memory than it may, nothing is written.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType

import pytest

from feedrate.share import validator

AT_ONCE = 100
FEW = ("magic", "schemas", "ambiguous")
"""Kinds of few files, of which none is left out."""


def placed(files: Iterable[tuple[str, bytes]], run: Path, root: Path) -> Iterator[tuple[str, Path]]:
    """Put files in the place of a run's trials, each in a copy of its own: its name and the folder."""
    for at, (name, data) in enumerate(files):
        folder = root / str(at)
        folder.mkdir(parents=True)
        for other in ("run.json", "steps.parquet", "telemetry.parquet"):
            os.link(run / other, folder / other)
        (folder / "trials.parquet").write_bytes(data)
        yield name, folder


def check(files: Iterable[tuple[str, bytes]], run: Path, root: Path, corpus: ModuleType) -> Counter[str]:
    """Judge the run with each of the files: counts by kind and result."""
    original, manifest = corpus.read((run / "trials.parquet").read_bytes()), json.loads((run / "run.json").read_text())
    counts: Counter[str] = Counter()
    files = iter(files)
    while part := dict(placed(islice(files, AT_ONCE), run, root)):
        before = sorted(root.rglob("*"))
        results = list(validator.judged([(folder, False) for folder in part.values()]))
        assert sorted(root.rglob("*")) == before
        for name, result in zip(part, results, strict=True):
            kind = name.partition("/")[0]
            counts.update((kind, "accepted" if result.valid else "refused"))
            assert not result.valid or kind not in corpus.BROKEN, name
            for finding in result.findings:
                assert all((finding.where, finding.got, finding.expected)), name
                assert str(finding).isprintable(), name
                assert len(str(finding)) < 4_000, name
            if result.valid and kind != "values":  # what is written anew, with right checksums, may be another truth
                read = corpus.read((part[name] / "trials.parquet").read_bytes())
                assert read.equals(original), name
                assert json.loads(read.schema.metadata[b"feedrate"]) == manifest, name
        shutil.rmtree(root)
    return counts


def chosen(files: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Every thirteenth file, the first of each kind, and all of the kinds of few."""
    seen = set()
    for at, (name, data) in enumerate(files):
        kind = name.partition("/")[0]
        if at % 13 == 0 or kind not in seen or name.startswith(FEW):
            yield name, data
        seen.add(kind)


@pytest.mark.slow
def test_a_sample_of_mutations_is_refused_or_harmless(
    run: Path, valid: bytes, corpus: ModuleType, tmp_path: Path
) -> None:
    """The first files of every kind; a footer that is taken apart and put together again is the same file."""
    assert corpus.raw.closed(valid, corpus.raw.footer_of(valid)) == valid
    check(islice(corpus.mutated(valid, 1), 20), run, tmp_path / "files", corpus)


@pytest.mark.slow
def test_no_mutation_is_accepted_whose_values_differ(
    run: Path, valid: bytes, corpus: ModuleType, tmp_path: Path
) -> None:
    """Of some 200 files none is accepted that holds another value than the one that it was made of."""
    counts = check(chosen(corpus.mutated(valid, 7)), run, tmp_path / "files", corpus)
    print(dict(counts))
    assert counts["accepted"] + counts["refused"] - counts["values"] >= 150
    assert set(corpus.KINDS) <= counts.keys()
