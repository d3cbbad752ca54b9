"""Commands for results of several people: checked, submitted, marked and released."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from feedrate.cli.options import BUILD, RESULTS, Label, Note, Results, RunName, path, place

commands, of_results = typer.Typer(), typer.Typer()
"""Top-level commands, and those of the group ``results``."""


@commands.command()
def validate(
    files: Annotated[
        list[Path],
        typer.Argument(
            parser=place, metavar="FILE...", help="A trials.parquet, a run's folder, a folder of runs, or a store."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")] = False,
    results: Annotated[
        Path, typer.Option(parser=place, help="Where runs lie: those below it must lie in their place.")
    ] = RESULTS,
) -> None:
    """Check result files of others: structure, ranges, identities.

    Files that are refused, and paths that name nothing, say why (exit status 2).
    """
    from feedrate.share import terminal as share_terminal

    validated = share_terminal.validate(files, results, None if as_json else Console())
    if as_json:
        typer.echo(share_terminal.as_json(validated))
    if not all(one.valid for one in validated):
        raise typer.Exit(2)


@commands.command()
def submit(
    run: RunName,
    label: Label = "",
    note: Note = "",
    yes: Annotated[bool, typer.Option("--yes", help="Publish without asking.")] = False,
    out: Annotated[
        Path, typer.Option(parser=path, help="Where one file to attach goes, if no pull request can be opened.")
    ] = BUILD,
    results: Results = RESULTS,
) -> None:
    """Publish a run: shows what will be public, asks, then opens a pull request or makes one file to attach."""
    from feedrate.share import terminal as share_terminal

    ask = (lambda _: True) if yes else share_terminal.confirm
    share_terminal.submit(run, Console(), results=results, label=label, note=note, out=out, ask=ask)


@of_results.command()
def withdraw(
    run: RunName,
    why: Annotated[str, typer.Option(help="The defect, in a sentence: the run's page gives it.")] = "",
    results: Results = RESULTS,
) -> None:
    """Take back a run that has a defect, never for what it found; its page stays, with the reason."""
    from feedrate.share import terminal as share_terminal

    share_terminal.withdraw(run, why, Console(), results)


@of_results.command()
def label(run: RunName, label: Label = "", note: Note = "", results: Results = RESULTS) -> None:
    """Give a run a label and a note, in a file beside it."""
    from feedrate.share import terminal as share_terminal

    share_terminal.label(run, label, note, Console(), results)


@of_results.command()
def tier(
    run: RunName,
    name: Annotated[str, typer.Argument(metavar="TIER", help="self-reported or reference.")],
    results: Results = RESULTS,
) -> None:
    """Say who vouches for a run (for the maintainers of feedrate)."""
    from feedrate.share import terminal as share_terminal

    share_terminal.set_tier(run, name, Console(), results)


@of_results.command("release")
def data_release(
    out: Annotated[Path, typer.Option(parser=path, help="A folder for archive, checksum and metadata.")] = BUILD
    / "release",
    results: Results = RESULTS,
) -> None:
    """Write all runs as one archive with its checksum, and the metadata for a DOI (for the maintainers of feedrate)."""
    from feedrate.share import release

    made = release.make(results, out)
    left = f"; {made.refused} that break a rule are left out" if made.refused else ""
    Console().print(
        f"{made.archive}: {made.runs} runs{left}. SHA256SUMS is its checksum, zenodo.json what Zenodo asks for.",
        highlight=False,
    )
