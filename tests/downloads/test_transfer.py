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

from feedrate.downloads.transfer import Patience, Remote, download, rest
from feedrate.schema.errors import DataError, EnvironmentFault, InputError

CONTENT = np.random.default_rng(7).bytes(300_000)
Expect = Callable[..., Remote]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the file goes."""
    return tmp_path / "file.zip"


def test_whole(server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience) -> None:
    """The file is there, byte for byte, and nothing beside it."""
    served = server.serve("file.zip", CONTENT)
    download(expect(server.url("file.zip"), CONTENT), place, screen, hasty)
    assert place.read_bytes() == CONTENT
    assert [path.name for path in place.parent.iterdir()] == ["file.zip"]
    assert "Range" not in served.asked[0]


@pytest.mark.parametrize("validators", [('"1"', None), (None, "Sat, 01 Jan 2022 00:00:00 GMT"), ('W/"1"', None)])
def test_goes_on_after_breaks(
    server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience, validators: tuple[str | None, str | None]
) -> None:
    """A broken connection costs no byte that had come: the next request asks for the rest of the same version."""
    served = server.serve("file.zip", CONTENT, breaks=[90_000, 0, 100_000, 1], etag=validators[0])
    served.modified = validators[1]
    download(expect(server.url("file.zip"), CONTENT), place, screen, hasty)
    assert place.read_bytes() == CONTENT
    assert len(served.asked) == 5
    asked = served.asked[-1]
    assert int(asked["Range"].removeprefix("bytes=").rstrip("-")) > 90_000
    strong = [name for name in validators if name and not name.startswith("W/")]
    assert asked.get("If-Range") == (strong[0] if strong else None)
    assert "file.zip: Connection broken: IncompleteRead" in screen.text


def test_resets(server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience) -> None:
    """Connections that are reset, also before the first byte, lose at most what was on its way."""
    served = server.serve("file.zip", CONTENT, breaks=[250_000, 0, 1, 280_000, 0], reset=True)
    download(expect(server.url("file.zip"), CONTENT), place, screen, hasty)
    assert place.read_bytes() == CONTENT
    assert len(served.asked) > 1


def test_next_process_goes_on(server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience) -> None:
    """What an earlier attempt left is gone on with."""
    served = server.serve("file.zip", CONTENT, breaks=[200_000, 0, 0, 0, 0])
    wanted = expect(server.url("file.zip"), CONTENT)
    with pytest.raises(EnvironmentFault):
        download(wanted, place, screen, hasty)
    had = place.with_name("file.zip.part").stat().st_size
    assert had == 200_000
    assert rest(wanted, place) == len(CONTENT) - had
    served.breaks.clear()
    download(wanted, place, screen, hasty)
    assert place.read_bytes() == CONTENT
    assert served.asked[-1]["Range"] == f"bytes={had}-"
    assert rest(wanted, place) == 0


def test_progress_renews_patience(server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience) -> None:
    """Tries are counted in a row without a byte: a line that always breaks but always brings something gets there."""
    served = server.serve("file.zip", CONTENT, breaks=[20_000] * 14)
    download(expect(server.url("file.zip"), CONTENT), place, screen, hasty)
    assert place.read_bytes() == CONTENT
    assert len(served.asked) > 3 * hasty.tries


def test_gives_up(server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience) -> None:
    """After so many tries without a byte the error names the address, what is there, and that it goes on later."""
    served = server.serve("file.zip", CONTENT, breaks=[100_000] + [0] * 20)
    url = server.url("file.zip")
    with pytest.raises(EnvironmentFault, match="the same command continues") as caught:
        download(expect(url, CONTENT), place, screen, hasty)
    assert url in str(caught.value)
    assert "4 tries" in str(caught.value)
    assert "of 300 kB are here" in str(caught.value)
    assert len(served.asked) == 1 + hasty.tries


def test_nobody_there(expect: Expect, place: Path, screen: Any, hasty: Patience) -> None:
    """A server that cannot be reached is an error that can be named."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/file.zip"
        said = rf"^{url}: Failed to establish a new connection: .*refused; 4 tries in a row brought nothing, 0 bytes"
        with pytest.raises(EnvironmentFault, match=said):
            download(expect(url, CONTENT), place, screen, hasty)


