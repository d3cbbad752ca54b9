"""The Claims page: what the sources say, tested: a picture of all effects, then each claim with what machines found.

Check boxes leave out claims by verdict, source and device (``site/scripts/site/claims.js``);
without scripts all are shown.

A claim on the Claims page: what is said and by whom, how it is tested, and what each machine found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from feedrate.analysis.claims import NOT_TESTABLE, VERDICTS
from feedrate.analysis.sentences import estimate, power, settings_text
from feedrate.charts.citation import together
from feedrate.charts.embed import later, swatch
from feedrate.charts.figure import Key
from feedrate.pages import descriptions, markup
from feedrate.pages.markup import Page, Placed
from feedrate.pages.runs import RunView, place
from feedrate.pages.verdicts import ClaimResult, Place, Row, Verdicts
from feedrate.plan import suite as suites
from feedrate.plan.claim import PHOTOGRAPHS, SOURCES, Claim
from feedrate.questions.claims.charts.claims import MARKS, TONES, forest
from feedrate.questions.runs import trust
from feedrate.questions.workers import page as workers_page
from feedrate.schema import words
from feedrate.schema.columns import PROTOCOL_VERSION
from feedrate.schema.metrics import CONFIRMED_OVER, METRICS, REFUTED_UNDER, SAME, THROUGHPUT, Metric

_UNITS: Mapping[str, Sequence[tuple[str, float]]] = {
    "s": (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)),
    "hundredths of a CPU second": (("s of CPU time", 1e2), ("ms of CPU time", 1e-1), ("µs of CPU time", 1e-4)),
    "bytes": (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)),
    "bytes/s": (("GB/s", 1e9), ("MB/s", 1e6)),
}
"""A metric's unit to those that its values may be shown in, the largest first, each with its size in that unit."""


def section(name: str, verdicts: Verdicts, path: str) -> str:
    """Write a claim, folded behind its sentence and its verdicts."""
    suite, claim = verdicts.asked[name]
    told = verdicts.told[name]
    body = [_about(claim, suite, verdicts)]
    body += [_found(each, place, path) for each, place in zip(told, verdicts.places, strict=True)]
    head = f'<span class="fr-claim-says">{escape(claim.says)}</span> <span class="fr-badges">{badges(told)}</span>'
    return (
        f'<details class="fr-claim" id="claim-{name}" data-claim="{name}" data-sources="{" ".join(claim.sources)}">'
        f"<summary>{head}</summary>{''.join(body)}</details>\n"
    )


def badges(told: Sequence[ClaimResult]) -> str:
    """Write the verdicts of a claim in short: with the effect of one machine and device, else how many machines."""
    if len(told) == 1 or not told:
        return "".join(badge(each.verdict, _effect(each)) for each in told) or badge("not tested yet")
    found: dict[str, set[str]] = {}
    for each in told:
        found.setdefault(each.verdict, set()).add(each.shown.machine_id)
    return " ".join(badge(verdict, words.plural(len(ids), "machine")) for verdict, ids in found.items())


def badge(verdict: str, more: str = "") -> str:
    """Write a verdict with the mark that it has in the picture."""
    mark = swatch(Key("", TONES[verdict], MARKS[verdict])) if verdict in TONES else ""
    said = f" <span>{escape(more)}</span>" if more else ""
    return f'<span class="fr-badge">{mark}{escape(verdict)}{said}</span>'


def _effect(told: ClaimResult) -> str:
    return f"{words.number(told.row['ratio'])}×" if words.known(told.row.get("ratio")) else ""


def _about(claim: Claim, suite: str, verdicts: Verdicts) -> str:
    said_by = "<br>".join(
        f'<a href="#source-{name}">{escape(SOURCES[name].title)}</a> '
        f'<span class="fr-kind">({escape(SOURCES[name].about)})</span>'
        for name in claim.sources
    )
    pairs = [("said by", said_by)]
    pairs += [("with the figures", _linked(claim.figures, claim.id, verdicts.asked))] if claim.figures else []
    # Suites that also ask other things leave their claims to the suite of all claims.
    asks = suite if suites.for_claims(suite) else suites.CLAIMS
    pairs.append(("tested so", _linked(claim.design, claim.id, verdicts.asked)))
    pairs.append(("repeat it", markup.code(f"make sweep SUITE={asks}")))
    return markup.facts(pairs)


