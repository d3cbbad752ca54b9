"""Files that are not what they should be, by the thousand: each is refused with a reason, or holds what it held.

Nothing crashes, nothing hangs, nothing takes more memory than it may, nothing is written.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

from feedrate.share.validation import caps, guard


def check(files: Iterable[tuple[str, bytes]], run: Path, folder: Path, corpus: ModuleType) -> Counter[str]:
    """Put files in the place of a run's trials, one after the other, and judge each run: counts by kind and result."""
    shutil.copytree(run, place := folder / run.name)
    target, before = place / "trials.parquet", sorted(folder.parent.rglob("*"))
    original = pq.read_table(run / "trials.parquet")
    counts: Counter[str] = Counter()
    with guard.Guard() as asked:
        for name, data in files:
            target.write_bytes(data)
            begun = time.monotonic()
            found = asked.check(place)
            assert time.monotonic() - begun < caps.SECONDS.most, name
            kind = name.partition("/")[0]
            counts.update((kind, "accepted" if found.valid else "refused"))
            assert not found.valid or kind not in corpus.BROKEN, name
            for finding in found.findings:
                assert all((finding.where, finding.got, finding.expected)), name
                assert str(finding).isprintable(), name
                assert len(str(finding)) < 4_000, name
            if found.valid and kind != "values":  # what is written anew, with right checksums, may be another truth
                read = corpus.read(data)
                assert read.equals(original), name
                assert json.loads(read.schema.metadata[b"feedrate"]) == json.loads((run / "run.json").read_text()), name
    assert sorted(folder.parent.rglob("*")) == before
    return counts


def test_a_sample_of_mutations_is_refused_or_harmless(
    run: Path, valid: bytes, corpus: ModuleType, tmp_path: Path
) -> None:
    """The first files of every kind."""
    check(islice(corpus.mutated(valid, 1), 60), run, tmp_path, corpus)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_mutation_is_accepted_whose_values_differ(
    run: Path, valid: bytes, corpus: ModuleType, tmp_path: Path
) -> None:
    """Of more than 2,000 files none is accepted that holds another value than the one that it was made of."""
    counts = check(corpus.mutated(valid, 7), run, tmp_path, corpus)
    print(dict(counts))
    assert counts["accepted"] + counts["refused"] - counts["values"] >= 2_000
    assert set(corpus.KINDS) <= counts.keys()


def test_what_is_written_is_read_back(valid: bytes, corpus: ModuleType) -> None:
    """A footer that is taken apart and put together again is the same file: the corpus changes what it means to."""
    assert corpus.raw.closed(valid, corpus.raw.footer_of(valid)) == valid