def test_silence(server: Any, expect: Expect, place: Path, screen: Any) -> None:
    """A server that says nothing any more is left, and asked again for the rest."""
    served = server.serve("file.zip", CONTENT, stall=50_000)

    def speak_again() -> None:
        while len(served.asked) < 2:
            time.sleep(0.01)
        served.go.set()

    threading.Thread(target=speak_again, daemon=True).start()
    download(expect(server.url("file.zip"), CONTENT), place, screen, Patience(5, 0.1, 1, 2.0, 0.3))
    assert place.read_bytes() == CONTENT
    assert len(served.asked) > 1


def test_ranges_ignored(server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience) -> None:
    """A server that cannot go on sends all of it again, and nothing is mixed."""
    served = server.serve("file.zip", CONTENT, breaks=[150_000, 70_000], ranges=False)
    download(expect(server.url("file.zip"), CONTENT), place, screen, hasty)
    assert place.read_bytes() == CONTENT
    assert len(served.asked) == 3
    assert "cannot go on where it was" in screen.text


@pytest.mark.parametrize("looks", [True, False])
def test_changed_on_the_server(
    server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience, looks: bool
) -> None:
    """A file that changed between two tries is begun anew, also where the server does not look at the condition."""
    served = server.serve("file.zip", CONTENT[::-1], breaks=[150_000] + [0] * 9)
    with pytest.raises(EnvironmentFault):
        download(expect(server.url("file.zip"), CONTENT), place, screen, hasty)
    served.content, served.etag, served.breaks, served.if_range = CONTENT, '"2"', [], looks
    download(expect(server.url("file.zip"), CONTENT), place, screen, hasty)
    assert place.read_bytes() == CONTENT


def test_range_refused(server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience) -> None:
    """416: what is here cannot be of that file, so it is begun anew."""
    served = server.serve("file.zip", CONTENT, breaks=[900], statuses=[200, 404])
    wanted = expect(server.url("file.zip"), CONTENT)
    with pytest.raises(EnvironmentFault):
        download(wanted, place, screen, hasty)
    assert place.with_name("file.zip.part").stat().st_size == 900
    served.statuses = [416]
    download(wanted, place, screen, hasty)
    assert place.read_bytes() == CONTENT
    assert "Range" in served.asked[-2]
    assert "Range" not in served.asked[-1]


@pytest.mark.parametrize("offered", [1234, 10**9])
def test_another_length(server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience, offered: int) -> None:
    """A whole answer of another length, such as a login page, is refused at once; nothing of it is taken."""
    served = server.serve("file.zip", CONTENT, length=lambda _: offered)
    with pytest.raises(EnvironmentFault, match=rf"offers {offered} bytes; expected 300,000"):
        download(expect(server.url("file.zip"), CONTENT), place, screen, hasty)
    assert len(served.asked) == 1
    assert not place.with_name("file.zip.part").exists()


def test_promises_more_than_it_sends(server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience) -> None:
    """A body that ends before the promised length is asked for its rest; a wrong length of that rest does no harm."""
    served = server.serve("file.zip", CONTENT[:120_000], length=lambda _: len(CONTENT))

    def complete(_: int) -> int:
        return len(CONTENT)

    wanted = expect(server.url("file.zip"), CONTENT)
    with pytest.raises(EnvironmentFault):
        download(wanted, place, screen, Patience(1, 0.0, 0, 2.0, 2.0))
    served.content, served.length = CONTENT, complete  # a Content-Length of the whole with a part of it
    download(wanted, place, screen, hasty)
    assert place.read_bytes() == CONTENT
    assert served.sent < 1.5 * len(CONTENT)