def _linked(text: str, here: str, ids: Iterable[str]) -> str:
    """Write text in which the ids of other claims lead to them: where sources contradict each other both are named."""
    others = "|".join(re.escape(name) for name in sorted(ids, key=len, reverse=True) if name != here and "-" in name)
    link = r'<a href="#claim-\1">\1</a>'
    return re.sub(rf"(?<![\w-])({others})(?![\w-])", link, escape(text)) if others else escape(text)


def _found(told: ClaimResult, place: Place, path: str) -> str:
    """What one machine found."""
    data = f'data-verdict="{told.verdict}" data-device="{told.device}" data-machine="{escape(told.shown.machine_id)}"'
    verdict = f"{badge(told.verdict)} " if told.tested else ""
    said = f'<p class="fr-on-said">{verdict}{escape(told.sentence)}</p>'
    rest = _origin(told, path) + later("".join((*_cases(told), *_asides(told)))) if told.tested else ""
    return f'<div class="fr-on" {data}><p class="fr-origin">{escape(place.name)}</p>{said}{rest}</div>'


def _origin(told: ClaimResult, path: str) -> str:
    noun = "block" if told.claim.effect else "check"
    lost = int(told.row["dropped"]) if words.known(told.row["dropped"]) else 0
    said = [words.plural(int(told.row["n"]), noun)]
    said += [f"{words.plural(lost, noun)} dropped, as a side {_lacks(told)}"] if lost else []
    said.append(descriptions.day(told.shown.manifest.started_at))
    run = markup.link(path, told.shown.page, f"run {told.shown.manifest.run_id}")
    notes = "".join(f"; {escape(note.partition(':')[0])}" for note in _stand_ins(told))
    return f'<p class="fr-origin">{escape(", ".join(said))}, {run}, {trust.badge(path, told.shown)}{notes}</p>'


def _lacks(told: ClaimResult) -> str:
    """Why a block may have been dropped: every trial that ended well has a throughput; other numbers may be unknown."""
    effect = told.claim.effect
    return "failed" if effect is None or effect.metric == THROUGHPUT else "failed or the number is not known"


def _stand_ins(told: ClaimResult) -> Sequence[str]:
    """What was read in place of something else, where the claim reads photographs at all; the page's head says why."""
    effect = told.claim.effect
    cases = (*effect.cases, *effect.against) if effect else ()
    return told.shown.manifest.substitutions if any(case.get("workload") in PHOTOGRAPHS for case in cases) else ()


def _cases(told: ClaimResult) -> Iterator[str]:
    """A line a setting: its sides and its effect; a line a check for a fact."""
    effect = told.claim.effect
    if effect is None:
        yield from _checks(told)
        return
    metric = METRICS[effect.metric]
    name, size = _unit(metric, told.cases)
    unit = f", {name}" if name else ""
    sides = [f"{settings_text(effect.steps[end][1])}{unit}" for end in (0, -1)]
    change = "A doubling" if effect.along else "B ÷ A"
    columns = ["Where", f"A: {sides[0]}", f"B: {sides[1]}", change, "n", "By itself"]
    lines = [_case(row, size) for row in told.cases]
    if effect.against:
        # Neither side of an interaction is what the claim speaks of.
        columns, lines = columns[:-1], [line[:-1] for line in lines]
    if lines:
        yield markup.table(
            f"{metric.noun[:1].upper()}{metric.noun[1:]} in each setting", columns, lines, columns[1:5], stack=True
        )


