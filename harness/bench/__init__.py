"""What feedrate promises of itself, measured: speed, accuracy, its own cost, statistics, files of others, its website.

A figure that misses its target is printed as missed. What was found is written beside the machine's runs, and the page
"How accurate is feedrate?" is made from it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness import __version__, store
from harness.bench import accuracy, calibration, files, instrumentation, simulated, site, speed, storage
from harness.bench.place import Place
from harness.bench_record import SECTIONS, BenchRecord, Promise, WitnessedTrial
from harness.errors import EnvironmentFault, FeedrateError, InputError, expected_one_of
from harness.machine import describe, software
from harness.probes import gpu

TAKEN: dict[str, Callable[[Place], list[Promise]]] = {
    speed.SECTION: speed.measure,
    storage.SECTION: storage.measure,
    instrumentation.SECTION: instrumentation.measure,
    simulated.SECTION: simulated.measure,
    calibration.SECTION: calibration.measure,
    files.SECTION: files.measure,
    site.SECTION: site.measure,
}
"""Sections that give figures and nothing else."""
_VERDICT = {True: "met", False: "MISSED", None: "not here"}


def measure(console: Console, only: str = "", results: Path = store.RESULTS) -> BenchRecord:
    """Take the figures of some or all sections and write them down; all take about twenty minutes.

    Args:
        console: where progress goes.
        only: sections, separated by commas; empty is all of them.
        results: where the record is written, and where runs are read from.

    Raises:
        InputError: there is no such section, or a sweep is running.
        EnvironmentFault: ``results`` cannot be written.
    """
    wanted = chosen(only)
    started, begun = datetime.now(UTC), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        machine = describe(gpu.installed(), Path(folder))
        with store.machine_lock(results, machine.machine_id):
            place = Place(console, Path(folder), results, gpu.device(), machine.machine_id)
            promises, witnessed = _take(place, wanted)
    record = BenchRecord(
        feedrate_version=__version__,
        machine=machine,
        software=software(),
        device=place.device,
        started_at=started,
        took_s=time.perf_counter() - begun,
        sections=wanted,
        promises=tuple(promises),
        witnessed=tuple(witnessed),
    )
    console.print(f"Written: {store.write_bench(results, record)}")
    return record


def chosen(only: str) -> tuple[str, ...]:
    """Read a choice of sections.

    Raises:
        InputError: there is no such section.
    """
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in SECTIONS:
            raise InputError(f"bench --only: no section '{name}'; {expected_one_of(name, SECTIONS)}")
    return tuple(name for name in SECTIONS if name in names or not names)


def _take(place: Place, wanted: Sequence[str]) -> tuple[list[Promise], list[WitnessedTrial]]:
    promises: list[Promise] = []
    witnessed: list[WitnessedTrial] = []
    for name in wanted:
        try:
            if name == accuracy.SECTION:
                found, witnessed = accuracy.measure(place)
            else:
                found = TAKEN[name](place)
        except FeedrateError as error:  # the sections before it are not lost
            met = None if isinstance(error, EnvironmentFault) else False
            found = [Promise(section=name, what="all of this section", target="taken", measured=str(error), met=met)]
        promises += found
    return promises, witnessed


def show(record: BenchRecord, console: Console) -> None:
    """Print the figures as a table."""
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for heading in ("figure", "target", "measured", ""):
        table.add_column(heading)
    for promise in record.promises:
        table.add_row(promise.what, promise.target, promise.measured, _VERDICT[promise.met])
    console.print(table)
