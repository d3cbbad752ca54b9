"""Commands about sharing, on the terminal: submit a run, say something of one, validate files of others."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from feedrate import __version__
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import ROOT
from feedrate.schema.redaction import one_line
from feedrate.schema.words import plural
from feedrate.share import submission
from feedrate.share.submission import Route, Submission, Unable
from feedrate.share.validation import guard
from feedrate.share.validation.findings import Validated
from feedrate.store import marks, remote, runs


def confirm(console: Console) -> bool:
    """Ask once whether to publish; anything but yes is no.

    Raises:
        InputError: nobody is there to answer.
    """
    if not sys.stdin.isatty():
        raise InputError("submit: asks before anything is published, and nobody is there to answer; --yes answers")
    return console.input("Publish this? [y/N] ", markup=False).strip().lower() in ("y", "yes")


def submit(
    name: str,
    console: Console,
    *,
    results: Path = runs.RESULTS,
    label: str = "",
    note: str = "",
    out: Path = Path("build"),
    ask: Callable[[Console], bool] = confirm,
    checkout: Path = ROOT,
) -> None:
    """Show what would be public of a run, ask, and publish it.

    Args:
        name: the run's id or folder.
        console: for what is shown.
        results: where runs lie.
        label: what the submitter calls it.
        note: a remark of the submitter.
        out: folder of the one file that is made where no pull request can be opened.
        ask: says whether to go on.
        checkout: root of the git checkout from whose remote the pull request is made.

    Raises:
        InputError: there is no such run, or it may not be published.
        EnvironmentFault: the disk cannot be written.
    """
    prepared = submission.prepare(runs.find(name, remote.copy(results)), label, note)
    way, reason = None, ""
    try:
        way = submission.route(checkout)
        submission.check_new(way, prepared)
    except Unable as unable:
        reason = str(unable)
    show(prepared, console)
    _print(console, f"\n{_announced(way, reason, out)}")
    if not ask(console):
        _print(console, "Nothing was published.")
        return
    if label or note:
        marks.label(runs.find(name, results).folder, prepared.label.label, prepared.label.note)
    if way:
        try:
            _print(console, f"Submitted: {submission.propose(way, prepared)}")
            return
        except Unable as unable:
            reason = str(unable)
    path = submission.pack(prepared, out)
    _print(
        console,
        f"No pull request was opened: {reason}.\nIt is all in {path} ({path.stat().st_size:,} bytes): attach it to an "
        "issue of the feedrate repository, or mend this and type the same command again.",
    )


def _announced(way: Route | None, reason: str, out: Path) -> str:
    """Say what will happen with a run that is published."""
    if not way:
        return f"No pull request can be opened from here: {reason}. One file to attach is made in {out} instead."
    head = way.base if way.writable else "a fork of it in your account, which is made if there is none"
    return (
        f"Your GitHub account {way.login} proposes it to {way.base} ({way.branch}) from {head}: the commit carries "
        "that name and no e-mail address of yours. Your working tree is not touched."
    )


def show(prepared: Submission, console: Console) -> None:
    """Print everything that would be public."""
    _print(console, f"This would be public of run {prepared.run.manifest.run_id}:\n", "bold")
    files = Table(box=None, padding=(0, 1), header_style="dim")
    files.add_column("file", overflow="fold")
    files.add_column("bytes", justify="right", no_wrap=True)
    files.add_column("holds", overflow="fold")
    for path, data in prepared.files.items():
        files.add_row(Text(path), f"{len(data):,}", Text(_content(prepared, path)))
    console.print(files)
    _print(console, "\nWhat run.json says, which is in every file as well", "bold")
    facts = Table(box=None, padding=(0, 1), show_header=False)
    facts.add_column(no_wrap=True, style="dim")
    facts.add_column(overflow="fold")
    for name, value in prepared.facts:
        facts.add_row(Text(one_line(name)), Text(one_line(value)))
    console.print(facts)
    if prepared.run.manifest.script:
        said = "Of the script its name alone is published: no code, no path, no argument, and not its report."
        _print(console, f"\n{said}", "bold")
    texts = submission.free_texts(prepared.run)
    said = "What failures and checks say" if texts else "No trial failed or was checked: there are no further texts."
    _print(console, f"\n{said}", "bold" if texts else "")
    for text, count in texts.items():
        _print(console, f"  {count:,} ×  {one_line(text)}")
    if names := submission.own_names(prepared):
        _print(console, "\nThis looks like a name of this machine or of its user, or like its home folder:", "bold red")
        for text in names:
            _print(console, f"  {one_line(text)}", "red")


def _content(prepared: Submission, path: str) -> str:
    """What one of its files holds, in words."""
    name = Path(path).name
    if name.endswith(".label.json"):
        texts = {"label": prepared.label.label, "note": prepared.label.note}
        return ", ".join(f"{what} “{text}”" for what, text in texts.items() if text)
    if name == "run.json":
        return "the facts below"
    import pyarrow.parquet as pq

    about = pq.read_metadata(prepared.run.folder / name)
    return f"{about.num_rows:,} rows of {about.num_columns} columns: numbers, settings, ids and the texts below"


def withdraw(name: str, why: str, console: Console, results: Path = runs.RESULTS) -> None:
    """Withdraw a run, and say what that does (``marks.withdraw``)."""
    path = marks.withdraw(runs.find(name, results).folder, why)
    _print(
        console,
        f"{path} says so. make site leaves the run out of every chart and list; its page stays, with the reason. "
        "Where the run is published, open a pull request that adds this file.",
    )


def label(name: str, text: str, note: str, console: Console, results: Path = runs.RESULTS) -> None:
    """Label a run, and say what that does (``marks.label``)."""
    path = marks.label(runs.find(name, results).folder, text, note)
    _print(
        console,
        f"{path} holds it. make submit publishes it with the run. Where the run is published already, its maintainers "
        "alone change the label: ask them in an issue.",
    )


def set_tier(name: str, tier: str, console: Console, results: Path = runs.RESULTS) -> None:
    """Say who vouches for a run (``marks.set_tier``)."""
    path = marks.set_tier(runs.find(name, results).folder, tier)
    _print(console, f"{path}: the run is {tier}.")


def validate(paths: Sequence[Path], results: Path, console: Console | None) -> list[Validated]:
    """Hold files against the rules and print the findings.

    Args:
        paths: files of trials, runs' folders, folders of runs, or stores.
        results: where runs lie: those below it must lie in their place.
        console: for the report; None prints nothing.

    Returns:
        The results, file by file; a path that names nothing is refused.
    """
    validated = []
    for each in guard.check_all(map(remote.copy, paths), remote.copy(results)):
        validated.append(each)
        if console:
            _report(each, console)
    if console and len(validated) > 1:
        refused = sum(not each.valid for each in validated)
        _print_line(console, f"{len(validated) - refused} valid, {refused} refused.", "red" if refused else "green")
    return validated


def as_json(validated: Sequence[Validated]) -> str:
    """Write the results as one JSON object, for machines."""
    valid = sum(each.valid for each in validated)
    counts = {"valid": valid, "refused": len(validated) - valid}
    return json.dumps({"feedrate": __version__, **counts, "files": [each.as_json() for each in validated]}, indent=1)


def _report(validated: Validated, console: Console) -> None:
    """Print whether a file may be used, and why not."""
    name = ascii(validated.path)[1:-1]
    if validated.valid:
        trials = plural(validated.rows or 0, "trial")
        run = f"run {validated.run_id} of {validated.machine_id}, {trials}"
        _print_line(console, f"valid    {name}: {run}", "green")
    else:
        _print_line(console, f"refused  {name}", "red")
    for finding in validated.findings:
        _print_line(console, f"  {finding.where}: {finding.got}")
        _print_line(console, f"    expected: {finding.expected} (rule {finding.rule})", "dim")


def _print(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, highlight=False)


def _print_line(console: Console, text: str, style: str = "") -> None:
    """Print without breaking the line."""
    console.print(text, style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)
