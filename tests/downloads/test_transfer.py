"""One file, whole, over however many broken connections."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from urllib3.util import Retry, Timeout

from feedrate.downloads import transfer
from feedrate.downloads.transfer import Remote, download, rest
from feedrate.schema.errors import DataError, EnvironmentFault, InputError

CONTENT = np.random.default_rng(7).bytes(300_000)
OVER = 10**9
Expect = Callable[..., Remote]
Bring = Callable[..., bytes]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the file goes."""
    return tmp_path / "file.zip"


@pytest.fixture
def wanted(server: Any, expect: Expect) -> Remote:
    """The file as it should be."""
    return expect(server.url("file.zip"), CONTENT)


@pytest.fixture
def bring(wanted: Remote, place: Path, screen: Any, hasty: Retry) -> Bring:
    """Download the file and read it."""

    def call(remote: Remote = wanted, retry: Retry = hasty) -> bytes:
        download(remote, place, screen, retry)
        return place.read_bytes()

    return call


@pytest.mark.parametrize(
    ("faults", "least", "most", "said"),
    [
        pytest.param({}, 1, 1, "", id="none"),
        pytest.param({"breaks": [20_000] * 14}, 13, 15, "", id="breaks that bring something renew patience"),
        pytest.param(
            {"breaks": [150_000, 70_000], "ranges": False}, 3, 3, "cannot go on where it was", id="ranges ignored"
        ),
        pytest.param({"statuses": [503, 429, 502], "retry_after": "3600"}, 4, 4, "503", id="busy"),
        pytest.param({"length": lambda _: None}, 1, 1, "", id="no length"),
    ],
)
def test_comes_whole(
    server: Any, place: Path, screen: Any, bring: Bring, faults: dict[str, Any], least: int, most: int, said: str
) -> None:
    """Whatever the connection does, the file is there, byte for byte, and nothing beside it."""
    served = server.serve("file.zip", CONTENT, **faults)
    assert bring() == CONTENT
    assert [path.name for path in place.parent.iterdir()] == ["file.zip"]
    assert "Range" not in served.asked[0]
    assert least <= len(served.asked) <= most
    assert said in screen.text


@pytest.mark.parametrize("validators", [('"1"', None), (None, "Sat, 01 Jan 2022 00:00:00 GMT"), ('W/"1"', None)])
def test_goes_on_after_breaks(
    server: Any, screen: Any, bring: Bring, validators: tuple[str | None, str | None]
) -> None:
    """A broken connection costs no byte that had come: the next request asks for the rest of the same version."""
    etag, modified = validators
    served = server.serve("file.zip", CONTENT, breaks=[90_000, 0, 100_000, 1], etag=etag, modified=modified)
    assert bring() == CONTENT
    assert len(served.asked) == 5
    asked = served.asked[-1]
    assert int(asked["Range"].removeprefix("bytes=").rstrip("-")) > 90_000
    strong = [name for name in validators if name and not name.startswith("W/")]
    assert asked.get("If-Range") == (strong[0] if strong else None)
    assert "IncompleteRead" in screen.text


def test_gives_up_and_goes_on_later(server: Any, place: Path, wanted: Remote, bring: Bring) -> None:
    """After so many tries without a byte the error names the address and what is there; what is there is used later."""
    served = server.serve("file.zip", CONTENT, breaks=[200_000, *[0] * 20])
    with pytest.raises(EnvironmentFault, match="the same command continues") as caught:
        bring()
    for said in (wanted.url, "4 tries in a row", "200 kB of 300 kB are here"):
        assert said in str(caught.value)
    assert len(served.asked) == 4
    assert place.with_name("file.zip.part").stat().st_size == 200_000
    assert rest(wanted, place) == 100_000
    served.breaks.clear()
    assert bring() == CONTENT
    assert served.asked[-1]["Range"] == "bytes=200000-"
    assert rest(wanted, place) == 0


def test_nobody_there(expect: Expect, bring: Bring) -> None:
    """A server that cannot be reached is an error that can be named."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/file.zip"
        said = rf"^{url}: .*Failed to establish a new connection: .*refused; 4 tries in a row have failed, 0 bytes"
        with pytest.raises(EnvironmentFault, match=said):
            bring(expect(url, CONTENT))


def test_silence(server: Any, bring: Bring, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that says nothing any more is left, and asked again for the rest."""
    monkeypatch.setattr(transfer, "TIMEOUT", Timeout(connect=2.0, read=0.3))
    served = server.serve("file.zip", CONTENT, stall=50_000)

    def speak_again() -> None:
        while len(served.asked) < 2:
            time.sleep(0.01)
        served.go.set()

    threading.Thread(target=speak_again, daemon=True).start()
    assert bring(retry=Retry(9, backoff_factor=0.1)) == CONTENT
    assert len(served.asked) > 1


