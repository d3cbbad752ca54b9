"""Commands for results of several people: checked, submitted, marked and released."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feedrate import __version__
from feedrate.cli.options import BUILD, RESULTS, Label, Note, Results, RunName, path, results_path, rich_console
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import ROOT
from feedrate.schema.words import plural

if TYPE_CHECKING:
    from rich.console import Console

    from feedrate.share.findings import Validated
    from feedrate.share.submission import Submission

commands, of_results = typer.Typer(), typer.Typer()
"""Top-level commands, and those of the group ``results``."""


def _print(console: Console, text: str, style: str = "", *, whole: bool = False) -> None:
    """Print text as it is; ``whole`` breaks no line."""
    console.print(text, style=style, markup=False, emoji=False, highlight=False, soft_wrap=whole)


@commands.command()
def validate(
    files: Annotated[
        list[Path],
        typer.Argument(
            parser=results_path, metavar="FILE...", help="A trials.parquet, a run, a folder of runs, a store."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")] = False,
    results: Annotated[
        Path, typer.Option(parser=results_path, help="Where runs lie: those below it must lie in their place.")
    ] = RESULTS,
) -> None:
    """Check result files: structure, ranges, identities.

    Files that are refused, and paths that name nothing, say why (exit status 2).
    """
    from feedrate.share import validator
    from feedrate.store import remote

    console, validated = rich_console(), []
    for result in validator.check_all(map(remote.copy, files), remote.copy(results)):
        validated.append(result)
        if not as_json:
            _report(result, console)
    valid = sum(result.valid for result in validated)
    if as_json:
        listed = [asdict(result) | {"valid": result.valid} for result in validated]
        counts = {"feedrate": __version__, "valid": valid, "refused": len(validated) - valid}
        typer.echo(json.dumps(counts | {"files": listed}, indent=1))
    elif len(validated) > 1:
        _print(console, f"{valid} valid, {len(validated) - valid} refused.")
    if valid < len(validated):
        raise typer.Exit(2)


def _report(result: Validated, console: Console) -> None:
    """Print whether a file may be used, and why not."""
    name = ascii(result.path)[1:-1]
    if result.valid:
        run = f"run {result.run_id} of {result.machine_id}, {plural(result.rows or 0, 'measurement')}"
        _print(console, f"valid    {name}: {run}", "green", whole=True)
        return
    _print(console, f"refused  {name}", "red", whole=True)
    for finding in result.findings:
        _print(console, f"  {finding.where}: {finding.got}", whole=True)
        _print(console, f"    expected: {finding.expected}", "dim", whole=True)
    for advice in dict.fromkeys(finding.advice for finding in result.findings):
        _print(console, f"  {advice}.", whole=True)


@commands.command()
def submit(
    run: RunName,
    label: Label = "",
    note: Note = "",
    yes: Annotated[bool, typer.Option("--yes", help="Publish without asking.")] = False,
    out: Annotated[Path, typer.Option(parser=path, help="For one file, if no pull request can be opened.")] = BUILD,
    results: Results = RESULTS,
) -> None:
    """Publish a run: shows what will be public, and asks first. Then it opens a pull request or makes one file."""
    publish(run, rich_console(), results, label, note, out, ask=(lambda _: True) if yes else confirm)


def confirm(console: Console) -> bool:
    """Ask once whether to publish; anything but yes is no.

    Raises:
        InputError: nobody is there to answer.
    """
    if not sys.stdin.isatty():
        raise InputError("submit: asks before anything is published, and nobody is there to answer; --yes answers")
    return console.input("Publish this? [y/N] ", markup=False).strip().lower() in ("y", "yes")


def publish(
    name: str,
    console: Console,
    results: Path = RESULTS,
    label: str = "",
    note: str = "",
    out: Path = BUILD,
    *,
    ask: Callable[[Console], bool],
    checkout: Path = ROOT,
) -> None:
    """Show what would be public of a run, ask, and publish it from a git checkout."""
    from feedrate.share import submission
    from feedrate.store import marks, remote, runs

    prepared = submission.prepare(runs.find(name, remote.copy(results)), label, note)
    way, reason = None, ""
    try:
        way = submission.route(checkout, prepared)
        head = way.base if way.head == way.base else "a fork of it in your account, which is made if there is none"
        intent = f"Your GitHub account {way.login} proposes it to {way.base} ({way.branch}) from {head}: the commit "
        intent += "carries that name and no e-mail address of yours. Your working tree is not touched."
    except submission.Unable as unable:
        reason = str(unable)
        intent = f"No pull request can be opened from here: {reason}. One file to attach is made in {out} instead."
    _show(prepared, console)
    _print(console, f"\n{intent}")
    if not ask(console):
        _print(console, "Nothing was published.")
        return
    if label or note:
        marks.label(runs.find(name, results).folder, prepared.label.label, prepared.label.note)
    try:
        if way:
            _print(console, f"Submitted: {submission.propose(way, prepared)}")
            return
    except submission.Unable as unable:
        reason = str(unable)
    file = submission.pack(prepared, out)
    advice = "attach it to an issue of the feedrate repository, or mend this and type the same command again."
    size = f"{file.stat().st_size:,} bytes"
    _print(console, f"No pull request was opened: {reason}.\nIt is all in {file} ({size}): {advice}")


def _show(prepared: Submission, console: Console) -> None:
    """Print everything that would be public."""
    from rich.table import Table
    from rich.text import Text

    from feedrate.schema.redaction import one_line
    from feedrate.share import submission

    _print(console, f"This would be public of run {prepared.run.manifest.run_id}:\n", "bold")
    for file, data in prepared.files.items():
        _print(console, f"{len(data):>12,} bytes  {file}", whole=True)
    for what, text in (("label", prepared.label.label), ("note", prepared.label.note)):
        if text:
            _print(console, f"{what}: {text}")
    _print(console, "\nWhat run.json says, which is in every file as well", "bold")
    facts = Table(box=None, padding=(0, 1), show_header=False)
    facts.add_column(no_wrap=True, style="dim")
    facts.add_column(overflow="fold")
    for name, value in prepared.facts:
        facts.add_row(Text(one_line(name)), Text(one_line(value)))
    console.print(facts)
    if prepared.run.manifest.script:
        _print(console, "\nOf the script its name alone is published: no code, path or argument, no report.", "bold")
    texts = submission.free_texts(prepared.run)
    none = "No measurement failed or was checked: there are no further texts."
    _print(console, f"\n{'What failures and checks say' if texts else none}", "bold" if texts else "")
    for text, count in texts.items():
        _print(console, f"  {count:,} ×  {one_line(text)}")
    if names := submission.own_names(prepared):
        _print(console, "\nThis looks like a name of this machine or of its user, or like its home folder:", "bold red")
        for text in names:
            _print(console, f"  {one_line(text)}", "red")


@of_results.command()
def withdraw(
    run: RunName,
    why: Annotated[str, typer.Option(help="The defect, in a sentence: the run's page gives it.")] = "",
    results: Results = RESULTS,
) -> None:
    """Take back a run that has a defect, never for what it found. Its page stays, with the reason."""
    from feedrate.store import marks, runs

    file = marks.withdraw(runs.find(run, results).folder, why)
    effect = "make site leaves the run out of every chart and list; its page stays, with the reason"
    advice = "Where the run is published, open a pull request that adds this file."
    _print(rich_console(), f"{file} says so. {effect}. {advice}")


@of_results.command()
def label(run: RunName, label: Label = "", note: Note = "", results: Results = RESULTS) -> None:
    """Give a run a label and a note, in a file beside it."""
    from feedrate.store import marks, runs

    file = marks.label(runs.find(run, results).folder, label, note)
    advice = "Where the run is published already, its maintainers alone change the label: ask them in an issue."
    _print(rich_console(), f"{file} holds it. make submit publishes it with the run. {advice}")


@of_results.command()
def tier(
    run: RunName,
    name: Annotated[str, typer.Argument(metavar="TIER", help="self-reported or reference.")],
    results: Results = RESULTS,
) -> None:
    """Say who vouches for a run (for feedrate's maintainers)."""
    from feedrate.store import marks, runs

    file = marks.set_tier(runs.find(run, results).folder, name)
    _print(rich_console(), f"{file}: the run is {name}.")


@of_results.command("release")
def data_release(
    out: Annotated[Path, typer.Option(parser=path, help="For archive, checksum and metadata.")] = BUILD / "release",
    results: Results = RESULTS,
) -> None:
    """Write all runs as one archive (for feedrate's maintainers). With its checksum, and the metadata for a DOI."""
    from feedrate.share import release

    made = release.make(results, out)
    left = f"; {made.refused} that break a rule are left out" if made.refused else ""
    text = f"{made.archive}: {made.runs} runs{left}. SHA256SUMS is its checksum, zenodo.json what Zenodo asks for."
    _print(rich_console(), text)
