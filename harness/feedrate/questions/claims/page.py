"""The Claims page: what the sources say, tested: a picture of all effects, then each claim with what machines found.

Check boxes leave out claims by verdict, source and device (``site/scripts/site/claims.js``); without scripts all are
shown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from markupsafe import Markup, escape

from feedrate.analysis.claim_values import settings_text
from feedrate.analysis.claims import NOT_TESTABLE, VERDICTS
from feedrate.analysis.sentences import estimate, origins, power, remarks, worst
from feedrate.charts.citation import together
from feedrate.charts.embed import folded, swatch
from feedrate.charts.figure import Key
from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page, Placed
from feedrate.pages.runs import RunView, place
from feedrate.pages.template import render, table
from feedrate.pages.verdicts import ClaimResult, Row, Verdicts
from feedrate.plan import suite as suites
from feedrate.plan.claim import SOURCES, Claim
from feedrate.questions.claims.charts import LOOKS, TITLE, forest
from feedrate.questions.claims.numbers import RECOMPUTE, numbers
from feedrate.questions.runs import facts as runs_facts
from feedrate.questions.workers import page as workers_page
from feedrate.schema import words
from feedrate.schema.axes import REPLACED
from feedrate.schema.metrics import CONFIRMED_OVER, METRICS, REFUTED_UNDER, SAME, THROUGHPUT, Metric

PATH = "claims.md"
_UNITS: Mapping[str, Sequence[tuple[str, float]]] = {
    "s": (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)),
    "hundredths of a CPU second": (("s of CPU time", 1e2), ("ms of CPU time", 1e-1), ("µs of CPU time", 1e-4)),
    "bytes": (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)),
    "bytes/s": (("GB/s", 1e9), ("MB/s", 1e6)),
}
"""A metric's unit to those that its values may be shown in, the largest first, each with its size in that unit."""


def page(verdicts: Verdicts) -> Page:
    """Write the page."""
    figures: dict[str, Placed] = {}
    if verdicts.platforms:
        views = verdicts.platforms
        names = {view.machine_id: descriptions.name_of(view.manifest.machine) for view in views}
        figure = forest(verdicts.frame(), verdicts.claims, names)
        drawn = {run: None for row in figure.rows for run in str(row["run"]).split(", ")}
        origin = together(verdicts.views[run].origin for run in drawn) if drawn else views[0].origin
        figures["claims"] = place(figure, "claims", PATH, origin)
    by_suite: dict[str, dict[str, list[tuple[Claim, Sequence[ClaimResult]]]]] = {}
    for name, (suite, claim) in verdicts.claims.items():
        results = verdicts.results[name]
        group = "untestable" if results and all(result.verdict == NOT_TESTABLE for result in results) else "judged"
        by_suite.setdefault(suite, {"judged": [], "untestable": []})[group].append((claim, results))
    key = Markup('<span id="source-{0}">{0}</span>')
    body = render(
        "claims/page.md",
        path=PATH,
        verdicts=verdicts,
        badge=badge,
        badges=badges,
        confirmed_over=CONFIRMED_OVER,
        refuted_under=REFUTED_UNDER,
        same=f"±{100 * (SAME[1] - 1):g}\u00a0%",
        of_documents=sum(claim.sources != ("field",) for _, claim in verdicts.claims.values()),
        tallies=[
            (
                platform,
                [f"{count} {verdict}" for verdict, count in verdicts.tally(at).items()],
                origins(verdicts.holding(at)),
            )
            for at, platform in enumerate(verdicts.platforms)
        ],
        substitutions=_substitutions(verdicts),
        filters=_filters(verdicts),
        figure=TITLE,
        suites=by_suite,
        facts_of=partial(_facts, verdicts),
        origin=_origin,
        tables_of=_tables,
        beside={workers_page.SUITE: Markup("\n".join(workers_page.beside(verdicts)))},  # noqa: S704 - the page escapes it
        sources=[
            (key.format(name), source.title, source.about, _count(verdicts, name)) for name, source in SOURCES.items()
        ],
    )
    files: dict[str, str | Path] = {"claims/numbers.json": numbers(verdicts), "claims/recompute.py": RECOMPUTE}
    return Page(PATH, "Claims", body, figures, files, hide=("navigation",))


