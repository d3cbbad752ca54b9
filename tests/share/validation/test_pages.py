"""The short way to read a page's header says what the long way says, and nearly all headers take it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from feedrate.share.validation import pages
from feedrate.share.validation.findings import Refused

NEVER = re.compile(rb"(?!)")
"""Matches nothing: every header is read field by field."""


def said(data: bytes, *, short: bool) -> list[str]:
    """What is found wrong with a file."""
    with pytest.MonkeyPatch.context() as patch:
        if not short:
            patch.setattr(pages, "_COMMON", NEVER)
        try:
            metadata = pq.read_metadata(pa.BufferReader(data))
            pages.check(data, metadata, len(data), "a file")
        except Refused as refused:
            return [str(refused.finding)]
    return []


def headers(data: bytes) -> Iterator[int]:
    """Where the pages of a file begin."""
    for chunk in pages.declared_chunks(pq.read_metadata(pa.BufferReader(data)), "a file"):
        at = chunk.begin
        while at < chunk.end:
            yield at
            end, size, *_ = pages.read_header(data, at, "a file")
            at = end + size


@pytest.mark.parametrize("table", ["trials", "steps", "telemetry"])
def test_what_is_written_takes_the_short_way(run: Path, table: str) -> None:
    """Of the pages that feedrate writes, all but one in twenty at most, with every number as the long way reads it."""
    data = (run / f"{table}.parquet").read_bytes()
    places = list(headers(data))
    short = [at for at in places if pages._COMMON.match(data, at)]
    assert len(short) > 0.95 * len(places) > 10
    read = [pages.read_header(data, at, "a file") for at in places]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "_COMMON", NEVER)
        assert read == [pages.read_header(data, at, "a file") for at in places]


@pytest.mark.parametrize("changes", [300, pytest.param(2000, marks=pytest.mark.slow)])
def test_both_ways_refuse_the_same(run: Path, changes: int) -> None:
    """A byte of a header is changed, many times over: the same finding, or none, whichever way it is read."""
    data, draw = (run / "trials.parquet").read_bytes(), random.Random(3)
    places = list(headers(data))
    refused = 0
    for _ in range(changes):
        at = draw.choice(places) + draw.randrange(24)
        changed = data[:at] + bytes([draw.randrange(256)]) + data[at + 1 :]
        long = said(changed, short=False)
        assert said(changed, short=True) == long
        refused += bool(long)
    assert refused > changes / 4
