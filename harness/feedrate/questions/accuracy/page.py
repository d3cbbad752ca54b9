"""The page "How accurate is feedrate?": errors against an external clock, and every figure that feedrate promises."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from feedrate.analysis.crossfit import regret_pct
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.estimators import ESTIMATORS, OURS, frame, summary
from feedrate.attach.account import ROWS
from feedrate.attach.predictions import advised
from feedrate.charts.citation import Origin, day
from feedrate.charts.figure import Figure, Key, Row, listed
from feedrate.charts.plot import Fields, Looks, Plot, band, deviations, names
from feedrate.charts.theme import colour
from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page, Placed
from feedrate.pages.runs import place
from feedrate.pages.template import render
from feedrate.schema import words
from feedrate.store.bench_record import (
    AccountedScript,
    Advice,
    BenchRecord,
    Told,
    TunedWorkload,
    WatchedScript,
    predictions,
)

FIGURE = "Error of each estimator"
QUESTION = "How far is each way of stating throughput from an external clock?"
LABELS = {estimator.name: estimator.label for estimator in ESTIMATORS}
_COLUMNS = {
    "estimator": "label",
    "median error (%)": "median",
    "worst error (%)": "worst",
    "lowest (%)": "low",
    "highest (%)": "high",
    "measurements": "n",
    "settings": "cells",
}
"""Of the figure's table."""
_LOOKS: Looks = {"feedrate": (colour("accent"), "circle"), "others": (colour("source"), "circle")}
_KEYS = (
    Key("feedrate", colour("accent")),
    Key("other ways of timing the same steps", colour("source")),
    Key("median of all measurements", colour("ink"), "circle"),
    Key("tick: worst measurement", colour("ink"), "rule"),
)


def draw(summary: pd.DataFrame) -> Figure:
    """Draw the errors of all estimators."""
    named = summary.assign(
        label=summary["estimator"].map(LABELS), whose=np.where(summary["estimator"].eq(OURS), "feedrate", "others")
    )
    rows = rows_of(named.rename(columns=lambda name: name.removesuffix("_pct")))
    n, cells = max(row["n"] for row in rows), max(row["cells"] for row in rows)
    subtitle = f"{n} measurements of {cells} planted settings"
    ordered = sorted(rows, key=lambda row: (row["whose"] != "feedrate", abs(row["worst"])))
    worst = [f"{row['label']} {words.signed(row['worst'])}" for row in ordered]
    panel = _plot(rows).panel(FIGURE, subtitle, f"Worst errors: {words.listed(dict.fromkeys(worst[:2] + worst[-1:]))}.")
    notes = (
        "The scale is linear within ±1 %, which is shaded, and logarithmic beyond.",
        "Lines go from the lowest to the highest error of any measurement.",
    )
    return Figure(FIGURE, QUESTION, (panel,), _KEYS, tuple(listed(rows, {}, _COLUMNS)), notes)


def _plot(rows: Sequence[Row]) -> Plot:
    """Medians as circles, each with the range of its errors and a tick at the worst."""
    ends = ("low", "high")
    x = deviations(rows, "median", "error against the external clock, %", ends)
    y = names("label", (row["label"] for row in rows))
    form, behind = "+,.3~g", [band(x, "x", (-1, 1))]
    tooltip: Fields = {"label:N": "estimator", "median:Q": ("median error, %", form), "n:Q": "measurements"}
    tooltip = {**tooltip, "worst:Q": ("worst error, %", form)}
    return Plot(rows, x, y, "whose", _LOOKS, ends=ends, tooltip=tooltip, row=26, tick="worst", behind=behind)


SIDE_BY_SIDE = Path(__file__).with_name("side_by_side.csv")
"""What two tools said of scripts after public reports, as it was written down: the heading, then a row a script."""
PATH = "accuracy.md"
TITLE = "How accurate is feedrate?"
_MET = {True: "met", False: Markup("<strong>missed</strong>"), None: "cannot be measured here"}
_ABSENT = {"synchronised_steps": "Not applicable on a CPU, where there is nothing to wait for."}
_SPOKEN = {
    "speed": "Speed",
    "accuracy": "Accuracy",
    "instrumentation": "Cost of timing",
    "scripts": "Training scripts",
    "account": "Where a script’s time goes",
    "tuning": "Search for settings",
    "calibration": "Calibration",
    "site": "This website",
    "store": "A store of very many runs",
}
"""Section to its words."""


