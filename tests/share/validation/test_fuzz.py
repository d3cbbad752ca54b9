"""Files that are not what they should be, by the thousand: each is refused with a reason, or is a run after all.

Nothing crashes, nothing hangs, nothing takes more memory than it may, nothing is written.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedrate.share.validation import caps, guard, validator
from feedrate.share.validation.findings import Validated

FEWEST = 2_000
QUICK = 60


def look(files: list[tuple[str, bytes]], folder: Path) -> dict[str, Validated]:
    """Validate files in one guarded process, each under a name of its own."""
    paths = {}
    for at, (name, data) in enumerate(files):
        paths[name] = folder / f"{at}.parquet"
        paths[name].write_bytes(data)
    return dict(zip(paths, guard.check_all(paths.values()), strict=True))


def sound(name: str, found: Validated) -> None:
    """A file is refused with reasons in plain text, or it is a run."""
    assert found.valid or found.findings, name
    for finding in found.findings:
        text = str(finding)
        assert all((finding.where, finding.got, finding.expected)), name
        assert len(text) < 4_000, name
        assert text.isprintable(), name
        assert "\x1b" not in text


def test_a_sample_of_the_corpus_is_refused_or_sound(valid: bytes, corpus: ModuleType, tmp_path: Path) -> None:
    """The first files of every kind; those of kinds that are no parquet file any more are all refused."""
    files = [file for file, _ in zip(corpus.mutated(valid, 1), range(QUICK), strict=False)]
    for name, found in look(files, tmp_path).items():
        sound(name, found)
        assert name.split("/")[0] not in corpus.BROKEN or not found.valid, name


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_whole_corpus_is_refused_or_sound(valid: bytes, corpus: ModuleType, tmp_path: Path) -> None:
    """At least 2,000 files: none is accepted that must not be, none kills the reader unseen, none outlasts the cap."""
    counts: Counter[str] = Counter()
    outside = sorted(path.name for path in tmp_path.parent.iterdir())
    batch: list[tuple[str, bytes]] = []

    def flush() -> None:
        begun = time.monotonic()
        for name, found in look(batch, tmp_path).items():
            sound(name, found)
            kind = name.split("/")[0]
            counts[kind] += 1
            counts["refused"] += not found.valid
            assert kind not in corpus.BROKEN or not found.valid, name
        assert time.monotonic() - begun < caps.SECONDS.most * 2
        for path in tmp_path.iterdir():
            path.unlink()
        batch.clear()

    for file in corpus.mutated(valid, 7):
        batch.append(file)
        if len(batch) == 100:
            flush()
    flush()
    total = sum(counts[kind] for kind in corpus.KINDS)
    print(f"{total} files: {dict(counts)}")
    assert total >= FEWEST
    assert sorted(path.name for path in tmp_path.parent.iterdir()) == outside


@pytest.mark.slow
@given(data=st.binary(max_size=4096))
@settings(max_examples=500)
def test_noise_between_magic_numbers_is_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever lies between two magic numbers by chance is refused with a reason."""
    path = tmp_path_factory.getbasetemp() / "noise.parquet"
    path.write_bytes(b"PAR1" + data + b"PAR1")
    found = validator.judge(path)
    assert not found.valid
    sound("noise", found)


def test_what_is_written_is_read_back(valid: bytes, corpus: ModuleType) -> None:
    """A footer that is taken apart and put together again is the same file: the corpus changes what it means to."""
    assert corpus.raw.closed(valid, corpus.raw.footer_of(valid)) == valid
