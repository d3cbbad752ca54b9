"""Cold trials prove that they were cold, and trials whose memory is limited have no more: real trials of a sweep."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from beside import tried
from sweeping import Place, printed_by
from warm import Runner

from feedrate.machine import memory_limit
from feedrate.machine.probes.host import HostProbe
from feedrate.machine.probes.procfs import descendants
from feedrate.schema.window import READ_LEAST, needed_bytes
from feedrate.store import runs
from feedrate.sweep.launcher import Answer
from feedrate.sweep.sweep import Observer, require_cold

CELL = {
    "workload": "synthetic",
    "mode": "load",
    "storage_format": "lmdb",
    "page_cache": "cold",
    "n_samples": 256,
    "patch_size": 64,
    "batch_size": 8,
    "num_workers": 2,
    "prefetch_factor": 2,
}
"""7 MB: a disk that reads 128 KiB around each of 88 faults, the least of a warm-up, has read most of it."""
LIMITED = """
version: 1
protocol: {warmup_s: 0.1, window_s: 0.2, min_steps: 8, blocks: [1, 1], timeout_s: 60}
suites:
  loader:
    - {mode: load, page_cache: cold, n_samples: 512, batch_size: 8, num_workers: 2, storage_format: png}
    - {mode: load, page_cache: cold, n_samples: 512, batch_size: 8, num_workers: 2, storage_format: lmdb,
        readahead: false, memory_limit_mib: [0, 512, 4]}
profiles: {quick: {}}
"""
possible = pytest.mark.skipif((missing := memory_limit.missing()) is not None, reason=str(missing))


def observed(runner: Runner, **cell: Any) -> dict[str, Any]:
    """The row of a real trial."""
    with HostProbe() as host:
        observer = Observer(host, None, 0, lambda _: None)
        answer = runner.run(watch=observer, window_s=30, **cell)
        row: dict[str, Any] = observer.entry(answer, {}, CELL | cell)["trial"]
    return row


@tried
def test_a_mapped_set_that_was_read_ahead_is_not_cold(runner: Runner) -> None:
    """What was read around the faults of the warm-up is not read in the window: the trial failed, and says so."""
    row = observed(runner)
    assert (row["outcome"], row["error_kind"]) == ("error", "NotCold")
    assert f"{row['read_bytes']:,} bytes were read from storage in the window" in row["error_message"]
    assert "raise n_samples, or protocol.window_s" in row["error_message"]
    assert row.get("samples_per_s") is None


@tried
def test_without_readahead_it_is_cold_and_its_window_alone_counts(runner: Runner) -> None:
    """A window reads what its samples take; what warm-up and lead-in read would be half as much again."""
    row = observed(runner, readahead=False)
    assert row["outcome"] == "ok", row["error_message"]
    needed = needed_bytes(row["stored_bytes"], row["samples"], CELL["n_samples"])
    stock = CELL["num_workers"] * CELL["prefetch_factor"] * CELL["batch_size"]
    assert READ_LEAST * needed <= row["read_bytes"] <= (1.1 + stock / row["samples"]) * needed
    assert row["warmup_steps"] * CELL["batch_size"] > (0.1 + stock / row["samples"]) * row["samples"]


@pytest.mark.parametrize(
    ("read_bytes", "row", "said"),
    [
        (800, {}, None),
        (799, {}, "799 bytes were read from storage in the window, whose samples take 1,000 bytes"),
        (None, {}, "cannot be observed here"),
        (799, {"cache_bytes": 3000}, None),
        (100, {"cache_bytes": 3000}, "whose samples take 300 bytes"),
    ],
)
def test_what_a_cold_trial_must_have_read(read_bytes: int | None, row: dict[str, int], said: str | None) -> None:
    """Four fifths of what its samples take in the set, or in the cache that stands in for it."""
    answer = Answer("ok", result={"row": {"stored_bytes": 10_000, "samples": 10, **row}})
    found = require_cold(answer, read_bytes, {"page_cache": "cold", "n_samples": 100})
    assert (found.kind, said in (found.message or "")) if said else found == answer
    assert require_cold(answer, read_bytes, {"page_cache": "warm", "n_samples": 100}) == answer


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Trials of a real sweep whose cells differ in format and limit."""
    folder = tmp_path_factory.mktemp("limited")
    place = Place(folder, folder / "data")
    place.matrix.write_text(LIMITED)
    printed_by(*place.command())
    (run,) = runs.runs(place.results)
    return run.table("trials").query("role == 'cell'")


@pytest.mark.slow
@possible
def test_a_trial_has_the_memory_of_its_cell(limited: pd.DataFrame) -> None:
    """Files and a map without readahead are cold, within a limit too; what needs more than that is out of memory."""
    found = {(row.storage_format, row.memory_limit_mib): row.outcome for row in limited.itertuples()}
    assert found == {("png", 0): "ok", ("lmdb", 0): "ok", ("lmdb", 512): "ok", ("lmdb", 4): "oom"}
    assert limited["error_kind"].dropna().to_list() == ["MemoryLimit"]


@pytest.mark.slow
@possible
def test_workers_share_the_limit_and_the_template_does_not(runner: Runner) -> None:
    """A trial enters its group before its workers start; the process that it was forked from stays outside."""
    seen: list[set[int]] = []

    def watch(event: str, pid: int, _: dict[str, Any]) -> None:
        if event == "first_batch":
            seen.append({pid, *descendants(pid)})
            seen.append(set(map(int, group.entry.read_text().split())))

    with memory_limit.group(512) as group:
        answer = runner.run(watch=watch, readahead=False, memory_group=str(group.entry))
    assert answer.outcome == "ok", answer.message
    assert seen[0] == seen[1]
    assert len(seen[0]) == 1 + CELL["num_workers"]
