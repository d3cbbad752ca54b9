"""The page "How accurate is feedrate?": errors against an external clock, and every figure that feedrate promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from feedrate.analysis.estimates import rows_of
from feedrate.analysis.estimators import ESTIMATORS, OURS, frame, summary
from feedrate.charts.citation import Origin, day
from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page, Placed
from feedrate.pages.runs import place
from feedrate.questions.accuracy import chart
from feedrate.schema import words
from feedrate.store.bench_record import SECTIONS, BenchRecord

PATH = "accuracy.md"
TITLE = "How accurate is feedrate?"
_LEAD = (
    "How far feedrate’s throughput is from the clock of another process, on the same trials; how far other ways of "
    "timing are from it, on the same steps; and every figure that feedrate promises, with what was measured."
)
_METHOD = (
    "A second process is told, by one byte each, that the window of a trial opens and that it closes, and stamps both: "
    "an external clock for the same trial. The cells are planted: samples that take a known time to read and to "
    "decode, from none to more workers than there are cores, a loader alone and one before an emulated step. Every "
    "estimator gets the raw stamps of the same trial. Only the clock that is set back at each epoch’s end needs "
    "epochs, which a window does not have: it is given short ones{} in a stretch of their own, with its own external "
    "clock."
)
_LIMITS = (
    "These are the rules of other tools applied to our steps, not those tools’ own figures, in which other things "
    "differ as well. The external clock says how exact a window is for itself; how much windows differ is what the "
    "intervals over blocks say."
)
_WEBSITE = (
    "For the figures of this website Chromium opens its pages, without a window, on the same machine. Bytes are those "
    "of every file that a page asks for, compressed as web servers do it. Times are those of a narrow screen, an "
    "empty cache and a slowed CPU, as on a phone; the network costs nothing there. Explore loads at once what other "
    "pages load when a chart is touched, so it is held against the time of a change instead of a weight. Results of "
    "many machines are made up, and thrown away afterwards."
)
_FILES = (
    "Validation and the page Compare are timed with files that are made up and keep every rule, so that all of each is "
    "read. Validation is the command that people type, the start of Python included. Compare has loaded and rests when "
    "it gets its file, in Chromium at full speed; until all of it stands every task of the page’s own thread counts."
)
_OF_SECTION = {"files": _FILES, "site": _WEBSITE}
"""How a section is measured that needs more words than its figures have."""
_MET = {True: "met", False: "<strong>missed</strong>", None: "cannot be measured here"}
_SPOKEN = {
    "speed": "Speed",
    "storage": "Storage formats",
    "accuracy": "Accuracy",
    "instrumentation": "Cost of timing",
    "statistics": "Statistics, simulated",
    "calibration": "Calibration",
    "files": "Files of others",
    "site": "This website",
}


def page(benches: Sequence[BenchRecord]) -> Page:
    """Write the page.

    Args:
        benches: of all machines, oldest first; of each machine the newest one with a section counts for it. None is
            fine: the page then says what to type.
    """
    body = [f"# {TITLE}\n", markup.paragraph(_LEAD, "fr-lead")]
    figures: dict[str, Placed] = {}
    files: dict[str, str] = {}
    for machine_id, newest in _machines(benches).items():
        mark = markup.slug(machine_id)
        body.append(markup.heading(2, descriptions.name_of(next(iter(newest.values())).machine), mark))
        if "accuracy" in newest and newest["accuracy"].witnessed:
            found = summary(frame(newest["accuracy"].witnessed))
            placed = place(chart.draw(found), f"accuracy-{mark}", PATH, _from(newest["accuracy"]))
            record = f"data/bench-{mark}.json"
            figures[placed.name] = placed
            files[record] = newest["accuracy"].model_dump_json(indent=1)
            body += [_origin(newest["accuracy"], record), markup.paragraph(answer(found), "fr-answer")]
            body += [markup.slot(placed.name), "\n", _estimators(found)]
        if promised := _promises(newest):
            body += [markup.heading(3, "What feedrate promises, and what was measured", f"promises-{mark}"), promised]
    body += _method(benches) if benches else [_nothing()]
    return Page(PATH, TITLE, "\n".join(body), figures, files)


def _from(bench: BenchRecord) -> Origin:
    """Where the figure comes from, as citations say it."""
    trials = words.plural(len(bench.witnessed), "trial")
    days, made = day(bench.started_at.isoformat()), (bench.feedrate_version,)
    return Origin((descriptions.name_of(bench.machine),), (bench.name,), days, made, trials, "bench record")


def _machines(benches: Sequence[BenchRecord]) -> dict[str, dict[str, BenchRecord]]:
    """Machine to section to the newest record that has it; the machine that was measured last comes first."""
    found: dict[str, dict[str, BenchRecord]] = {}
    for bench in sorted(benches, key=lambda bench: bench.started_at, reverse=True):
        sections = found.setdefault(bench.machine.machine_id, {})
        for name in bench.sections:
            sections.setdefault(name, bench)
    return found


def answer(found: pd.DataFrame) -> str:
    """Answer the page's question in one or two sentences made from the errors."""
    said = ours(found)
    rows: dict[str, Mapping[Any, Any]] = {row["estimator"]: row for row in rows_of(found)}
    rows.pop(OURS, None)
    if not (said and rows):
        return said
    near, far = (pick(rows.values(), key=lambda row: abs(row["worst_pct"])) for pick in (min, max))
    return (
        f"{said} Of the other ways to time the same steps, the nearest ({chart.LABELS[near['estimator']]}) is off by "
        f"up to {chart.signed(near['worst_pct'])}, the farthest ({chart.LABELS[far['estimator']]}) by up to "
        f"{chart.signed(far['worst_pct'])}."
    )


