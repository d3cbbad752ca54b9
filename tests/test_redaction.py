"""What is taken out of free text before it is recorded."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import redaction
from harness.redaction import MOST, scrub


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
        "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total)",
        "12.5 samples/s, 3/4 of N/A at 12:34:56",
        "c10::Error in at::native: expected Float but found Half",
        "torch 2.15.0+cu130, protocol 1.2.3.4.5",
        "RuntimeError: stack expects each tensor to be equal size, but got [3, 64, 64] at entry 0",
        "",
    ],
)
def test_what_explains_an_error_stays(text: str) -> None:
    """Sizes, rates, times, versions and C++ names are no addresses."""
    assert scrub(text) == text


def test_long_text_is_cut() -> None:
    """At most 500 characters, the cut marked; a huge text costs no time."""
    assert len(scrub("x" * 501)) == MOST
    assert scrub("x" * 501).endswith("…")
    assert scrub("x" * 500) == "x" * 500
    assert len(scrub("/a:1.2::" * 1_000_000)) <= MOST


@settings(deadline=None)
@given(st.text(st.characters(codec=None), max_size=300))
def test_any_text_becomes_one_printable_line(text: str) -> None:
    """No line break, no control character, never an exception."""
    clean = scrub(text)
    assert "\n" not in clean
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in clean)
    assert len(clean) <= MOST
    clean.encode()


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["/home/bob/x", "'/a b/c'", "10.0.0.1", "a@b.c", "::1", "~/x", "word", ":", "(", " "]),
        max_size=12,
    )
)
def test_scrubbing_twice_changes_nothing_more(parts: list[str]) -> None:
    """What was masked once is at rest."""
    once = scrub(" ".join(parts))
    assert scrub(once) == once


def test_this_machines_own_names_go() -> None:
    """The home folder of whoever runs this is not in the result."""
    assert str(Path.home() / "secret") not in scrub(f"{Path.home()}/secret/x.png")
    assert scrub(f"{Path.home()}/secret/x.png") == "x.png"
