"""What the page Compare refuses, with reasons, and that nothing of a file leaves the reader or is more than text."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import visits
from dropping import give, made, ready, result
from playwright.sync_api import Browser, Page

from feedrate.questions.compare.page import MOST_ROWS
from feedrate.share import findings as caps

pytestmark = pytest.mark.slow

REACHING = """async (other) => {
  const socket = () => new Promise((open, shut) => {
    Object.assign(new WebSocket(other.replace("http", "ws")), { onopen: open, onerror: shut });
  });
  const ways = [() => fetch(other, { mode: "no-cors" }), () => import(`${other}x.js`), socket];
  const tried = await Promise.allSettled(ways.map(async (way) => way()));
  return tried.map(({ status }) => status);
}"""


@contextmanager
def listening() -> Iterator[tuple[str, list[str]]]:
    """Another host: its address, and what it was asked for."""
    heard: list[str] = []

    class Listener(BaseHTTPRequestHandler):
        def parse_request(self) -> bool:
            heard.append(str(self.raw_requestline))
            return super().parse_request()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/", heard
        finally:
            server.shutdown()


def refusal(page: Page) -> str:
    page.locator(".fr-compare-refused p").first.wait_for()
    return page.locator(".fr-compare-refused").inner_text()


def test_files_over_a_cap_are_refused(page: Page, other: Path, tmp_path: Path) -> None:
    """Too many bytes or rows: refused by the number of the cap, with the command that reads more."""
    large, rows = tmp_path / "bytes.parquet", tmp_path / "rows.parquet"
    with large.open("wb") as file:
        file.truncate(caps.FILE_BYTES.most + 1)
    trials = pq.read_table(other)
    times = MOST_ROWS // trials.num_rows + 1
    pq.write_table(pa.concat_tables([trials] * times), rows, compression="zstd")
    for path, most in ((large, caps.FILE_BYTES.most), (rows, MOST_ROWS)):
        page.reload()
        give(ready(page), path)
        said = refusal(page)
        assert f"at most {most:,}" in said, path.name
        assert "feedrate compare A B" in said


def test_words_of_a_file_are_text(page: Page, fake_run: ModuleType, tmp_path: Path) -> None:
    """Markup, scripts and control characters in a file's own words are shown as words and do nothing."""
    hostile = fake_run.HOSTILE
    path = made(fake_run, tmp_path, f"<b>x</b> {hostile}", hostile=True, suites=(hostile,))
    title = page.title()
    give(page, path)
    page.locator(".fr-compare-side strong").nth(1).wait_for()
    page.wait_for_timeout(300)
    assert "<script>" in page.locator(".fr-compare-sides").inner_text()
    assert page.title() == title
    assert page.locator(".fr-compare script, .fr-compare img, .fr-compare b").count() == 0


def test_a_file_of_something_else_is_refused(page: Page, other: Path, tmp_path: Path) -> None:
    """No parquet file, one of something else, one of a newer schema: refused with the reason, and who wrote it."""
    plain, table, newer = (tmp_path / f"{name}.parquet" for name in ("plain", "table", "newer"))
    plain.write_text("run_id,trial_id\n", encoding="utf-8")
    pq.write_table(pa.table({"a": [1]}), table)
    trials = pq.read_table(other)
    manifest = json.loads(trials.schema.metadata[b"feedrate"]) | {"schema_version": 99, "feedrate_version": "9.9.9"}
    pq.write_table(trials.replace_schema_metadata({b"feedrate": json.dumps(manifest).encode()}), newer)
    give(page, plain, table)
    said = refusal(page)
    assert "plain.parquet is refused: it does not begin as a parquet file does" in said
    assert "table.parquet is refused: it does not say which run it is" in said
    page.reload()
    give(ready(page), newer)
    assert "it was written by feedrate 9.9.9 with schema_version 99" in refusal(page)


def unreadable(other: Path, codec: str, corpus: ModuleType, broken: Path) -> Path:
    """A file of which a column's bytes are not what they declare."""
    raw = corpus.raw
    valid = corpus.written(pq.read_table(other), compression=codec, use_dictionary=False)
    footer = raw.footer_of(valid)
    chunk = next(chunk for chunk in raw.chunks(footer) if chunk[3][1][1] == [b"samples_per_s"])
    header = raw.Reader(valid, raw.place(chunk)[0]).struct()
    begin, end = raw.body(valid, "samples_per_s")
    body = b"\xff" * 4 + valid[begin + 4 : end]  # the length of what was compressed, or Zstandard's mark
    header[4] = (raw.I32, raw.checksum(body))
    broken.write_bytes(raw.repointed(valid, footer, chunk, raw.struct(header) + body))
    return broken


def test_bytes_that_cannot_be_read_are_refused_in_words(
    page: Page, other: Path, corpus: ModuleType, tmp_path: Path
) -> None:
    """Of bytes that are not what they declare the page says what to type, not what its parser said."""
    give(page, *(unreadable(other, codec, corpus, tmp_path / f"{codec}.parquet") for codec in ("SNAPPY", "ZSTD")))
    assert refusal(page).count("its bytes are not what they declare; feedrate validate FILE") == 2


def test_nothing_leaves_the_reader(sites: dict[str, Any], browser: Browser, other: Path) -> None:
    """While a file is read and compared the page asks for nothing but the site's own files, and its Worker may not."""
    seen = visits.visit(browser, sites["main"])
    asked: list[str] = []
    seen.page.on("request", lambda request: asked.append(f"{request.method} {request.url}"))
    page = ready(seen.open("compare.html"))
    give(page, other)
    result(page)
    own = sites["main"].address
    assert all(each.startswith((f"GET {own}", f"GET blob:{own}")) for each in asked)
    with listening() as (elsewhere, heard):
        # A Worker as the page makes it, from a text: it is bound by the page's policy.
        made_here = """async ([other, reaching]) => {
          const body = `onmessage = async () => postMessage(await (${reaching})(${JSON.stringify(other)}))`;
          const script = URL.createObjectURL(new Blob([body], { type: "text/javascript" }));
          const worker = new Worker(script, { type: "module" });
          worker.postMessage(0);
          return new Promise((told) => { worker.onmessage = ({ data }) => told(data); });
        }"""
        assert page.evaluate(made_here, [elsewhere, REACHING]) == ["rejected"] * 3
        assert page.evaluate(REACHING, elsewhere) == ["rejected"] * 3
        assert heard == []
        page.request.get(elsewhere)  # not from the page: that the listener hears at all
        assert heard
