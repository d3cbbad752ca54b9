"""Cold trials prove that they were cold, and trials whose memory is limited have no more: real trials of a sweep."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from beside import TURNS, tried
from sweeping import Place
from warm import Runner

from feedrate.machine import limits, read_ahead
from feedrate.machine.probes.host import HostProbe
from feedrate.machine.probes.procfs import descendants
from feedrate.schema.window import READ_LEAST, UNREAD_MOST, consumed_samples, needed_bytes, unread_in_memory
from feedrate.store import runs
from feedrate.sweep.launcher import Answer, Template
from feedrate.sweep.observer import Observer, require_page_cache

CELL = {
    "workload": "synthetic",
    "mode": "load",
    "storage_format": "lmdb",
    "page_cache": "cold",
    "access": "random",
    "n_samples": 672,
    "patch_size": 64,
    "batch_size": 8,
    "num_workers": 2,
    "prefetch_factor": 2,
}
"""19 MB: what a disk that reads 128 KiB around each of 216 faults has in memory soon; 24 KiB are a sample's pixels."""
COLD = {"page_cache": "cold", "access": "random", "n_samples": 100, "batch_size": 5}
ROW = {"stored_bytes": 10_000, "samples": 10, "steps": 2, "warmup_steps": 2}
"""Of a trial that read 20 of 100 samples of 100 bytes, 10 of them in its window."""
LIMITED = """
version: 1
protocol: {warmup_s: 0.1, window_s: 0.2, min_steps: 8, blocks: [1, 1], timeout_s: 60}
suites:
  loader:
    - {mode: load, page_cache: cold, n_samples: 552, batch_size: 8, num_workers: 2, storage_format: png}
    - {mode: load, page_cache: cold, n_samples: 552, batch_size: 8, num_workers: 2, storage_format: lmdb,
        readahead: false, memory_limit_mib: [0, 512, 4]}
    - {mode: load, page_cache: cold, n_samples: 552, batch_size: 8, num_workers: 2, storage_format: lmdb,
        read_ahead_kib: 8}
    - {mode: load, page_cache: full, n_samples: 2816, batch_size: 8, storage_format: lmdb, memory_limit_mib: 64}
profiles: {quick: {}}
"""
possible = pytest.mark.skipif((missing := limits.missing()) is not None, reason=str(missing))


def observed(runner: Runner, **cell: Any) -> dict[str, Any]:
    """The row of a real trial."""
    with HostProbe() as host:
        observer = Observer(host, None, 0, lambda _: None, datetime.now(UTC))
        answer = runner.run(watch=observer, window_s=30, **cell)
        row: dict[str, Any] = observer.entry(answer, {}, CELL | cell)["trial"]
    return row


@pytest.mark.slow
@tried
def test_a_mapped_set_that_was_read_ahead_is_not_cold(runner: Runner) -> None:
    """What was read around the faults of others is not cold, however much is read: the trial failed, and says so."""
    row = observed(runner)
    assert (row["outcome"], row["error_kind"]) == ("error", "NotCold")
    assert "were read from storage in the window" in row["error_message"]
    assert "raise n_samples, or lower read_ahead_kib" in row["error_message"]
    assert row.get("samples_per_s") is None


@pytest.mark.slow
@tried
def test_without_readahead_it_is_cold_and_its_window_alone_counts(runner: Runner) -> None:
    """A window reads what its samples take; what warm-up and lead-in read would be half as much again."""
    row = observed(runner, readahead=False)
    assert row["outcome"] == "ok", row["error_message"]
    needed = needed_bytes(row["stored_bytes"], row["samples"], CELL["n_samples"])
    stock = CELL["num_workers"] * CELL["prefetch_factor"] * CELL["batch_size"]
    assert READ_LEAST * needed <= row["read_bytes"] <= (1.1 + stock / row["samples"]) * needed
    assert row["warmup_steps"] * CELL["batch_size"] > (0.1 + stock / row["samples"]) * row["samples"]


FULL = {"page_cache": "full", "memory_limit_mib": 64}


