"""``feedrate run`` and ``feedrate top`` on the terminal."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import secrets
import shlex
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.text import Text

from feedrate.attach.run import HOOK, Ended, noted
from feedrate.attach.run import run as run_script
from feedrate.schema.axes import BY_NAME
from feedrate.schema.errors import InputError
from feedrate.schema.words import parse

if TYPE_CHECKING:  # loaded while a script runs
    from feedrate.attach import space

MADE_BATCH = 32
"""Samples of a batch where a function gives a data set and no ``--batch-size`` is asked for."""
HEADSPACE_STEPS, HEADSPACE_AFTER = 50, 100
"""Steps of each ceiling, and real steps before, where ``--steps`` does not say."""


def run(
    command: Sequence[str],
    console: Console,
    results: Path | None,
    *,
    name: str = "",
    steps: int = 0,
    live: bool = False,
    headspace: bool = False,
    lines: bool = True,
    as_json: str = "",
    as_trace: str = "",
    as_html: str = "",
) -> None:
    """Run a script, print what was seen, record it, and end as the script did; 0 ``steps`` leave it its own end.

    ``results``: None for feedrate's own.

    Raises:
        InputError: the program cannot be started, or the name is none.
        Exit: with the script's status.
    """
    called = str(BY_NAME["script"].checked(name or script_name(command), "run: --name"))
    steps = steps or (HEADSPACE_AFTER if headspace else 0)
    view = None
    if live:
        from feedrate.attach.live import View

        view = View(console)
    with view or nullcontext():
        look = view.look if view else lambda _: None
        ended = run_script(command, steps=steps, headspace=HEADSPACE_STEPS if headspace else 0, lines=lines, look=look)
    from feedrate.attach import report, rows
    from feedrate.store import remote, runs

    notes: list[str] = []
    with noted(notes, "no report"):
        show(report.text(ended.report), console)
    if as_json:
        with noted(notes, f"no --json {as_json}"):
            _write_json(report.as_object(ended.report), as_json)
    _write_pictures(ended, console, notes, as_trace, as_html)
    with noted(notes, "no record"):
        results = results or runs.home()
        if stored := rows.save(ended, results, called):
            where = remote.hand_in(stored.folder, results)
            show([("record", f"{where}: make site shows it, feedrate compare compares it with another")], console)
    with suppress(OSError):  # nobody reads stderr any more
        show([("note", note) for note in notes], console)
    if ended.returncode < 0:  # killed by a signal: so are we, and the shell says so
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        with suppress(OSError):  # of SIGKILL there is no handler
            signal.signal(-ended.returncode, signal.SIG_DFL)
        os.kill(os.getpid(), -ended.returncode)
    raise typer.Exit(ended.returncode)


def _write_pictures(ended: Ended, console: Console, notes: list[str], as_trace: str, as_html: str) -> None:
    """Write the time line and the page where they are asked for, and say where they are."""
    if as_trace:
        with noted(notes, f"no --trace {as_trace}"):
            from feedrate.attach import trace

            trace.write(ended.processes, Path(as_trace))
            show([("trace", f"{as_trace}: ui.perfetto.dev opens it")], console)
    if as_html:
        with noted(notes, f"no --html {as_html}"):
            from feedrate.attach import page

            page.write(ended.report, ended.processes, ended.stacks, Path(as_html))
            show([("page", as_html)], console)


def _write_json(document: Mapping[str, Any], where: str) -> None:
    """Write what was said to a file, or to stdout where that is a dash."""
    text = json.dumps(document, indent=1) + "\n"
    with open(sys.stdout.fileno() if where == "-" else where, "w", closefd=where != "-") as file:
        file.write(text)


def tune(
    command: Sequence[str],
    console: Console,
    results: Path,
    asked: space.Asked,
    *,
    within_pct: float,
    budget: str,
    python: str = sys.executable,
    name: str = "",
    as_json: str = "",
) -> None:
    """Find the best settings for a script's loader, or for what a FILE.py:FUNCTION makes, and print them.

    ``python`` runs such a file; the best setting may be ``within_pct`` faster than that which is recommended.

    Raises:
        InputError: the program cannot be started, or the budget is none.
        Exit: 130 after Ctrl-C; 1 where nothing was tuned, or with the script's own status.
    """
    from feedrate.attach import rows, tune_report
    from feedrate.attach.tune import Tuning
    from feedrate.attach.tune import tune as tune_script
    from feedrate.machine import identity
    from feedrate.machine.probes import gpu
    from feedrate.store import remote, runs

    called, function = shlex.join(command), _function(command)
    if function:
        size = str((asked.batch_sizes or (MADE_BATCH,))[0])
        command = [python, str(HOOK / "feedrate_make.py"), *function, size]
    name = str(BY_NAME["script"].checked(name or script_name(function or command), "--name"))
    budget_s = parse(budget, "--budget") if budget else math.inf
    tuning = Tuning(
        asked,
        within=math.log1p(within_pct / 100),
        seed=secrets.randbits(32),
        cores=identity.cpu_quota() or len(identity.usable_cores()),
        on_trial=lambda tried: show([("trial", tune_report.line(tried))], console),
        on_block=lambda outcome: show([("so far", tune_report.standing(outcome))], console),
    )
    machine_id = identity.describe(gpu.installed()).machine_id
    with runs.machine_lock(results, machine_id):
        remote.hand_in_left(results, machine_id)
        session = tune_script(command, tuning, budget_s=budget_s, any_loader=bool(function))
        result = tune_report.result(session)
        lines = list(tune_report.text(session, result, called))
        show(lines, console)
        document = tune_report.as_object(session, result)
        if as_json:
            _write_json(document, as_json)
        if result:
            stored = rows.save_search(session, result, results, name, budget_s, document | {"said": lines})
            show([("record", f"{remote.hand_in(stored.folder, results)}: make site shows it")], console)
    if tuning.ended == "interrupted":
        raise typer.Exit(130)
    if result is None:
        raise typer.Exit(session.ended.returncode or 1)


def _function(command: Sequence[str]) -> tuple[str, ...]:
    """File and name of the function to tune; nothing where a program is started.

    Raises:
        InputError: there is no such file.
    """
    match = re.fullmatch(r"(.+\.py):(\w+)", command[0]) if len(command) == 1 else None
    if match and not Path(match[1]).is_file():
        raise InputError(f"tune: {match[1]}: no such file; expected FILE.py:FUNCTION")
    return match.groups() if match else ()


def top(pid: int, seconds: float, console: Console) -> None:
    """Look at a training that runs, and print what was seen.

    Raises:
        InputError: there is no such process.
        EnvironmentFault: its stacks cannot be read.
    """
    from feedrate.attach import top as looking

    show(looking.text(looking.look(pid, seconds)), console)


def script_name(command: Sequence[str]) -> str:
    """What a script is called in records: its file, or the module or program that is run."""
    after = [word for before, word in pairwise(command) if before == "-m"]
    program = next((word for word in command if word.endswith(".py")), (after or [command[0]])[0])
    return re.sub(r"[^\w.+-]", "_", Path(program).name, flags=re.ASCII)[:60]


def show(lines: Iterable[tuple[str, str]], console: Console) -> None:
    """Print lines that are each about something, which is named once; one about nothing is the heading."""
    before = ""
    for about, line in lines:
        begin = (f"  {about if about != before else '':<14}", "bold") if about else ("feedrate: ", "bold cyan")
        before = about
        console.print(Text.assemble(begin, line), soft_wrap=True)