def _unit(metric: Metric, cases: Sequence[Row]) -> tuple[str, float]:
    """Choose the unit in which the largest value of a table is one or more, and its size in the metric's own."""
    values = [abs(float(row[side])) for row in cases for side in ("a_value", "b_value") if words.known(row[side])]
    units = _UNITS.get(metric.unit, ((metric.unit, 1.0),))
    return next((each for each in units if max(values, default=0.0) >= each[1]), units[-1])


def _checks(told: ClaimResult) -> Iterator[str]:
    if len(told.cases) > 1:
        rows = [
            (escape(str(row["case"]) or "–"), escape(str(row["evidence"])), str(row["n"]), str(row["verdict"]))
            for row in told.cases
        ]
        yield markup.table("What the checks saw", ("Where", "Seen", "Checks", "So it is"), rows, stack=True)


def _case(row: Row, size: float) -> tuple[str, ...]:
    where = str(row["case"]) or "as above"
    against = f'<span class="fr-kind">against:</span> {escape(where)}' if row["role"] == "against" else escape(where)
    return (
        against,
        words.number(float(row["a_value"]) / size),
        words.number(float(row["b_value"]) / size),
        escape(estimate(row)) if words.known(row["ratio"]) else "–",
        str(int(row["n"])),
        escape(str(row["verdict"])),
    )


def _asides(told: ClaimResult) -> Iterator[str]:
    """Numbers beside the claim."""
    effects = {aside.label: aside.effect for aside in told.claim.asides}
    rows = []
    for row in told.asides:
        if words.known(row["ratio"]):
            grown = power(row, effects[row["label"]])
            said = f'<br><span class="fr-kind">{escape(grown)}</span>' if grown else ""
            rows.append((f"{escape(str(row['label']))}{said}", escape(estimate(row)), str(int(row["n"]))))
    if rows:
        columns = ("Beside it", "Ratio", "n")
        yield markup.table("Numbers beside the claim", columns, rows, columns[1:], stack=True)


def untested(told: Sequence[ClaimResult]) -> str:
    """List claims that a machine cannot test, by reason."""
    reasons: dict[str, list[str]] = {}
    for each in told:
        if each.verdict == NOT_TESTABLE:
            link = f'<a href="#claim-{each.claim.id}">{each.claim.id}</a>'
            reasons.setdefault(str(each.row["reason"]), []).append(link)
    items = (f"<li>{escape(reason)}: {', '.join(links)}</li>" for reason, links in reasons.items())
    return f"<ul>{''.join(items)}</ul>" if reasons else ""


PATH = "claims.md"
_TITLE = "Which of the sources’ claims hold?"
_LEAD = (
    "Widely read documents say what makes PyTorch training faster. Most give no spread, one machine, or no number. "
    "Each sentence of theirs is a claim here: two settings that differ in what it is about, measured in turn many "
    "times, or the check of a fact, on every machine that has run it. Unfold a claim to see who says it, how it is "
    "tested, and where it holds. Those that no machine here could test stand at the end, each with the reason."
)
_COMMANDS = (
    ("make sweep SUITE=claims", "test those that this machine can, in ten minutes; BUDGET=30m decides more of them"),
    (".venv/bin/feedrate claims", "print the verdicts of the runs under results/"),
)


def page(verdicts: Verdicts) -> Page:
    """Write the page.

    Args:
        verdicts: what the records of all runs say.
    """
    body = [
        f"# {_TITLE}\n",
        markup.paragraph(_LEAD, "fr-lead"),
        _rule(),
        *_tallies(verdicts),
        *_left_out(verdicts),
    ]
    figures: dict[str, Placed] = {}
    if verdicts.places:
        names = {each.shown.machine_id: descriptions.machine_name(each.shown.run) for each in verdicts.places}
        figure = forest(verdicts.frame(), verdicts.asked, names)
        placed = place(figure, "claims", PATH, together(each.shown.origin for each in verdicts.places))
        figures[placed.name] = placed
        body += [_filter(verdicts), markup.heading(2, figure.title, "effects"), markup.slot(placed.name), "\n"]
    body += [*_sections(verdicts), *_untested(verdicts), *_sources(verdicts)]
    body += [markup.heading(2, "What to type", "what-to-type"), markup.commands(_COMMANDS)]
    return Page(PATH, "Claims", "\n".join(body), figures, hide=("navigation",))


