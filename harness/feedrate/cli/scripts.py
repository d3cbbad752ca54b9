"""Commands for people's own training scripts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from feedrate.cli.options import results_path, rich_console
from feedrate.schema.errors import InputError

commands = typer.Typer()
RunResults = Annotated[
    Path | None, typer.Option(parser=results_path, help="Where the run is written; by default with feedrate's runs.")
]


def _file(kind: str, words: str) -> Any:
    return typer.Option(f"--{kind}", metavar="FILE", help=words)


@commands.command("run")
def run_script(
    command: Annotated[list[str], typer.Argument(metavar="-- PROGRAM ARG...", help="The script as you start it.")],
    steps: Annotated[int, typer.Option(min=0, help="End it after so many batches; 0 leaves it its own end.")] = 0,
    live: Annotated[bool, typer.Option("--live", help="Show pace, waits and workers while it runs.")] = False,
    headspace: Annotated[
        bool, typer.Option("--headspace", help="After --steps batches time step and loader alone; spoils the weights.")
    ] = False,
    lines: Annotated[
        bool, typer.Option("--lines/--no-lines", help="Sample which lines of code cost the time; takes some CPU.")
    ] = True,
    name: Annotated[str, typer.Option(help="What records call it: runs of one name are compared.")] = "",
    as_json: Annotated[str, _file("json", "Write the report there, too; - is stdout.")] = "",
    as_trace: Annotated[str, _file("trace", "Write the time line there, for ui.perfetto.dev.")] = "",
    as_html: Annotated[str, _file("html", "Write a page with bar, flame graphs and time line there.")] = "",
    results: RunResults = None,
) -> None:
    """Run a training script as it is, and say what holds it back. In which line, and what would help."""
    from feedrate.attach import terminal

    files = {"--json": as_json, "--trace": as_trace, "--html": as_html}
    for option, file in files.items():
        if file == "--":  # what stands before the script was taken for the file
            raise InputError(f"run: {option} names no file; expected {option} FILE -- PROGRAM ARG...")
    options: dict[str, Any] = {"name": name, "steps": steps, "live": live, "headspace": headspace, "lines": lines}
    options |= {"as_json": as_json, "as_trace": as_trace, "as_html": as_html}
    terminal.run(command, rich_console(stderr=True), results, **options)


@commands.command()
def tune(
    command: Annotated[
        list[str], typer.Argument(metavar="-- PROGRAM ARG...", help="The script as you start it, or FILE.py:FUNCTION.")
    ],
    batch_size: Annotated[str, typer.Option(metavar="N,N...", help="Batch sizes to try, too.")] = "",
    start_method: Annotated[str, typer.Option(metavar="NAME,...", help="How workers may be started, too.")] = "",
    max_workers: Annotated[int, typer.Option(min=0, help="0: as many as there are cores, 16 at least.")] = 0,
    within: Annotated[float, typer.Option(min=0.1, help="By how many per cent the best setting may be faster.")] = 3.0,
    budget: Annotated[str, typer.Option(help="Time for measurements, from the first one on: 90s, 4m.")] = "2m",
    python: Annotated[str, typer.Option(help="The Python that runs FILE.py:FUNCTION.")] = sys.executable,
    name: Annotated[str, typer.Option(help="What records call it; by default as its file.")] = "",
    as_json: Annotated[str, _file("json", "Write the result there; - is stdout.")] = "",
    results: RunResults = None,
) -> None:
    """Find the DataLoader settings that feed a script best. And how far from the best they can be."""
    from feedrate.attach import space, terminal
    from feedrate.store import runs

    asked = space.asked(batch_size, start_method, max_workers)
    options: dict[str, Any] = {"within_pct": within, "budget": budget, "as_json": as_json, "python": python}
    terminal.tune(command, rich_console(stderr=True), results or runs.home(), asked, name=name, **options)


@commands.command()
def top(
    pid: Annotated[int, typer.Argument(metavar="PID", help="The training process.")],
    seconds: Annotated[float, typer.Option(min=1, help="How long to look.")] = 30.0,
) -> None:
    """Say what holds back a training that already runs. It reads the stacks of its processes."""
    from feedrate.attach import terminal

    terminal.top(pid, seconds, rich_console())