def _count(verdicts: Verdicts, source: str) -> int:
    return sum(source in claim.sources for _, claim in verdicts.claims.values())


def _substitutions(verdicts: Verdicts) -> dict[str, list[str]]:
    """What the runs that speak read in place of something else, and on which machines; the newest says it."""
    workloads: dict[str, list[str]] = {}
    for at, platform in enumerate(verdicts.platforms):
        views = [results[at].view for results in verdicts.results.values() if results[at].tested]
        for note in _newest_substitutions(views).values():
            workloads.setdefault(descriptions.note(note), []).append(platform.name)
    return workloads


def _newest_substitutions(views: Iterable[RunView]) -> dict[str, str]:
    """By the workload that was replaced, how the newest run says so."""
    runs = sorted((view.manifest for view in views), key=lambda run: run.started_at)
    notes = [note for run in runs for note in run.substitutions]
    return {next((name for name in REPLACED if name in note), note): note for note in notes}


def _filters(verdicts: Verdicts) -> dict[str, dict[str, int]]:
    """What the check boxes offer, each with the number of claims that it leaves."""
    of_claims = verdicts.results.values()
    numbers = Counter(word for results in of_claims for word in {result.verdict for result in results})
    devices = Counter(device for results in of_claims for device in {result.device for result in results})
    groups = {
        "verdict": {verdict: numbers[verdict] for verdict in VERDICTS},
        "source": {name: _count(verdicts, name) for name in SOURCES},
        "device": {device: devices[device] for device in ("cpu", "cuda")},
    }
    return {name: {value: count for value, count in counts.items() if count} for name, counts in groups.items()}


def badges(results: Sequence[ClaimResult]) -> Markup:
    """Write the verdicts of a claim in short: with the effect of one machine and device, else how many machines."""
    if not results:
        return badge("not tested yet")
    if len(results) == 1:
        return badge(results[0].verdict, _effect(results[0]))
    verdicts_of: dict[str, set[str]] = {}
    for result in results:
        verdicts_of.setdefault(result.verdict, set()).add(result.view.machine_id)
    return Markup(" ").join(badge(verdict, words.plural(len(ids), "machine")) for verdict, ids in verdicts_of.items())


def _effect(result: ClaimResult) -> str:
    """Write a claim's ratio in short: with its interval, or from least to most where it depends on the setting."""
    row, effect = result.row, result.claim.effect
    if effect is None or not words.is_number(row.get("ratio")):
        return ""
    what = "" if effect.metric == THROUGHPUT else f"{METRICS[effect.metric].noun} "
    cases = [case for case in result.cases if case["role"] == "case"]
    ratios = [float(case["ratio"]) for case in cases if words.is_number(case["ratio"])]
    if result.verdict == "depends" and ratios:
        return f"{what}{words.times(min(ratios))} to {words.times(max(ratios))}"
    few = "" if words.is_number(row["lo"]) else " (no interval)"
    extreme = f", worst {worst(row)}" if worst(row) else ""
    return f"{what}{estimate(row)}{few}{extreme}"


def badge(verdict: str, more: str = "") -> Markup:
    """Write a verdict with the mark that it has in the picture."""
    mark = Markup(swatch(Key("", *LOOKS[verdict]))) if verdict in LOOKS else ""  # noqa: S704 - our own
    rest = Markup(" <span>{}</span>").format(more) if more else ""
    return Markup('<span class="fr-badge">{}{}{}</span>').format(mark, verdict, rest)


