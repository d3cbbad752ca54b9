"""What would be public, on the terminal, to the last fact; then one question, and where the run went.

What validation found, on the terminal and as JSON for machines.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from feedrate import __version__
from feedrate.schema.errors import InputError
from feedrate.schema.plugins import ROOT
from feedrate.schema.redaction import one_line
from feedrate.schema.words import plural
from feedrate.share import pull_request, submit
from feedrate.share.pull_request import Route, Unable
from feedrate.share.submit import Submission
from feedrate.share.validation import check
from feedrate.share.validation.findings import Finding, Validated
from feedrate.share.validation.guard import READABLE
from feedrate.store import marks, runs

TEXTS = 40
"""Texts of trials that are shown; where there are more, all of them go into a file."""


def asked(console: Console) -> bool:
    """Ask once whether to publish; anything but yes is no.

    Raises:
        InputError: nobody is there to answer.
    """
    if not sys.stdin.isatty():
        raise InputError(
            "submit: asks before anything is published, and nobody is there to answer; YES=1 (--yes) answers"
        )
    return console.input("Publish this? [y/N] ", markup=False).strip().lower() in ("y", "yes")


def of_run(
    name: str,
    console: Console,
    *,
    results: Path = runs.RESULTS,
    label: str = "",
    note: str = "",
    out: Path = Path("build"),
    ask: Callable[[Console], bool] = asked,
    checkout: Path = ROOT,
) -> None:
    """Show what would be public of a run, ask, and publish it.

    Args:
        name: the run's id or folder.
        console: where it goes.
        results: where runs lie.
        label: what the submitter calls it.
        note: a remark of the submitter.
        out: folder of the one file that is made where no pull request can be opened.
        ask: says whether to go on.
        checkout: root of the git checkout whose remote is asked.

    Raises:
        InputError: there is no such run, or it may not be published.
        EnvironmentFault: the disk cannot be written.
    """
    submission = submit.prepare(runs.find(name, results), label, note)
    found = _route(checkout, submission)
    show(submission, console, out)
    _say(console, f"\n{_way(found, submission, out)}")
    if not ask(console):
        _say(console, "Nothing was published.")
        return
    if label or note:
        marks.label(submission.run.folder, submission.label.label, submission.label.note)
    _say(console, _published(found, submission, out))


def _route(checkout: Path, submission: Submission) -> Route | Unable:
    """Find a way to a pull request, and refuse a run that is published already as far as can be known."""
    try:
        found = pull_request.route(checkout)
        with pull_request.fetched(found) as commit:
            submit.known(checkout, commit, submission)
        if address := pull_request.waiting(found, submission.change().branch):
            raise InputError(
                f"{submission.run.manifest.run_id}: was submitted already and waits: {address}; a run is published once"
            )
        return found
    except Unable as reason:
        with contextlib.suppress(Unable):  # no git, or no checkout: whoever gets the file looks
            if before := pull_request.last_seen(checkout):
                submit.known(checkout, before, submission)
        return reason


def _way(found: Route | Unable, submission: Submission, out: Path) -> str:
    if isinstance(found, Unable):
        where = out / f"submission-{submission.run.manifest.run_id}.zip"
        return f"No pull request can be opened from here: {found}. One file to attach is made instead: {where}."
    head = found.head.name if found.head else f"a fork of it, which will be made in your account {found.login}"
    return (
        f"Your GitHub account {found.login} proposes it to {found.base.name} ({found.base.branch}) from {head}: "
        "the commit carries that name and no e-mail address of yours. Your working tree is not touched."
    )


def _published(found: Route | Unable, submission: Submission, out: Path) -> str:
    reason = found
    if isinstance(found, Route):
        try:
            with pull_request.fetched(found) as commit:
                return f"Submitted: {pull_request.propose(found, commit, submission.change())}"
        except Unable as failed:
            reason = failed
    path = submit.pack(submission, out)
    return (
        f"No pull request was opened: {reason}.\nIt is all in {path} ({path.stat().st_size:,} bytes): attach it to an "
        "issue of the feedrate repository, or mend this and type the same command again."
    )


def show(submission: Submission, console: Console, out: Path) -> None:
    """Print everything that would be public.

    Raises:
        EnvironmentFault: the disk cannot be written.
    """
    run = submission.run
    _say(console, f"This would be public of run {run.manifest.run_id}:\n", "bold")
    console.print(_files(submission))
    _say(console, "\nWhat run.json says, which is in every file as well", "bold")
    table = Table(box=None, padding=(0, 1), show_header=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, value in submit.facts(submission.said):
        table.add_row(Text(one_line(name)), Text(one_line(value)))
    console.print(table)
    _texts(submission, console, out)
    if names := submit.own_names(submission):
        _say(console, "\nThis looks like a name of this machine or of its user, or like its home folder:", "bold red")
        for text in names:
            _say(console, f"  {one_line(text)}", "red")
    for flag in submission.flags:
        _say(console, f"Odd, and for reviewers to look at: {flag}", "yellow")


def _files(submission: Submission) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("file", overflow="fold")
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("holds", overflow="fold")
    for path, data in submission.files.items():
        table.add_row(Text(path), f"{len(data):,}", Text(_held(submission, path)))
    return table


def _held(submission: Submission, path: str) -> str:
    name = Path(path).name
    if name.endswith(".label.json"):
        said = {"label": submission.label.label, "note": submission.label.note}
        return ", ".join(f"{what} “{text}”" for what, text in said.items() if text)
    if name == "run.json":
        return "the facts below"
    import pyarrow.parquet as pq

    found = pq.read_metadata(submission.run.folder / name)
    return f"{found.num_rows:,} rows of {found.num_columns} columns: numbers, settings, ids and the texts below"


def _texts(submission: Submission, console: Console, out: Path) -> None:
    texts = submit.free_texts(submission.run)
    if not texts:
        _say(console, "\nNo trial failed or was checked: there are no further texts.")
        return
    lines = [f"  {count:,} ×  {one_line(text)}" for text, count in texts.items()]
    some = ""
    if len(lines) > TEXTS:
        path = submit.write_texts(submission.run, lines, out)
        some = f": the {TEXTS} most frequent of {len(lines):,}, all of which are in {path}"
    _say(console, f"\nWhat failures and checks say{some}", "bold")
    for line in lines[:TEXTS]:
        _say(console, line)


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, highlight=False)


def withdraw(name: str, why: str, console: Console, results: Path = runs.RESULTS) -> None:
    """Withdraw a run, and say what that does.

    Args:
        name: the run's id or folder.
        why: the reason, in a sentence.
        console: where it goes.
        results: where runs lie.

    Raises:
        InputError: there is no such run, no reason, or it was withdrawn before.
        EnvironmentFault: the disk cannot be written.
    """
    path = marks.withdraw(runs.find(name, results).folder, why)
    _say(
        console,
        f"{path} says so. make site leaves the run out of every chart and list; its page stays, with the reason. "
        "Where the run is published, open a pull request that adds this file.",
    )


def label(name: str, text: str, note: str, console: Console, results: Path = runs.RESULTS) -> None:
    """Label a run.

    Args:
        name: the run's id or folder.
        text: the label.
        note: a remark.
        console: where it goes.
        results: where runs lie.

    Raises:
        InputError: there is no such run, or a text is too long.
        EnvironmentFault: the disk cannot be written.
    """
    path = marks.label(runs.find(name, results).folder, text, note)
    _say(
        console,
        f"{path} holds it. make submit publishes it with the run. Where the run is published already, its maintainers "
        "alone change the label: ask them in an issue.",
    )


def rank(name: str, tier: str, console: Console, results: Path = runs.RESULTS) -> None:
    """Say who vouches for a run.

    Args:
        name: the run's id or folder.
        tier: one of ``store_beside.TIERS``.
        console: where it goes.
        results: where runs lie.

    Raises:
        InputError: there is no such run or tier.
        EnvironmentFault: the disk cannot be written.
    """
    path = marks.rank(runs.find(name, results).folder, tier)
    _say(console, f"{path}: the run is {tier}.")


def validate(paths: Sequence[Path], results: Path, console: Console | None) -> list[Validated]:
    """Hold files against the rules and print what was found.

    Args:
        paths: files of trials, runs' folders, or folders of runs.
        results: where runs of other machines lie, to flag what is odd beside them.
        console: where it goes; None prints nothing.

    Returns:
        What was found, file by file; a path that names nothing is refused, and comes first.
    """
    nowhere = {path: lost for path in paths if (lost := _nowhere(path))}
    validated = []
    for one in chain(nowhere.values(), check.checked([path for path in paths if path not in nowhere], results)):
        validated.append(one)
        if console:
            _show(one, console)
    if console and len(validated) > 1:
        refused = sum(not one.valid for one in validated)
        _say_finding(console, f"{len(validated) - refused} valid, {refused} refused.", "red" if refused else "green")
    return validated


def as_json(validated: Sequence[Validated]) -> str:
    """Write what was found as one JSON object, for machines."""
    valid = sum(one.valid for one in validated)
    counts = {"valid": valid, "refused": len(validated) - valid}
    return json.dumps({"feedrate": __version__, **counts, "files": [one.as_json() for one in validated]}, indent=1)


def _nowhere(path: Path) -> Validated | None:
    """Refuse a path that names nothing."""
    try:
        check.found_at(path)
    except InputError:
        got = "holds no run" if os.path.lexists(path) else "no such file"
        wanted = "a trials.parquet, a run's folder, or a folder of runs"
        return Validated(str(path), findings=(Finding(READABLE.name, "refused", "the path", got, wanted),))
    return None


def _show(one: Validated, console: Console) -> None:
    """One file: whether it may be used, and why not."""
    name = ascii(one.path)[1:-1]
    if one.valid:
        odd = f", {plural(len(one.flags), 'flag')} for a reviewer" if one.flags else ""
        trials = plural(one.rows or 0, "trial")
        _say_finding(console, f"valid    {name}: run {one.run_id} of {one.machine_id}, {trials}{odd}", "green")
    else:
        _say_finding(console, f"refused  {name}", "red")
    for finding in one.findings:
        _finding(finding, console)


def _finding(finding: Finding, console: Console) -> None:
    _say_finding(console, f"  {finding.where}: {finding.got}")
    aim = "usual" if finding.severity == "flag" else "expected"
    _say_finding(console, f"    {aim}: {finding.expected} (rule {finding.rule})", "dim")


def _say_finding(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, emoji=False, highlight=False, soft_wrap=True)