@pytest.mark.parametrize(
    ("cell", "read_bytes", "used", "cached_after_pct", "words"),
    [
        ({}, 800, 0.0, 20.0, None),
        ({}, 799, 0.0, 20.0, "799 bytes were read from storage in the window, whose samples take 1,000 bytes"),
        ({}, None, 0.0, 20.0, "cannot be observed here"),
        ({}, 4000, 0.0, 36.0, None),
        ({}, 4000, 0.0, 37.0, "4.00 times the bytes of its samples .* but 21% of the 80 samples that"),
        ({"access": "sequential"}, 4000, 0.0, 99.0, None),
        ({"memory_limit_mib": 512}, 4000, 0.0, 99.0, None),
        ({"memory_limit_mib": 512}, 799, 0.0, 0.0, "799 bytes were read"),
        ({"page_cache": "warm"}, 799, 0.0, 99.0, None),
        (FULL, 1, 0.9, 30.0, None),
        (FULL, 1, 0.89, 30.0, "89% of memory_limit_mib was used when the window opened; expected 90% or more"),
        (FULL, 0, 1.0, 30.0, "nothing was read"),
        (FULL, 1, 1.0, 100.0, "nothing was read"),
        (FULL, None, 1.0, 30.0, "cannot be observed here"),
    ],
)
def test_what_a_trial_must_have_read(
    cell: dict[str, Any], read_bytes: int | None, used: float, cached_after_pct: float, words: str | None
) -> None:
    """Cold: four fifths of its samples' bytes, and of what it did not read at most a fifth in memory.

    Unless that comes next anyway. Full: memory was when the window opened, and something had to be read again.
    """
    answer = Answer("ok", result={"row": ROW | {"cached_after_pct": cached_after_pct}})
    checked = require_page_cache(answer, read_bytes, used, COLD | cell)
    if words is None:
        assert checked == answer
    else:
        assert checked.kind == ("NotFull" if cell == FULL else "NotCold")
        assert re.search(words, checked.message or "")


@pytest.fixture(scope="module")
def limited(template: Template, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Trials of a real sweep whose cells differ in format and limit.

    Where other work holds up the loop, workers read ahead of its short window, and it was not cold: then once more.
    """
    for _ in range(TURNS):
        place = Place(tmp_path_factory.mktemp("limited"))
        place.matrix.write_text(LIMITED)
        place.sweep(template)
        (run,) = runs.runs(place.results)
        trials = run.table("trials").query("role == 'cell'")
        if not trials["error_kind"].eq("NotCold").any():
            break
    return trials


@pytest.mark.slow
@possible
def test_a_trial_has_the_memory_of_its_cell(limited: pd.DataFrame) -> None:
    """Files and a map without readahead are cold, within a limit too; what needs more than that is out of memory."""
    found = {
        (row.storage_format, row.memory_limit_mib): row.outcome
        for row in limited.itertuples()
        if row.page_cache == "full" or not row.read_ahead_kib
    }
    expected = {("png", 0): "ok", ("lmdb", 0): "ok", ("lmdb", 512): "ok", ("lmdb", 4): "oom", ("lmdb", 64): "ok"}
    assert found == expected, limited["error_message"].dropna().to_list()
    assert limited["error_kind"].dropna().to_list() == ["MemoryLimit"]


@pytest.mark.slow
@possible
def test_a_full_memory_stays_full(limited: pd.DataFrame) -> None:
    """Of a set of 81 MB about what fits into 64 MiB lies there before and after, and some is read from the disk."""
    (row,) = limited.query("page_cache == 'full'").itertuples()
    assert 0.3 < row.cached_before_pct / 100 < 0.95
    assert 0.3 < row.cached_after_pct / 100 < 0.95
    assert row.read_bytes > 0


@pytest.mark.slow
@possible
def test_the_disk_reads_ahead_as_the_cell_says(limited: pd.DataFrame, tmp_path: Path) -> None:
    """With 8 KiB around a fault a mapped set stays on the disk: every sample faults, and the rest is not there."""
    (row,) = limited.query("read_ahead_kib == 8").itertuples()
    assert row.outcome == "ok", row.error_message
    assert row.major_faults >= row.samples
    consumed = consumed_samples(row.warmup_steps + row.steps, 8, 2, row.prefetch_factor)
    assert unread_in_memory(row.cached_after_pct, consumed, 552) <= UNREAD_MOST
    assert read_ahead.problem(tmp_path) is None


@pytest.mark.slow
@possible
def test_workers_share_the_limit_and_the_template_does_not(runner: Runner) -> None:
    """A trial enters its group before its workers start; the process that it was forked from stays outside."""
    seen: list[set[int]] = []

    def watch(event: str, pid: int, _: dict[str, Any]) -> None:
        if event == "first_batch":
            seen.append({pid, *descendants(pid)})
            seen.append(set(map(int, Path(group.entries[0]).read_text().split())))

    with limits.group(512) as group:
        answer = runner.run(watch=watch, readahead=False, groups=group.entries)
    assert answer.outcome == "ok", answer.message
    assert seen[0] == seen[1]
    assert len(seen[0]) == 1 + CELL["num_workers"]