def _facts(verdicts: Verdicts, suite: str, claim: Claim) -> Iterator[tuple[str, Markup]]:
    """Who says a claim, and how it is tested."""
    said_by = Markup('<a href="#source-{}">{}</a> <span class="fr-kind">({})</span>')
    sources = [(name, SOURCES[name]) for name in claim.sources]
    yield "source", Markup("<br>").join(said_by.format(name, source.title, source.about) for name, source in sources)
    if claim.figures:
        yield "source’s figures", _linked(claim.figures, claim.id, verdicts.claims)
    yield "test", _linked(claim.design, claim.id, verdicts.claims)
    yield "not tested", _linked(claim.not_shown, claim.id, verdicts.claims)
    # Suites that also ask other things leave their claims to the suite of all claims.
    yield "repeat it with", markup.code(f"make sweep SUITE={suite if suites.for_claims(suite) else suites.CLAIMS}")


def _linked(text: str, here: str, ids: Iterable[str]) -> Markup:
    """Write text in which the ids of other claims lead to them: where sources contradict each other both are named."""
    names = "|".join(re.escape(name) for name in sorted(ids, key=len, reverse=True) if "-" in name)

    def link(match: re.Match[str]) -> str:
        return match[0] if match[0] == here else f'<a href="#claim-{match[0]}">{match[0]}</a>'

    linked = re.sub(rf"(?<![\w-])(?:{names})(?![\w-])", link, str(escape(text)))
    return Markup(linked)  # noqa: S704 - it was escaped


def _origin(result: ClaimResult) -> Markup:
    """On how many blocks of which runs a verdict rests, and what is left out of it."""
    if not result.tested:
        return Markup()
    effect = result.claim.effect
    noun = "repetition" if effect else "check"
    parts = [words.plural(int(result.row["n"]), noun), *remarks(result.row)]
    if words.is_number(result.row["dropped"]) and int(result.row["dropped"]):
        # Every trial that ended well has a throughput; other numbers may be unknown.
        failed = effect is None or effect.metric == THROUGHPUT
        lacks = "failed" if failed else "failed or the number is not known"
        parts.append(f"{words.plural(int(result.row['dropped']), noun)} dropped, as a side {lacks}")
    runs = Markup(", ").join(
        Markup("{} {}, {}, {}").format(
            "" if at else "runs" if len(result.views) > 1 else "run",
            markup.link(PATH, view.page, view.manifest.run_id),
            descriptions.day(view.manifest.started_at),
            runs_facts.badge(PATH, view),
        )
        for at, view in enumerate(result.views)
    )
    # What was read in place of photographs; the page's head says why.
    asked = {case.get("workload") for case in (*effect.cases, *effect.against)} if effect else set()
    notes = _newest_substitutions(result.views)
    parts += [descriptions.note(note).partition(":")[0] for name, note in notes.items() if name in asked]
    return Markup("{}; {}").format("; ".join(parts), runs)