def said(verdicts: Verdicts, suite: str, path: str) -> list[str]:
    """Write what a suite's page says of its claims; nothing where it has none or no machine tested any.

    Args:
        verdicts: what the records of all runs say.
        suite: its name.
        path: of its page.
    """
    mine = [(claim, verdicts.told[name]) for name, (owner, claim) in verdicts.asked.items() if owner == suite]
    if not verdicts.places or not mine:
        return []
    rows = [
        (
            markup.link(path, f"{PATH}#claim-{claim.id}", claim.says),
            escape(", ".join(claim.sources)),
            "<br>".join(_short(each.verdict, place.name, len(told)) for each, place in _pairs(verdicts, told)),
        )
        for claim, told in mine
    ]
    listing = markup.table("What the sources say", ("Claim", "Source", "Verdict"), rows, stack=True)
    more = (
        f'<p class="fr-note">{markup.link(path, PATH, "All claims, with their effects and how they were tested")}</p>\n'
    )
    return [markup.heading(2, "What the sources say", "sources-say"), listing, more]


def answer(verdicts: Verdicts, suite: str, shown: RunView) -> str:
    """Answer a suite that asks by claims: how many of them hold on a run's machine; empty where it tested none.

    Args:
        verdicts: what the records of all runs say.
        suite: its name.
        shown: a run; the newest of its machine and device that tested a claim speaks for it.
    """
    mine = [verdicts.told[name] for name, (owner, _) in verdicts.asked.items() if owner == suite]
    places = [(place.shown.machine_id, place.device) for place in verdicts.places]
    here = (shown.machine_id, shown.manifest.device)
    if here not in places or not any(part[places.index(here)].tested for part in mine):
        return ""
    found = Counter(part[places.index(here)].verdict for part in mine)
    counts = words.listed(f"{found[verdict]} {verdict}" for verdict in VERDICTS if found[verdict])
    return f"Of {words.plural(len(mine), 'claim')} on this question: {counts}."


def _pairs(verdicts: Verdicts, told: Sequence[ClaimResult]) -> Iterator[tuple[ClaimResult, Place]]:
    return zip(told, verdicts.places, strict=True)


def _short(verdict: str, machine: str, count: int) -> str:
    return badge(verdict, f"on {machine}" if count > 1 else "")


def _rule() -> str:
    low, high = (f"{abs(100 * (edge - 1)):g}" for edge in SAME)
    band = f"±{high}\u00a0%" if low == high else f"−{low}\u00a0% to +{high}\u00a0%"
    rules = markup.link(PATH, "methodology.md#verdicts", "All rules")
    return (
        f"<p>A claim is <em>confirmed</em> where the whole interval of its effect lies beyond {CONFIRMED_OVER:g} in "
        f"the direction that it names, <em>refuted</em> where it lies beyond {REFUTED_UNDER:g} in the other, and makes "
        f"<em>no difference</em> where it lies inside {band}; else it is <em>inconclusive</em>. All claims of a run "
        f"are judged together: the more are asked, the more each must show. {rules}</p>\n"
    )


def _tallies(verdicts: Verdicts) -> Iterator[str]:
    if not verdicts.places:
        yield markup.paragraph(
            "No run has tested a claim yet: make sweep SUITE=claims does. Until then they are only listed.",
            "fr-missing",
        )
    for at, each in enumerate(verdicts.places):
        counts = words.listed(f"{count} {verdict}" for verdict, count in verdicts.tally(at).items())
        yield markup.paragraph(f"{each.name}: of {words.plural(len(verdicts.told), 'claim')} {counts}.", "fr-answer")
    for note, names in _substitutions(verdicts).items():
        where = "" if len(names) == len(verdicts.places) else f"{words.listed(names)}: "
        yield markup.paragraph(where + descriptions.note(note), "fr-note")


