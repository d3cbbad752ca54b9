"""What feedrate promises of itself, measured: accuracy, its own cost, intervals, ``run``, ``tune`` and its website.

A figure that misses its target is printed as missed. The record is written beside the machine's runs, and the page
"How accurate is feedrate?" is made from it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from feedrate import __version__
from feedrate.bench import account, accuracy, calibration, cost, scripts, site, tuning
from feedrate.bench.session import Figure, Session
from feedrate.machine.identity import describe, software
from feedrate.machine.probes import gpu
from feedrate.schema.errors import EnvironmentFault, FeedrateError, InputError, expected_one_of
from feedrate.store import remote, runs
from feedrate.store.bench_record import SECTIONS, BenchRecord, Promise

MEASURES: dict[str, Callable[[Session], Iterable[Figure]]] = {
    "speed": cost.measure,
    "accuracy": accuracy.measure,
    "scripts": scripts.measure,
    "account": account.measure,
    "tuning": tuning.measure,
    "calibration": calibration.measure,
    "site": site.measure,
}
"""Section to what takes its figures."""
_VERDICT = {True: "met", False: "MISSED", None: "not here"}


def measure(console: Console, only: str = "", results: Path = runs.RESULTS) -> BenchRecord:
    """Take the figures of some or all sections and write them down; all take about an hour and a half.

    Args:
        console: where progress goes.
        only: sections, separated by commas; empty is all of them.
        results: where the record is written, and where runs are read from.

    Raises:
        InputError: there is no such section, or a sweep is running.
        EnvironmentFault: ``results`` cannot be written.
    """
    asked = [name.strip() for name in only.split(",") if name.strip()]
    for name in asked:
        if name not in SECTIONS:
            raise InputError(f"bench: no section '{name}'; {expected_one_of(name, SECTIONS)}")
    sections = tuple(name for name in SECTIONS if name in asked or not asked)
    started, begun = datetime.now(UTC), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        machine = describe(gpu.installed(), Path(folder))
        with runs.machine_lock(results, machine.machine_id):
            session = Session(console, Path(folder), remote.copy(results), gpu.device(), machine.machine_id)
            promises = tuple(promise for name in sections for promise in _section(session, name))
    record = BenchRecord(
        feedrate_version=__version__,
        machine=machine,
        software=software(),
        device=session.device,
        started_at=started,
        took_s=time.perf_counter() - begun,
        sections=sections,
        promises=promises,
        witnessed=tuple(session.witnessed),
        scripts=tuple(session.scripts),
        accounted=tuple(session.accounted),
        tuned=tuple(session.tuned),
    )
    console.print(f"Written: {remote.hand_in(runs.write_bench(results, record), results)}")
    return record


def _section(session: Session, name: str) -> list[Promise]:
    """Take a section's figures; one that fails loses neither the others nor what it took before."""
    figures: list[Figure] = []
    try:
        figures.extend(MEASURES[name](session))
    except FeedrateError as error:
        verdict = None if isinstance(error, EnvironmentFault) else False
        figures.append(Figure("the rest of this section", "taken", str(error), verdict))
    return [Promise(section=name, **figure._asdict()) for figure in figures]


def show(record: BenchRecord, console: Console) -> None:
    """Print the figures as a table."""
    table = Table("figure", "target", "measured", "", box=None, padding=(0, 2), header_style="bold")
    for promise in record.promises:
        table.add_row(promise.what, promise.target, promise.measured, _VERDICT[promise.met])
    console.print(table)
