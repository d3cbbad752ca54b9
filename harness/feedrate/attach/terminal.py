"""``feedrate run`` and ``feedrate top`` on the terminal."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, suppress
from itertools import pairwise
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from feedrate.attach import report, rows
from feedrate.attach.live import View
from feedrate.attach.run import noted
from feedrate.attach.run import run as run_script
from feedrate.schema.axes import BY_NAME

HEADSPACE_STEPS, HEADSPACE_AFTER = 50, 100
"""Steps of each ceiling, and real steps before, where ``--steps`` does not say."""


def run(
    command: Sequence[str],
    console: Console,
    results: Path,
    *,
    name: str = "",
    steps: int = 0,
    live: bool = False,
    headspace: bool = False,
    lines: bool = True,
    as_json: str = "",
) -> None:
    """Run a script, print what was seen, record it, and end as the script did.

    Args:
        command: the program and its arguments.
        console: gets what is said; the script's own output is left alone.
        results: where the run is written.
        name: what the script is called in records; by default as its file.
        steps: end it after so many batches; 0 leaves it its own end.
        live: whether to show it while it runs.
        headspace: whether to measure step and loader alone, too.
        lines: whether to sample lines of code.
        as_json: a file for the report, - for stdout.

    Raises:
        InputError: the program cannot be started, or the name is none.
        Exit: with the script's status.
    """
    called = str(BY_NAME["script"].checked(name or script_name(command), "feedrate run: --name"))
    steps = steps or (HEADSPACE_AFTER if headspace else 0)
    view = View(console) if live else None
    with view or nullcontext():
        look = {"look": view.look} if view else {}
        ended = run_script(command, steps=steps, headspace=HEADSPACE_STEPS if headspace else 0, lines=lines, **look)
    notes: list[str] = []
    with noted(notes, "no report"):
        show(report.text(ended.report), console)
    if as_json:
        with noted(notes, f"no --json {as_json}"):
            text = json.dumps(report.as_object(ended.report), indent=1) + "\n"
            with open(sys.stdout.fileno() if as_json == "-" else as_json, "w", closefd=as_json != "-") as file:
                file.write(text)
    with noted(notes, "no record"):
        if stored := rows.save(ended, results, called):
            said = f"{stored.folder}: make site shows it, make compare A= B= holds it against another"
            show([("record", said)], console)
    with suppress(OSError):  # nobody reads stderr any more
        show([("note", note) for note in notes], console)
    if ended.returncode < 0:  # killed by a signal: so are we, and the shell says so
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        with suppress(OSError):  # of SIGKILL there is no handler
            signal.signal(-ended.returncode, signal.SIG_DFL)
        os.kill(os.getpid(), -ended.returncode)
    raise typer.Exit(ended.returncode)


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
    found = next((word for word in command if word.endswith(".py")), (after or [command[0]])[0])
    return re.sub(r"[^\w.+-]", "_", Path(found).name, flags=re.ASCII)[:60]


def show(lines: Iterable[tuple[str, str]], console: Console) -> None:
    """Print lines that are each about something; one about nothing is the heading."""
    for about, line in lines:
        begin = (f"  {about:<14}", "bold") if about else ("feedrate: ", "bold cyan")
        console.print(Text.assemble(begin, line), soft_wrap=True)
