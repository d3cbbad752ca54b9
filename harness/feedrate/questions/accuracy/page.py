"""The page "How accurate is feedrate?": errors against an external clock, and every figure that feedrate promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from feedrate.analysis.crossfit import regret_pct
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.estimators import ESTIMATORS, OURS, frame, summary
from feedrate.charts.citation import Origin, day
from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page, Placed
from feedrate.pages.runs import place
from feedrate.pages.template import render
from feedrate.questions.accuracy import chart
from feedrate.schema import words
from feedrate.store.bench_record import (
    Advice,
    BenchRecord,
    PredictedPace,
    TunedWorkload,
    WatchedScript,
    predictions,
)

PATH = "accuracy.md"
TITLE = "How accurate is feedrate?"
_MET = {True: "met", False: Markup("<strong>missed</strong>"), None: "cannot be measured here"}
_ABSENT = {"synchronised_steps": "Not applicable on a CPU, where there is nothing to wait for."}
_SPOKEN = {
    "speed": "Speed",
    "accuracy": "Accuracy",
    "instrumentation": "Cost of timing",
    "scripts": "Training scripts",
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
        told: dict[str, Any] = {"errors": None, "scripts": None, "tuned": None, "promises": _promises(newest)}
        if (bench := newest.get("accuracy")) and bench.witnessed:
            found = summary(frame(bench.witnessed))
            placed = place(chart.draw(found), f"accuracy-{mark}", PATH, _from(bench))
            figures[placed.name] = placed
            rows, text = list(_estimators(found)), answer(found)
            told["errors"] = _kept(bench, mark, files) | {"figure": placed.name, "rows": rows, "answer": text}
        if (bench := newest.get("scripts")) and bench.scripts:
            paces, predicted = list(_paces(bench.scripts)), _predicted(bench.scripts)
            told["scripts"] = _kept(bench, mark, files) | {"paces": paces, "predicted": predicted}
        if (bench := newest.get("tuning")) and bench.tuned:
            told["tuned"] = _kept(bench, mark, files) | {"rows": list(_tuned(bench.tuned))}
        name = descriptions.name_of(next(iter(newest.values())).machine)
        machines.append({"name": name, "mark": mark, **told})
    body = render(
        "accuracy/page.md",
        page=PATH,
        title=TITLE,
        machines=machines,
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
    said = own_error(found)
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


def own_error(found: pd.DataFrame, machine: str = "") -> str:
    """Say in one sentence how far feedrate's throughput is from the external clock; nothing where none was asked.

    The machine is named where nothing beside the sentence says it.
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


def _estimators(found: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """A row an estimator, whether its error was measured or not."""
    errors: dict[str, Mapping[Any, Any]] = {row["estimator"]: row for row in rows_of(found)}
    for each in ESTIMATORS:
        label = Markup("<strong>{}</strong>").format(each.label) if each.name == OURS else each.label
        if error := errors.get(each.name):
            median, worst = chart.signed(error["median_pct"]), chart.signed(error["worst_pct"])
            yield label, median, worst, error["n"], each.fault, each.used_by
        else:
            yield label, "–", "–", 0, f"{each.fault} {_ABSENT.get(each.name, 'Not in this record.')}", each.used_by


def _paces(scripts: Sequence[WatchedScript]) -> Iterator[tuple[object, ...]]:
    """A row a planted script: what feedrate said of it, and what its own clock did."""
    for each in sorted(scripts, key=lambda each: (each.costs, each.num_workers, each.start_method)):
        shares = (each.wait_share, each.script_wait_share), (each.hot_share, each.script_hot_share)
        yield (
            each.costs,
            f"{each.num_workers} {each.start_method or ''}",
            f"{each.steps_per_s:.1f} ({each.script_steps_per_s:.1f})",
            *(f"{100 * ours:.1f}\u00a0% ({100 * own:.1f}\u00a0%)" for ours, own in shares),
            "yes" if each.hot_first else Markup("<strong>no</strong>"),
        )


def _predicted(scripts: Sequence[WatchedScript]) -> dict[str, Any]:
    """A row a script and number of workers that it ran with, a column a number that was predicted from that."""
    found = {(each.costs, each.seen, each.num_workers): each for each in predictions(scripts)}
    numbers = sorted({workers for _, _, workers in found})

    def said(each: PredictedPace | None) -> str:
        return f"{each.predicted:.1f} ({each.measured:.1f}, {each.error_pct:+.0f}\u00a0%)" if each else "–"

    rows = [
        (costs, seen, *(said(found.get((costs, seen, workers))) for workers in numbers))
        for costs, seen in sorted({(costs, seen) for costs, seen, _ in found})
    ]
    return {"rows": rows, "columns": ["Script", "Ran with", *(words.plural(number, "worker") for number in numbers)]}


def _tuned(workloads: Sequence[TunedWorkload]) -> Iterator[tuple[object, ...]]:
    """A row a planted workload: what each tuner recommends, how much faster the best is, and how long it took."""
    for each in workloads:
        paces = each.paces
        yield (
            each.costs,
            *(f"{name}: {paces[name]:.1f}" for name in (each.present, max(paces, key=paces.__getitem__))),
            each.trials,
            *(_advised(each, advice) for advice in (each.feedrate, each.stopped, each.loadtune)),
        )


def _advised(workload: TunedWorkload, advice: Advice | None) -> str:
    """What a tuner recommends; below it how much faster the best is, and how long the tuner took."""
    if advice is None:
        return "–"
    regret = regret_pct(workload.steps_per_s, advice.setting)
    return markup.two_lines(advice.setting, f"{regret:.1f}\u00a0%, {advice.took_s:.0f}\u00a0s")


def _promises(newest: Mapping[str, BenchRecord]) -> dict[str, Any]:
    """Rows of what feedrate promises and their count in words; the day stands there where it is the same for all."""
    made = [(name, promise) for name in _SPOKEN if name in newest for promise in newest[name].section(name)]
    days = {name: descriptions.day(newest[name].started_at.isoformat()) for name, _ in made}
    several = len(set(days.values())) > 1
    rows = [
        (
            _SPOKEN[name],
            promise.what,
            promise.target.replace(" ", "\u00a0").replace(",\u00a0", ", "),
            promise.measured,
            _MET[promise.met],
            *([days[name].replace(" ", "\u00a0")] if several else []),
        )
        for name, promise in made
    ]
    kept, broken, unknown = ([promise.met for _, promise in made].count(verdict) for verdict in (True, False, None))
    parts = [f"{kept} {'meets its target' if kept == 1 else 'meet their targets'}"] if kept else []
    parts += [f"{broken} {'misses its target' if broken == 1 else 'miss theirs'} (in bold)"] if broken else []
    parts += [f"{unknown} cannot be measured on this machine"] if unknown else []
    day_of_all = "" if several or not made else f" Measured on {min(days.values())}."
    counted = f"Of {words.plural(len(made), 'figure')}, {words.listed(parts)}.{day_of_all}"
    columns = ["About", "Figure", "Target", "Measured", "Verdict", *(["Date"] if several else [])]
    return {"rows": rows, "counted": counted, "columns": columns}