def ours(found: pd.DataFrame, machine: str = "") -> str:
    """Say in one sentence how far feedrate's throughput is from the external clock; nothing where none was asked.

    Args:
        found: ``analysis.estimators.summary`` of one machine.
        machine: its name, where nothing beside the sentence says it.
    """
    over = f"On {machine}: over" if machine else "Over"
    for row in rows_of(found[found["estimator"].eq(OURS)]):
        trials, planted = words.plural(row["n"], "trial"), words.plural(row["cells"], "planted cell")
        worst, median = chart.size(row["worst_pct"]), chart.signed(row["median_pct"])
        return (
            f"{over} {trials} of {planted}, the throughput that feedrate reports is within {worst} of an external "
            f"clock (median {median})."
        )
    return ""


def _origin(bench: BenchRecord, record: str) -> str:
    said = ", ".join(
        (
            descriptions.day(bench.started_at.isoformat()),
            f"feedrate {bench.feedrate_version}",
            f"PyTorch {bench.software.torch or 'unknown'}",
        )
    )
    download = markup.download(PATH, record, "every trial as JSON")
    return f'<p class="fr-origin">{markup.entities(said)}, {download}</p>\n'


def _estimators(found: pd.DataFrame) -> str:
    errors: dict[str, Mapping[Any, Any]] = {row["estimator"]: row for row in rows_of(found)}
    rows = []
    for estimator in ESTIMATORS:
        error = errors.get(estimator.name)
        rows.append(
            (
                f"<strong>{escape(estimator.label)}</strong>" if estimator.name == OURS else escape(estimator.label),
                chart.signed(error["median_pct"]) if error else "–",
                chart.signed(error["worst_pct"]) if error else "–",
                str(error["n"]) if error else "0",
                escape(estimator.fault if error else f"{estimator.fault} {_absent(estimator.name)}"),
                escape(estimator.used_by),
            )
        )
    columns = ("Estimator", "Median error", "Worst error", "n", "What it does wrong", "Who does so")
    caption = "Estimators of throughput and their errors against the external clock"
    return markup.table(caption, columns, rows, ("Median error", "Worst error", "n"), stack=True)


def _absent(estimator: str) -> str:
    if estimator == "synchronised_steps":
        return "Not applicable on a CPU, where there is nothing to wait for."
    return "Not in this record."


def _promises(newest: Mapping[str, BenchRecord]) -> str:
    """Count them, then list them; the day stands in the sentence where it is the same for all."""
    made = [(name, promise) for name in SECTIONS if name in newest for promise in newest[name].section(name)]
    if not made:
        return ""
    days = {name: descriptions.day(newest[name].started_at.isoformat()) for name, _ in made}
    several = len(set(days.values())) > 1
    rows = [
        (
            escape(_SPOKEN[name]),
            escape(promise.what),
            escape(promise.target.replace(" ", "\u00a0").replace(",\u00a0", ", ")),
            escape(promise.measured),
            _MET[promise.met],
            *((escape(days[name].replace(" ", "\u00a0")),) if several else ()),
        )
        for name, promise in made
    ]
    columns = ("About", "Figure", "Target", "Measured", "Verdict", *(("Date",) if several else ()))
    said = _counted([promise.met for _, promise in made]) + ("" if several else f" Measured on {min(days.values())}.")
    table = markup.table("Figures that feedrate promises, and what was measured", columns, rows, stack=True)
    return markup.paragraph(said) + table


def _counted(met: Sequence[bool | None]) -> str:
    kept, broken, unknown = (met.count(verdict) for verdict in (True, False, None))
    said = [f"{kept} {'meets its target' if kept == 1 else 'meet their targets'}"] if kept else []
    said += [f"{broken} {'misses its target' if broken == 1 else 'miss theirs'} (in bold)"] if broken else []
    said += [f"{unknown} cannot be measured on this machine"] if unknown else []
    return f"Of {words.plural(len(met), 'figure')}, {words.listed(said)}."


def _method(benches: Sequence[BenchRecord]) -> list[str]:
    steps = sorted({trial.epoch_steps for bench in benches for trial in bench.witnessed})
    said = [text for name, text in _OF_SECTION.items() if any(bench.section(name) for bench in benches)]
    return [
        markup.heading(2, "How it is measured", "method"),
        markup.paragraph(_METHOD.format(f" ({words.listed(map(str, steps))} steps)" if steps else "")),
        *map(markup.paragraph, [_LIMITS, *said]),
    ]


def _nothing() -> str:
    return (
        '<div class="fr-nothing"><p><strong>Nothing has been measured here yet.</strong> Type <code>make bench</code> '
        "(about twenty minutes), then <code>make site</code>.</p></div>\n"
    )