def page(benches: Sequence[BenchRecord]) -> Page:
    """Write the page from the records of all machines; of each the newest one with a section counts for it."""
    figures: dict[str, Placed] = {}
    files: dict[str, str] = {}
    machines = []
    for machine_id, newest in _machines(benches).items():
        mark = markup.slug(machine_id)
        sections: dict[str, Any] = dict.fromkeys(("errors", "scripts", "accounted", "tuned"))
        sections["promises"] = _promises(newest)
        if (bench := newest.get("accuracy")) and bench.witnessed:
            errors = summary(frame(bench.witnessed))
            placed = place(draw(errors), f"accuracy-{mark}", PATH, _from(bench))
            figures[placed.name] = placed
            rows, text = list(_estimators(errors)), answer(errors)
            sections["errors"] = _kept(bench, mark, files) | {"rows": rows, "answer": text}
        if (bench := newest.get("scripts")) and bench.scripts:
            paces, predicted = list(_paces(bench.scripts)), _predicted(bench.scripts)
            rows = list(_recommended(bench.scripts))
            sections["scripts"] = _kept(bench, mark, files) | {"paces": paces, "predicted": predicted, "advised": rows}
        if (bench := newest.get("account")) and bench.accounted:
            sections["accounted"] = _kept(bench, mark, files) | {"rows": list(_accounted(bench.accounted))}
        if (bench := newest.get("tuning")) and bench.tuned:
            sections["tuned"] = _kept(bench, mark, files) | {"rows": list(_tuned(bench.tuned))}
        name = descriptions.name_of(next(iter(newest.values())).machine)
        machines.append({"name": name, "mark": mark, **sections})
    machines.sort(key=lambda machine: machine["errors"] is None)  # the answer first
    body = render(
        "accuracy/page.md",
        page=PATH,
        title=TITLE,
        machines=machines,
        beside=list(csv.reader(SIDE_BY_SIDE.read_text(encoding="utf-8").splitlines())),
        steps=sorted({trial.epoch_steps for bench in benches for trial in bench.witnessed}),
        measured={name for name in _SPOKEN if any(bench.section(name) for bench in benches)},
    )
    return Page(PATH, TITLE, body, figures, files)


def _kept(bench: BenchRecord, mark: str, files: dict[str, str]) -> dict[str, Any]:
    """Offer a record for download, and name both."""
    record = f"data/bench-{mark}-{bench.name}.json"
    files[record] = bench.model_dump_json(indent=1)
    return {"bench": bench, "record": record}


def _from(bench: BenchRecord) -> Origin:
    """Where the figure comes from, as citations say it."""
    trials = words.plural(len(bench.witnessed), "measurement")
    days, made = day(bench.started_at.isoformat()), (bench.feedrate_version,)
    return Origin((descriptions.name_of(bench.machine),), (bench.name,), days, made, trials, "bench record")


def _machines(benches: Sequence[BenchRecord]) -> dict[str, dict[str, BenchRecord]]:
    """Machine to section to the newest record that has it; the machine that was measured last comes first."""
    newest: dict[str, dict[str, BenchRecord]] = {}
    for bench in sorted(benches, key=lambda bench: bench.started_at, reverse=True):
        sections = newest.setdefault(bench.machine.machine_id, {})
        for name in bench.sections:
            sections.setdefault(name, bench)
    return newest


def answer(errors: pd.DataFrame) -> str:
    """Say how far feedrate's throughput is from the external clock, then the nearest and the farthest of the others."""
    rows: dict[str, Mapping[Any, Any]] = {row["estimator"]: row for row in rows_of(errors)}
    if not (own := rows.pop(OURS, None)):
        return ""
    trials, planted = words.plural(own["n"], "measurement"), words.plural(own["cells"], "planted setting")
    worst, median = words.signed(own["worst_pct"])[1:], words.signed(own["median_pct"])
    text = (
        f"Over {trials} of {planted}, the throughput that feedrate reports is within {worst} of an external clock "
        f"(median {median})."
    )
    if others := sorted(rows.values(), key=lambda row: abs(row["worst_pct"])):
        for other, row in (("The nearest other way to time the same steps", others[0]), ("The farthest", others[-1])):
            text += f" {other} is off by up to {words.signed(row['worst_pct'])} ({LABELS[row['estimator']]})."
    return text


