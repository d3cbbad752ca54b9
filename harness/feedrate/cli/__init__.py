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
    rich_markup_mode=None,  # its boxes take 0.15 s to import
    help="feedrate: how fast can a machine feed its accelerator, and what holds it back?",
)
for commands in (sweeps.commands, scripts.commands, answers.commands, submissions.commands):
    app.add_typer(commands)

results = typer.Typer(no_args_is_help=True, help="Mark, sum up, release and describe runs that have ended.")
results.add_typer(submissions.of_results)
results.add_typer(answers.of_results)
app.add_typer(results, name="results")

data = typer.Typer(no_args_is_help=True, help="Download photographs.")
data.add_typer(sweeps.of_data)
app.add_typer(data, name="data")


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