@pytest.mark.parametrize("looks", [True, False])
def test_changed_on_the_server(server: Any, bring: Bring, looks: bool) -> None:
    """A file that changed between two tries is begun anew, also where the server does not look at the condition."""
    served = server.serve("file.zip", CONTENT[::-1], breaks=[150_000] + [0] * 9)
    with pytest.raises(EnvironmentFault):
        bring()
    served.content, served.etag, served.breaks, served.if_range = CONTENT, '"2"', [], looks
    assert bring() == CONTENT


def test_range_refused(server: Any, place: Path, bring: Bring) -> None:
    """416: what is here cannot be of that file, so it is begun anew."""
    served = server.serve("file.zip", CONTENT, breaks=[900], statuses=[200, 404])
    with pytest.raises(EnvironmentFault):
        bring()
    assert place.with_name("file.zip.part").stat().st_size == 900
    served.statuses = [416]
    assert bring() == CONTENT
    assert "Range" in served.asked[-2]
    assert "Range" not in served.asked[-1]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"length": lambda _: 1234}, "offers 1234 bytes; expected 300,000"),
        ({"length": lambda _: OVER}, f"offers {OVER} bytes; expected 300,000"),
        *(({"statuses": [status] * 9}, f"answers {status} .*expected the file") for status in (404, 403, 410)),
    ],
)
def test_refused_at_once(server: Any, place: Path, bring: Bring, how: dict[str, Any], said: str) -> None:
    """An answer that will not change, or of another length, such as a login page, is an error; nothing is taken."""
    served = server.serve("file.zip", CONTENT, **how)
    with pytest.raises(EnvironmentFault, match=said):
        bring()
    assert len(served.asked) == 1
    assert not place.with_name("file.zip.part").exists()


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_wrong_checksum(server: Any, expect: Expect, place: Path, bring: Bring, algorithm: str) -> None:
    """Wrong bytes are named by both checksums and removed, so that the same command starts anew."""
    wrong = CONTENT[:-1] + b"!"
    served = server.serve("file.zip", wrong)
    wanted = expect(server.url("file.zip"), CONTENT, algorithm)
    with pytest.raises(DataError, match=rf"{expect('', wrong, algorithm).digest}; expected {wanted.digest}"):
        bring(wanted)
    assert list(place.parent.iterdir()) == []
    served.content = CONTENT
    assert bring(wanted) == CONTENT
    assert "Range" not in served.asked[-1]


def test_already_there(server: Any, place: Path, bring: Bring) -> None:
    """A file that is there is checked and not asked for; another in its place is the user's."""
    served = server.serve("file.zip", CONTENT)
    place.write_bytes(CONTENT)
    bring()
    for other, said in ((CONTENT[:-1], "has 299,999 bytes; expected 300,000"), (CONTENT[::-1], "has the sha256")):
        place.write_bytes(other)
        with pytest.raises(InputError, match=said):
            bring()
        assert place.read_bytes() == other
    assert served.asked == []


def test_part_without_a_version(server: Any, place: Path, bring: Bring) -> None:
    """Bytes that lie there without a note of what they are of are not gone on with."""
    served = server.serve("file.zip", CONTENT)
    place.with_name("file.zip.part").write_bytes(b"x" * 1000)
    assert bring() == CONTENT
    assert "Range" not in served.asked[0]


@pytest.mark.parametrize("exempt", [False, True])
def test_proxy(server: Any, expect: Expect, bring: Bring, monkeypatch: pytest.MonkeyPatch, exempt: bool) -> None:
    """The proxy that the environment names is used, with its password, but not for a host that it exempts."""
    proxied = server.serve("", CONTENT)
    server.files["http://data.example/file.zip"] = proxied
    served = server.serve("file.zip", CONTENT)
    monkeypatch.setenv("http_proxy", server.url("").replace("//", "//user:word@"))
    monkeypatch.setenv("no_proxy", "127.0.0.1" if exempt else "")
    url = server.url("file.zip") if exempt else "http://data.example/file.zip"
    assert bring(expect(url, CONTENT)) == CONTENT
    assert [len(served.asked), len(proxied.asked)] == ([1, 0] if exempt else [0, 1])
    assert exempt or proxied.asked[0]["proxy-authorization"] == "Basic dXNlcjp3b3Jk"
