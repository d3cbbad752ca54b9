"""What feedrate promises of itself, measured: accuracy, its own cost, intervals, ``run``, ``tune`` and its website.

A figure that misses its target is printed as missed. What was found is written beside the machine's runs, and the page
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
from feedrate.bench import accounted, accuracy, calibration, cost, faults, scripts, site, struck, tuning
from feedrate.bench.session import Figure, Session
from feedrate.machine.identity import describe, software
from feedrate.machine.probes import gpu
from feedrate.schema.errors import EnvironmentFault, FeedrateError, InputError, expected_one_of
from feedrate.store import remote, runs
from feedrate.store.bench_record import FAULTS, SECTIONS, BenchRecord, Promise

MEASURES: dict[str, Callable[[Session], Iterable[Figure]]] = {
    "speed": cost.measure,
    "accuracy": accuracy.measure,
    "scripts": scripts.measure,
    "account": accounted.measure,
    "tuning": tuning.measure,
    "calibration": calibration.measure,
    "site": site.measure,
    "kills": faults.kills,
    "mishaps": faults.mishaps,
    "strikes": struck.measure,
    "soak": faults.soak,
}
"""Section to what takes its figures."""
KILLS = 200
_VERDICT = {True: "met", False: "MISSED", None: "not here"}


def measure(console: Console, only: str = "", results: Path = runs.RESULTS, kills: int = KILLS) -> BenchRecord:
    """Take the figures of some or all sections and write them down; all take about two hours.

    Args:
        console: where progress goes.
        only: sections, separated by commas; empty is all of them.
        results: where the record is written, and where runs are read from.
        kills: of the section kills; those of other faults follow it.

    Raises:
        InputError: there is no such section, or a sweep is running.
        EnvironmentFault: ``results`` cannot be written.
    """
    sections = chosen(only)
    started, begun = datetime.now(UTC), time.perf_counter()
    promises: list[Promise] = []
    with tempfile.TemporaryDirectory() as folder:
        machine = describe(gpu.installed(), Path(folder))
        with runs.machine_lock(results, machine.machine_id):
            session = Session(console, Path(folder), remote.copy(results), gpu.device(), machine.machine_id, kills)
            for name in sections:
                figures: list[Figure] = []
                try:
                    figures.extend(MEASURES[name](session))
                except FeedrateError as error:  # neither the other sections nor what was taken before are lost
                    verdict = None if isinstance(error, EnvironmentFault) else False
                    figures.append(Figure("the rest of this section", "taken", str(error), verdict))
                promises += [Promise(section=name, **figure._asdict()) for figure in figures]
    record = BenchRecord(
        feedrate_version=__version__,
        machine=machine,
        software=software(),
        device=session.device,
        started_at=started,
        took_s=time.perf_counter() - begun,
        sections=sections,
        promises=tuple(promises),
        witnessed=tuple(session.witnessed),
        scripts=tuple(session.scripts),
        accounted=tuple(session.accounted),
        tuned=tuple(session.tuned),
    )
    console.print(f"Written: {remote.hand_in(runs.write_bench(results, record), results)}")
    return record


def chosen(only: str) -> tuple[str, ...]:
    """Read a choice of sections."""
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in (*SECTIONS, "faults"):
            raise InputError(f"bench: no section '{name}'; {expected_one_of(name, (*SECTIONS, 'faults'))}")
    names += FAULTS if "faults" in names else ()
    return tuple(name for name in SECTIONS if name in names or not names)


def show(record: BenchRecord, console: Console) -> None:
    """Print the figures as a table."""
    table = Table("figure", "target", "measured", "", box=None, padding=(0, 2), header_style="bold")
    for promise in record.promises:
        table.add_row(promise.what, promise.target, promise.measured, _VERDICT[promise.met])
    console.print(table)