def _tables(result: ClaimResult) -> Iterator[Markup]:
    """A line a setting, with its sides and its effect, or a line a check of a fact; then numbers beside the claim."""
    effect = result.claim.effect
    cases = [row for row in result.cases if not row["role"].startswith("also")]
    if effect and cases:
        metric = METRICS[effect.metric]
        name, size = _unit(metric, cases)
        unit = f", {name}" if name else ""
        sides = [f"{settings_text(effect.steps[end][1])}{unit}" for end in (0, -1)]
        change = "A doubling" if effect.along else "B ÷ A"
        columns = ["Where", f"A: {sides[0]}", f"B: {sides[1]}", change, "n", "Verdict alone"]
        lines = [_case(row, size) for row in cases]
        if effect.level:
            columns, lines = (
                ["Where", "Measured", "÷ the source’s", *columns[4:]],
                [(*line[:2], *line[3:]) for line in lines],
            )
        if effect.against:
            # Neither side of an interaction is what the claim speaks of.
            columns, lines = columns[:-1], [line[:-1] for line in lines]
        caption = f"{words.capital(metric.noun)} in each setting"
        yield table(caption, columns, lines, columns[1 : columns.index("n") + 1], stack=True)
        if besides := [row for row in result.cases if row["role"].startswith("also")]:
            rows = [(row["case"], estimate(row), int(row["n"]), row["verdict"]) for row in besides if row["n"]]
            yield table("Parts of the claim", ("Part", "Ratio", "n", "Verdict"), rows, ("Ratio", "n"), stack=True)
    elif len(cases) > 1:
        rows = [(str(row["case"]) or "–", row["evidence"], row["n"], row["verdict"]) for row in cases]
        yield table("What the checks saw", ("Where", "Seen", "Checks", "Verdict"), rows, stack=True)
    effects = result.claim.asides
    beside = []
    for row in result.asides:
        if words.is_number(row["ratio"]):
            label = markup.two_lines(row["label"], power(row, effects[row["label"]]))
            beside.append((label, estimate(row), int(row["n"])))
    if beside:
        yield table("Extra measurements", ("Measurement", "Ratio", "n"), beside, ("Ratio", "n"), stack=True)


def _unit(metric: Metric, cases: Sequence[Row]) -> tuple[str, float]:
    """Choose the unit in which the largest value of a table is one or more, and its size in the metric's own."""
    values = [abs(float(row[side])) for row in cases for side in ("a_value", "b_value") if words.is_number(row[side])]
    units = _UNITS.get(metric.unit, ((metric.unit, 1.0),))
    return next((unit for unit in units if max(values, default=0.0) >= unit[1]), units[-1])


def _case(row: Row, size: float) -> tuple[object, ...]:
    where = str(row["case"]) or "as above"
    against = Markup('<span class="fr-kind">against:</span> {}').format(where)
    return (
        against if row["role"] == "against" else where,
        words.number(float(row["a_value"]) / size),
        words.number(float(row["b_value"]) / size),
        estimate(row) if words.is_number(row["ratio"]) else "–",
        int(row["n"]),
        row["verdict"],
    )


def suite_section(verdicts: Verdicts, suite: str, path: str) -> list[str]:
    """Write what the page at ``path`` says of its suite's claims; nothing where no machine tested any."""
    mine = [(claim, verdicts.results[name]) for name, (owner, claim) in verdicts.claims.items() if owner == suite]
    if not verdicts.platforms or not mine:
        return []
    rows = []
    for claim, results in mine:
        short = (
            badge(result.verdict, f"on {platform.name}" if len(results) > 1 else "")
            for result, platform in zip(results, verdicts.platforms, strict=True)
        )
        link = markup.link(path, f"{PATH}#claim-{claim.id}", claim.says)
        rows.append((link, ", ".join(claim.sources), Markup("<br>").join(short)))
    more = markup.link(path, PATH, "All claims, with their effects and how they were tested")
    listing = table("What the sources say", ("Claim", "Source", "Verdict"), rows, stack=True)
    return [
        markup.heading(2, "What the sources say", "sources-say"),
        folded(f"{words.plural(len(mine), 'claim')} on this question", f'{listing}<p class="fr-note">{more}</p>'),
    ]


def answer(verdicts: Verdicts, suite: str, view: RunView) -> str:
    """Answer a suite that asks by claims: how many hold on a run's machine and device; empty where none was tested."""
    mine = [verdicts.results[name] for name, (owner, _) in verdicts.claims.items() if owner == suite]
    here = [result for results in mine for result in results if result.view.where == view.where]
    if not any(result.tested for result in here):
        return ""
    tally = Counter(result.verdict for result in here)
    counts = words.listed(f"{tally[verdict]} {verdict}" for verdict in VERDICTS if tally[verdict])
    return f"Of {words.plural(len(mine), 'claim')} on this question: {counts}."