def test_no_length_and_too_much(server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience) -> None:
    """Without a promised length the known one counts: what comes after it is not taken."""
    server.serve("file.zip", CONTENT, length=lambda _: None, extra=b"more")
    download(expect(server.url("file.zip"), CONTENT), place, screen, hasty)
    assert place.read_bytes() == CONTENT


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_wrong_checksum(server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience, algorithm: str) -> None:
    """Wrong bytes are named by both checksums and removed, so that the same command starts anew."""
    wrong = CONTENT[:-1] + b"!"
    served = server.serve("file.zip", wrong)
    wanted = expect(server.url("file.zip"), CONTENT, algorithm)
    with pytest.raises(DataError, match=rf"{expect('', wrong, algorithm).digest}; expected {wanted.digest}"):
        download(wanted, place, screen, hasty)
    assert list(place.parent.iterdir()) == []
    served.content = CONTENT
    download(wanted, place, screen, hasty)
    assert place.read_bytes() == CONTENT
    assert "Range" not in served.asked[-1]


@pytest.mark.parametrize("status", [404, 403, 410])
def test_refused(server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience, status: int) -> None:
    """An answer that will not change is an error at once."""
    served = server.serve("file.zip", CONTENT, statuses=[status] * 9)
    with pytest.raises(EnvironmentFault, match=f"answers {status} .*expected the file"):
        download(expect(server.url("file.zip"), CONTENT), place, screen, hasty)
    assert len(served.asked) == 1


def test_busy(server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience) -> None:
    """A server that is busy is asked again, and its wish for a pause is followed up to a limit."""
    served = server.serve("file.zip", CONTENT, statuses=[503, 429, 502], retry_after="3600")
    download(expect(server.url("file.zip"), CONTENT), place, screen, hasty)
    assert place.read_bytes() == CONTENT
    assert len(served.asked) == 4
    assert "503" in screen.text


def test_already_there(server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience) -> None:
    """A file that is there is checked and not asked for; another in its place is the user's."""
    served = server.serve("file.zip", CONTENT)
    wanted = expect(server.url("file.zip"), CONTENT)
    place.write_bytes(CONTENT)
    download(wanted, place, screen, hasty)
    for other, said in ((CONTENT[:-1], "has 299,999 bytes; expected 300,000"), (CONTENT[::-1], "has the sha256")):
        place.write_bytes(other)
        with pytest.raises(InputError, match=said):
            download(wanted, place, screen, hasty)
        assert place.read_bytes() == other
    assert served.asked == []


def test_part_of_another_address(server: Any, expect: Expect, place: Path, screen: Any, hasty: Patience) -> None:
    """What was begun from elsewhere, or lies there without a note, is not gone on with."""
    served = server.serve("file.zip", CONTENT)
    place.with_name("file.zip.part").write_bytes(b"x" * 1000)
    download(expect(server.url("file.zip"), CONTENT), place, screen, hasty)
    assert place.read_bytes() == CONTENT
    assert "Range" not in served.asked[0]


def test_no_folder(server: Any, expect: Expect, tmp_path: Path, screen: Any, hasty: Patience) -> None:
    """A disk that does not take the file is an error that says where and what to do."""
    server.serve("file.zip", CONTENT)
    with pytest.raises(EnvironmentFault, match=r"while downloading file.zip; .*DATA_ROOT="):
        download(expect(server.url("file.zip"), CONTENT), tmp_path / "missing" / "file.zip", screen, hasty)


@pytest.mark.parametrize("exempt", [False, True])
def test_proxy(
    server: Any,
    expect: Expect,
    place: Path,
    screen: Any,
    hasty: Patience,
    monkeypatch: pytest.MonkeyPatch,
    exempt: bool,
) -> None:
    """The proxy that the environment names is used, with its password, but not for a host that it exempts."""
    proxied = server.serve("", b"")
    server.files["http://data.example/file.zip"] = proxied
    proxied.content = CONTENT
    served = server.serve("file.zip", CONTENT)
    monkeypatch.setenv("http_proxy", server.url("").replace("//", "//user:word@"))
    monkeypatch.setenv("no_proxy", "127.0.0.1" if exempt else "")
    url = server.url("file.zip") if exempt else "http://data.example/file.zip"
    download(expect(url, CONTENT), place, screen, hasty)
    assert place.read_bytes() == CONTENT
    assert [len(served.asked), len(proxied.asked)] == ([1, 0] if exempt else [0, 1])
    assert exempt or proxied.asked[0]["proxy-authorization"] == "Basic dXNlcjp3b3Jk"
