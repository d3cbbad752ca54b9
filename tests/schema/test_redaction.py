"""What is taken out of free text before it is recorded."""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedrate.schema import plugins, redaction
from feedrate.schema.redaction import EVIDENCE_MOST, KIND_MOST, MOST, scrub
from feedrate.sweep.launcher import Answer
from feedrate.sweep.observer import Observer
from feedrate.trial.checks import Finding, run_check
from feedrate.trial.job import Job, Reporter


@pytest.fixture
def alice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user alice on node17.example.org."""
    monkeypatch.setenv("HOME", "/srv/our people/alice")
    monkeypatch.setattr(socket, "gethostname", lambda: "node17.example.org")
    monkeypatch.setattr(getpass, "getuser", lambda: "alice")
    redaction._own_names.cache_clear()
    yield
    redaction._own_names.cache_clear()


@pytest.mark.usefixtures("alice")
@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("No such file: '/srv/our people/alice/data/x.png'", "No such file: 'x.png'"),
        ("No such file: /srv/our people/alice/data/x.png", "No such file: x.png"),
        ("No such file: '/mnt/My Data/bob smith/x.png'", "No such file: 'x.png'"),
        ("cannot open /home/bob/x/y.lmdb: denied", "cannot open y.lmdb: denied"),
        ("in /home/bob", "in <home>"),
        ("path=/a/b,/c/d", "path=b,d"),
        ("~/data/x.png ~bob/x.png", "x.png x.png"),
        (r"C:\Users\bob\x.png", "x.png"),
        ("file:///home/bob/x.png", "file:x.png"),
        ("/scratch/alice_data", "<user>_data"),
        ("alice@node17.example.org:22", "<email>:22"),
        ("connect to node17 or NODE17.example.org failed", "connect to <host> or <host> failed"),
        ("Alice's malice", "<user>'s malice"),
        ("get http://intern.example:8080/x?q=1 now", "get <url> now"),
        ("peer 10.0.0.1:29500, fe80::1%eth0 and ::1", "peer <ip>:29500, <ip> and <ip>"),
        ("mac 00:1b:44:11:3a:b7", "mac <mac>"),
        ("GPU-01234567-89ab-cdef-0123-456789abcdef lost", "<uuid> lost"),
        ("disk serial WD-WCC4N7XYZ123 failed", "disk serial <serial> failed"),
        ("Serial Number: S4EWNX0R123456, S/N 9QK0A1B2", "Serial Number: <serial>, S/N <serial>"),
        ("serial='WD-WCC4N7XYZ123'", "serial='<serial>'"),
        ("cannot open /dev/disk/by-id/ata-WDC_WD40EFRX-68N32N0_WD-WCC4N7XYZ123: busy", "cannot open <disk>: busy"),
        ("line one\r\n\tline two\x00\x1b[31m red\u2028end", "line one line two red end"),
    ],
)
def test_names_paths_and_addresses_go(text: str, clean: str) -> None:
    """Each kind of identifying text is masked; the last part of a path, which explains an error, stays."""
    assert scrub(text) == clean


@pytest.mark.usefixtures("alice")
@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Trial to allocate 2.00 GiB (GPU 0; 79.15 GiB total)",
        "12.5 samples/s, 3/4 of N/A at 12:34:56",
        "c10::Error in at::native: expected Float but found Half",
        "torch 2.15.0+cu130, protocol 1.2.3.4.5",
        "NVIDIA A100-SXM4-80GB, INT8, serial execution, serial 0, serialized_timing_2",
        "RuntimeError: stack expects each tensor to be equal size, but got [3, 64, 64] at entry 0",
        "",
    ],
)
def test_what_explains_an_error_stays(text: str) -> None:
    """Sizes, rates, times, versions and C++ names are no addresses."""
    assert scrub(text) == text


def entry(kind: str, message: str) -> dict[str, Any]:
    """The row of a trial that failed."""
    idle: Any = SimpleNamespace()
    observer = Observer(idle, None, 0, lambda _: None, datetime.now(UTC))
    row: dict[str, Any] = observer.entry(Answer("error", kind=kind, message=message), {}, {})["trial"]
    return row


def evidence(sentence: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a check reports that saw something."""
    made = SimpleNamespace(check=lambda _: Finding(True, 1.0, sentence))
    monkeypatch.setattr(plugins, "load", lambda *_: made)
    reading, writing = os.pipe()
    with os.fdopen(reading) as answers:
        run_check(Job("trial", cell={"mode": "check", "check": "made_up"}), Reporter(writing))
        os.close(writing)
        told: str = json.loads(answers.read())["row"]["evidence"]
    return told


@pytest.mark.usefixtures("alice")
def test_every_free_text_is_scrubbed_and_cut_where_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Error kinds, messages and evidence name nobody, and keep to the length limits."""
    said = "/home/bob/x by alice on node17"
    clean = "x by <user> on <host>"
    row = entry(said, said)
    assert [row["error_kind"], row["error_message"], evidence(said, monkeypatch)] == [clean] * 3
    row = entry("x" * 2_000, "x" * 2_000)
    long = row["error_kind"], row["error_message"], evidence("x" * 2_000, monkeypatch)
    assert [len(text) for text in long] == [KIND_MOST, MOST, EVIDENCE_MOST]


def test_long_text_is_cut() -> None:
    """At most 500 characters, the cut marked; a huge text costs no time."""
    assert len(scrub("x" * 501)) == MOST
    assert scrub("x" * 501).endswith("…")
    assert scrub("x" * 500) == "x" * 500
    assert len(scrub("/a:1.2::" * 1_000_000)) <= MOST


@given(st.text(st.characters(codec=None), max_size=300))
def test_any_text_becomes_one_printable_line(text: str) -> None:
    """No line break, no control character, never an exception."""
    clean = scrub(text)
    assert "\n" not in clean
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in clean)
    assert len(clean) <= MOST
    clean.encode()


PARTS = [
    *("serial ", "WD-123456", "/dev/disk/by-id/x", "/home/bob/x", "'/a b/c'", "10.0.0.1", "a@b.c", "::1", "~/x"),
    *("word", ":", "(", " "),
]


@given(st.lists(st.sampled_from(PARTS), max_size=12))
def test_scrubbing_twice_changes_nothing_more(parts: list[str]) -> None:
    """What was masked once is at rest."""
    once = scrub(" ".join(parts))
    assert scrub(once) == once


def test_of_a_traceback_the_last_place_and_the_error_stay() -> None:
    """As PyTorch words what a worker raised: a message of so many characters would end before the error."""
    text = (
        "Caught ValueError in DataLoader worker process 1.\nOriginal Traceback (most recent call last):\n"
        '  File "loop.py", line 3, in fetch\n    data = read(index)\n  File "lmdb.py", line 163, in read\n'
        "    raise ValueError\nValueError: planted\n"
    )
    where = 'File "lmdb.py", line 163, in read'
    assert redaction.shorten(text) == f"Caught ValueError in DataLoader worker process 1. {where} ValueError: planted"
    assert redaction.shorten("no space left") == "no space left"