def _estimators(summed: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """A row an estimator, whether its error was measured or not."""
    every = summed.set_index("estimator").reindex([estimator.name for estimator in ESTIMATORS])
    errors = rows_of(every.fillna({"n": 0}).astype({"n": int}))
    for estimator, error in zip(ESTIMATORS, errors, strict=True):
        label = Markup("<strong>{}</strong>").format(estimator.label) if estimator.name == OURS else estimator.label
        absent = "" if error["n"] else f" {_ABSENT.get(estimator.name, 'Not in this record.')}"
        sizes = words.signed(error["median_pct"]), words.signed(error["worst_pct"])
        yield label, *sizes, error["n"], f"{estimator.fault}{absent}", estimator.used_by


def _paces(scripts: Sequence[WatchedScript]) -> Iterator[tuple[object, ...]]:
    """A row a planted script: what feedrate said of it, and what its own clock did."""
    for script in sorted(scripts, key=lambda script: (script.costs, script.num_workers, script.start_method)):
        shares = (script.wait_share, script.script_wait_share), (script.hot_share, script.script_hot_share)
        yield (
            script.costs,
            f"{script.num_workers} {script.start_method or ''}",
            f"{script.steps_per_s:.1f} ({script.script_steps_per_s:.1f})",
            *(f"{words.per_cent(100 * ours, 1)} ({words.per_cent(100 * truth, 1)})" for ours, truth in shares),
            "yes" if script.hot_first else Markup("<strong>no</strong>"),
        )


def _predicted(scripts: Sequence[WatchedScript]) -> dict[str, Any]:
    """A row a script and number of workers that it ran with, a column a number that was predicted from that."""
    paces: dict[tuple[str, int, int], str] = {}
    for pace in predictions(scripts):
        error = words.signed(pace.error_pct, 0)
        paces[pace.costs, pace.seen, pace.num_workers] = f"{pace.predicted:.1f} ({pace.measured:.1f}, {error})"
    index = pd.MultiIndex.from_tuples(paces, names=("Script", "Ran with", "Workers"))
    rows = pd.Series(paces, index).unstack(fill_value="–")
    workers = (words.plural(int(number), "worker") for number in rows.columns)
    return {"rows": rows.reset_index().to_numpy().tolist(), "columns": ["Script", "Ran with", *workers]}


def _recommended(scripts: Sequence[WatchedScript]) -> Iterator[tuple[object, ...]]:
    """A row a script that was told to use another number of workers: the pace it was told, and its pace with them."""
    for advice in advised(scripts):
        if advice.measured:
            yield (
                advice.script.costs,
                advice.script.num_workers,
                advice.num_workers,
                advice.pace.text(),
                f"{advice.measured:.1f}",
                f"{advice.pace.value / advice.measured:.2f}",
                "yes" if advice.kept else Markup("<strong>no</strong>"),
            )


def _accounted(scripts: Sequence[AccountedScript]) -> Iterator[tuple[object, ...]]:
    """A row a planted script: the share of each planted row and of its line, and in brackets the script's own clock."""
    for script in scripts:
        rows = [ROWS[row].words for row in script.planted]
        yield (
            " + ".join(rows),
            "computing" if script.computes else "asleep",
            _both(script.rows.values()),
            _both(line for line in script.lines.values() if line.said),
            ROWS[script.largest].words,
        )


def _both(shares: Iterable[Told]) -> str:
    return ", ".join(f"{words.percent(share.said)} ({words.percent(share.truth)})" for share in shares) or "–"


def _tuned(workloads: Sequence[TunedWorkload]) -> Iterator[tuple[object, ...]]:
    """A row a planted workload: what each tuner recommends, how much faster the best is, and how long it took."""
    for workload in workloads:
        paces = workload.paces
        best = max(paces, key=paces.__getitem__)
        yield (
            workload.costs,
            markup.two_lines(*(f"{setting}: {paces[setting]:.1f}" for setting in (best, workload.present))),
            workload.trials,
            *(_advised(workload, advice) for advice in (workload.feedrate, workload.stopped, workload.loadtune)),
        )


def _advised(workload: TunedWorkload, advice: Advice | None) -> str:
    """What a tuner recommends; below it how much faster the best is, and how long the tuner took."""
    if advice is None:
        return "–"
    regret = regret_pct(workload.steps_per_s, advice.setting)
    return markup.two_lines(advice.setting, f"{words.per_cent(regret, 1)}, {advice.took_s:.0f}\u00a0s")


def _promises(newest: Mapping[str, BenchRecord]) -> dict[str, Any]:
    """Rows of what feedrate promises, those that were missed, and their count in words."""
    made = [(name, promise) for name in _SPOKEN if name in newest for promise in newest[name].section(name)]
    rows = [
        (
            _SPOKEN[name],
            promise.what,
            promise.target.replace(" ", "\u00a0").replace(",\u00a0", ", "),
            promise.measured,
            _MET[promise.met],
            descriptions.day(newest[name].started_at.isoformat()).replace(" ", "\u00a0"),
        )
        for name, promise in made
    ]
    kept, broken, unknown = ([promise.met for _, promise in made].count(verdict) for verdict in (True, False, None))
    parts = [f"{kept} {'meets its target' if kept == 1 else 'meet their targets'}"] if kept else []
    parts += [f"{broken} {'misses its target' if broken == 1 else 'miss theirs'} (in bold)"] if broken else []
    parts += [f"{unknown} cannot be measured on this machine"] if unknown else []
    counted = f"Of {words.plural(len(made), 'figure')}, {words.listed(parts)}."
    missed = [row for row, (_, promise) in zip(rows, made, strict=True) if promise.met is False]
    return {"rows": rows, "missed": missed, "counted": counted}
