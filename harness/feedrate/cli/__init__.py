"""The commands. No logic: each reads its options, calls one function and prints."""

from __future__ import annotations

import errno

import typer

from feedrate.cli import answers, scripts, submissions, sweeps
from feedrate.cli.options import rich_console
from feedrate.schema.errors import EnvironmentFault, FeedrateError

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


_USED_UP = {
    errno.EMFILE: "close programs or raise the limit (ulimit -n)",
    errno.ENFILE: "close programs",
    errno.ENOMEM: "close programs",
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room in your quota",
}
"""What a machine may run out of, in any line of any command, and what to do."""


def main() -> int:
    """Run a command; a mistake of the user's and a machine that is used up are one line, never a traceback.

    Returns:
        1 for a failed run, 2 for bad input; every other status leaves as SystemExit.
    """
    try:
        app()
    except FeedrateError as error:
        fault = error
    except OSError as error:
        if error.errno not in _USED_UP:
            raise
        fault = EnvironmentFault(f"{error}; {_USED_UP[error.errno]}, then repeat the command")
    else:
        return 0
    rich_console(stderr=True).print(f"feedrate: {fault}", style="red", markup=False, highlight=False, soft_wrap=True)
    return fault.exit_status
