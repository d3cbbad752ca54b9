"""A claim on the Claims page: what is said and by whom, how it is tested, and what each machine found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from harness import suite as suites
from harness.analysis.claim_words import estimate, named, power
from harness.analysis.claimed import NOT_TESTABLE
from harness.charts import _words as words
from harness.charts._embed import swatch
from harness.charts._figure import Key
from harness.charts._folded import later
from harness.charts.claims import MARKS, TONES
from harness.claim import PHOTOGRAPHS, SOURCES, Claim
from harness.metrics import METRICS, THROUGHPUT, Metric
from harness.pages import described, markup, trust
from harness.pages.verdicts import Place, Row, Told, Verdicts

_UNITS: Mapping[str, Sequence[tuple[str, float]]] = {
    "s": (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)),
    "hundredths of a CPU second": (("s of CPU time", 1e2), ("ms of CPU time", 1e-1), ("µs of CPU time", 1e-4)),
    "bytes": (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)),
    "bytes/s": (("GB/s", 1e9), ("MB/s", 1e6)),
}
"""A metric's unit to those that its values may be shown in, the largest first, each with its size in that unit."""


def section(name: str, verdicts: Verdicts, path: str) -> str:
    """Write a claim, folded behind its sentence and its verdicts.

    Args:
        name: its id.
        verdicts: what the records of all runs say.
        path: of the page.
    """
    suite, claim = verdicts.asked[name]
    told = verdicts.told[name]
    body = [_about(claim, suite, verdicts)]
    body += [_found(each, place, path) for each, place in zip(told, verdicts.places, strict=True)]
    head = f'<span class="fr-claim-says">{escape(claim.says)}</span> <span class="fr-badges">{badges(told)}</span>'
    return (
        f'<details class="fr-claim" id="claim-{name}" data-claim="{name}" data-sources="{" ".join(claim.sources)}">'
        f"<summary>{head}</summary>{''.join(body)}</details>\n"
    )


def badges(told: Sequence[Told]) -> str:
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


def _effect(told: Told) -> str:
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
    pairs.append(("repeat it", described.code(f"make sweep SUITE={asks}")))
    return markup.facts(pairs)


def _linked(text: str, here: str, ids: Iterable[str]) -> str:
    """Write text in which the ids of other claims lead to them: where sources contradict each other both are named."""
    others = "|".join(re.escape(name) for name in sorted(ids, key=len, reverse=True) if name != here and "-" in name)
    link = r'<a href="#claim-\1">\1</a>'
    return re.sub(rf"(?<![\w-])({others})(?![\w-])", link, escape(text)) if others else escape(text)


def _found(told: Told, place: Place, path: str) -> str:
    """What one machine found."""
    data = f'data-verdict="{told.verdict}" data-device="{told.device}" data-machine="{escape(told.shown.machine_id)}"'
    verdict = f"{badge(told.verdict)} " if told.tested else ""
    said = f'<p class="fr-on-said">{verdict}{escape(told.sentence)}</p>'
    rest = _origin(told, path) + later("".join((*_cases(told), *_asides(told)))) if told.tested else ""
    return f'<div class="fr-on" {data}><p class="fr-origin">{escape(place.name)}</p>{said}{rest}</div>'


def _origin(told: Told, path: str) -> str:
    noun = "block" if told.claim.effect else "check"
    lost = int(told.row["dropped"]) if words.known(told.row["dropped"]) else 0
    said = [words.plural(int(told.row["n"]), noun)]
    said += [f"{words.plural(lost, noun)} dropped, as a side {_lacks(told)}"] if lost else []
    said.append(described.day(told.shown.manifest.started_at))
    run = markup.link(path, told.shown.page, f"run {told.shown.manifest.run_id}")
    notes = "".join(f"; {escape(note.partition(':')[0])}" for note in _stand_ins(told))
    return f'<p class="fr-origin">{escape(", ".join(said))}, {run}, {trust.badge(path, told.shown)}{notes}</p>'


def _lacks(told: Told) -> str:
    """Why a block may have been dropped: every trial that ended well has a throughput; other numbers may be unknown."""
    effect = told.claim.effect
    return "failed" if effect is None or effect.metric == THROUGHPUT else "failed or the number is not known"


def _stand_ins(told: Told) -> Sequence[str]:
    """What was read in place of something else, where the claim reads photographs at all; the page's head says why."""
    effect = told.claim.effect
    cases = (*effect.cases, *effect.against) if effect else ()
    return told.shown.manifest.substitutions if any(case.get("workload") in PHOTOGRAPHS for case in cases) else ()


def _cases(told: Told) -> Iterator[str]:
    """A line a setting: its sides and its effect; a line a check for a fact."""
    effect = told.claim.effect
    if effect is None:
        yield from _checks(told)
        return
    metric = METRICS[effect.metric]
    name, size = _unit(metric, told.cases)
    unit = f", {name}" if name else ""
    sides = [f"{named(effect.steps[end][1])}{unit}" for end in (0, -1)]
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


def _checks(told: Told) -> Iterator[str]:
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


def _asides(told: Told) -> Iterator[str]:
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


def untested(told: Sequence[Told]) -> str:
    """List claims that a machine cannot test, by reason."""
    reasons: dict[str, list[str]] = {}
    for each in told:
        if each.verdict == NOT_TESTABLE:
            link = f'<a href="#claim-{each.claim.id}">{each.claim.id}</a>'
            reasons.setdefault(str(each.row["reason"]), []).append(link)
    items = (f"<li>{escape(reason)}: {', '.join(links)}</li>" for reason, links in reasons.items())
    return f"<ul>{''.join(items)}</ul>" if reasons else ""
