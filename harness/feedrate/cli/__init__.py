"""The commands. No logic: each reads its options, calls one function and prints."""

from __future__ import annotations

import typer
from rich.console import Console

from feedrate.cli import answers, scripts, submissions, sweeps
from feedrate.schema.errors import FeedrateError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="feedrate: how fast can a machine feed its accelerator, and what holds it back?",
)
for _module in (sweeps, scripts, answers, submissions):
    app.add_typer(_module.commands)
for _name, _help, _modules in (
    ("results", "Mark, sum up, release and describe runs that have ended.", (submissions, answers)),
    ("data", "Download photographs.", (sweeps,)),
):
    _group = typer.Typer(no_args_is_help=True, help=_help)
    for _module in _modules:
        _group.add_typer(getattr(_module, f"of_{_name}"))
    app.add_typer(_group, name=_name)


def main() -> int:
    """Run a command; a mistake of the user's is one line, never a traceback.

    Returns:
        1 for a failed run, 2 for bad input; every other status leaves as SystemExit.
    """
    try:
        app()
    except FeedrateError as error:
        Console(stderr=True).print(f"feedrate: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return error.exit_status
    return 0