def _substitutions(verdicts: Verdicts) -> dict[str, list[str]]:
    """What the runs that speak read in place of something else, and on which machines."""
    found: dict[str, list[str]] = {}
    for at, each in enumerate(verdicts.places):
        runs = [part[at].shown.manifest for part in verdicts.told.values() if part[at].tested]
        for note in dict.fromkeys(note for run in runs for note in run.substitutions):
            found.setdefault(note, []).append(each.name)
    return found


def _left_out(verdicts: Verdicts) -> Iterator[str]:
    if verdicts.left_out:
        runs = words.listed(
            markup.link(PATH, shown.page, shown.manifest.run_id) + f" (version {shown.manifest.protocol_version})"
            for shown in verdicts.left_out
        )
        yield (
            f'<p class="fr-note">Left out: {runs}. They were measured by another version of the protocol than the runs '
            f"that are shown (version {PROTOCOL_VERSION}), and what was measured in different ways is not compared."
            "</p>\n"
        )


def _filter(verdicts: Verdicts) -> str:
    """Check boxes; hidden until the script shows them."""
    told = [each for part in verdicts.told.values() for each in part]
    groups = {
        "verdict": {verdict: sum(each.verdict == verdict for each in told) for verdict in VERDICTS},
        "source": {name: sum(name in claim.sources for _, claim in verdicts.asked.values()) for name in SOURCES},
        "device": {device: sum(each.device == device for each in told) for device in ("cpu", "cuda")},
    }
    fields = "".join(_field(name, counts) for name, counts in groups.items() if sum(map(bool, counts.values())) > 1)
    return (
        f'<div class="fr-filter" id="fr-filter" role="group" aria-label="Show only" hidden>{fields}'
        '<p class="fr-filter-said" role="status"></p></div>\n'
    )


def _field(name: str, counts: dict[str, int]) -> str:
    boxes = "".join(
        f'<label><input type="checkbox" name="{name}" value="{escape(value)}"><span>'
        f"{badge(value) if name == 'verdict' else escape(value)} <small>{count}</small></span></label>"
        for value, count in counts.items()
        if count
    )
    return f"<fieldset><legend>{name.capitalize()}</legend>{boxes}</fieldset>"


def _sections(verdicts: Verdicts) -> Iterator[str]:
    """A heading a suite, its claims below it."""
    for name in dict.fromkeys(owner for owner, _ in verdicts.asked.values()):
        parts = "".join(section(claim, verdicts, PATH) for claim, (owner, _) in verdicts.asked.items() if owner == name)
        yield markup.heading(2, name.capitalize(), f"suite-{markup.slug(name)}")
        yield f'<div class="fr-claims">{markup.paragraph(suites.load(name).question, "fr-origin")}{parts}</div>\n'
        if name == workers_page.SUITE:
            yield from workers_page.beside(verdicts)


def _untested(verdicts: Verdicts) -> Iterator[str]:
    """What cannot be tested, by machine and reason."""
    lists = [untested([part[at] for part in verdicts.told.values()]) for at in range(len(verdicts.places))]
    if any(lists):
        yield markup.heading(2, "Not testable", "not-testable")
        for each, listing in zip(verdicts.places, lists, strict=True):
            name = f"<p>{escape(each.name)}</p>" if len(lists) > 1 else ""
            yield f'<div class="fr-untested">{name}{listing}</div>\n' if listing else ""


def _sources(verdicts: Verdicts) -> Iterator[str]:
    rows = []
    for name, source in SOURCES.items():
        count = sum(name in claim.sources for _, claim in verdicts.asked.values())
        rows.append((f'<span id="source-{name}">{name}</span>', escape(source.title), escape(source.about), str(count)))
    yield markup.heading(2, "The sources", "sources")
    yield markup.table("The sources", ("Key", "Source", "What it is", "Claims"), rows, ("Claims",), stack=True)
    yield markup.paragraph(
        "Claims are in our own words. What is no claim about speed is not tested: which optimizer suits large batches, "
        "learning-rate warm-up, and training TorchScript models in C++.",
        "fr-note",
    )
