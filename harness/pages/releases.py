"""What was added to the published data and when, from the runs themselves; then what changed in feedrate."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from harness.bench_record import BenchRecord
from harness.charts import _words as words
from harness.pages import accuracy, described, markup
from harness.pages.gathered import Shown
from harness.pages.markup import Page
from harness.records import PROTOCOL_VERSION

PATH = "releases.md"
TITLE = "Changelog of the data"
_LEAD = (
    "Every run that stands, by the day on which it was measured. A run is never changed after that: its files are "
    "those that the sweep wrote; a withdrawn one is listed under Runs. What changed in feedrate itself, and what that "
    "means for earlier runs, stands below."
)
_MOST = 1_000
"""Runs that are listed."""
_HEADING = re.compile(r"^#+ .*\n+")


def page(runs: Sequence[Shown], benches: Sequence[BenchRecord], changes: str) -> Page:
    """Write the page; of very many runs it lists the newest.

    Args:
        runs: all runs, newest first; none is fine.
        benches: what ``make bench`` found, of all machines.
        changes: the text of ``CHANGELOG.md``.
    """
    listed = runs[:_MOST]
    entries = [(shown.manifest.started_at[:10], shown.manifest.run_id, _run(shown)) for shown in listed]
    entries += [(bench.started_at.isoformat()[:10], bench.name, _bench(bench)) for bench in benches]
    body = [f"# {TITLE}\n", markup.paragraph(_LEAD, "fr-lead"), *_versions(runs)]
    if len(listed) < len(runs):
        body.append(markup.paragraph(f"Listed are the newest {len(listed):,} of {len(runs):,} runs.", "fr-note"))
    body += _days(entries)
    if not entries:
        body.append(markup.paragraph("Nothing has been added yet. Type make sweep, then make site.", "fr-missing"))
    body += [markup.heading(2, "Changes of feedrate itself", "feedrate"), _demoted(changes)]
    return Page(PATH, TITLE, "\n".join(body))


def _days(entries: Sequence[tuple[str, str, tuple[str, ...]]]) -> Iterator[str]:
    """A table a day, newest first."""
    days: dict[str, list[tuple[str, ...]]] = {}
    for date, _, row in sorted(entries, key=lambda entry: entry[:2], reverse=True):
        days.setdefault(date, []).append(row)
    columns = ("Record", "What it asks", "Machine", "Blocks", "Trials", "feedrate", "Protocol")
    for date, rows in days.items():
        said = described.day(date)
        yield markup.heading(2, said, f"day-{markup.slug(date)}")
        table = markup.table(f"Measured on {said}", columns, rows, ("Blocks", "Trials", "Protocol"), stack=True)
        yield f"<div data-search-exclude>{table}</div>\n"


def _run(shown: Shown) -> tuple[str, ...]:
    run = shown.manifest
    return (
        _named("run", shown.page, run.run_id),
        escape(", ".join(sorted(run.suites)) or "nothing"),
        _machine(markup.link(PATH, shown.machine_page, shown.name)),
        str(run.blocks),
        f"{sum(run.outcomes.values()):,}",
        escape(run.feedrate_version),
        str(run.protocol_version),
    )


def _bench(bench: BenchRecord) -> tuple[str, ...]:
    return (
        _named("bench record", accuracy.PATH, bench.name),
        f"feedrate itself: {escape(', '.join(bench.sections))}",
        _machine(escape(described.name_of(bench.machine))),
        "–",
        f"{len(bench.witnessed):,}" if bench.witnessed else "–",
        escape(bench.feedrate_version),
        "–",
    )


def _machine(name: str) -> str:
    """Keep a name from being squeezed to a word a line."""
    return f'<span class="fr-roomy">{name}</span>'


def _named(what: str, path: str, name: str) -> str:
    return f'{what}<br><span class="fr-id">{markup.link(PATH, path, name)}</span>'


def _versions(runs: Sequence[Shown]) -> Iterator[str]:
    """Say what is compared with what."""
    versions = [shown.manifest.protocol_version for shown in runs]
    if others := sorted(set(versions) - {PROTOCOL_VERSION}):
        count = sum(version != PROTOCOL_VERSION for version in versions)
        of_others = f"of version {words.listed(map(str, others))}"
        yield markup.paragraph(
            f"Runs of protocol version {PROTOCOL_VERSION} are compared with one another. "
            f"{words.plural(count, 'run')} {of_others} {'is' if count == 1 else 'are'} shown on pages of their own "
            "alone."
        )
    elif versions:
        many = words.plural(len(versions), "run")
        yield markup.paragraph(
            f"{many}, all of protocol version {PROTOCOL_VERSION}: the cells that they share can be compared."
        )


def _demoted(changes: str) -> str:
    """Set the headings of a Markdown text a level lower, without its title."""
    rest = _HEADING.sub("", changes, count=1)
    return re.sub(r"^#", "##", rest, flags=re.MULTILINE)
