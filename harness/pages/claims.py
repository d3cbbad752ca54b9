"""The Claims page: what the sources say, tested: a picture of all effects, then each claim with what machines found.

Check boxes leave out claims by verdict, source and device (``site/assets/claims.js``); without scripts all are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from harness import suite as suites
from harness.analysis.claimed import VERDICTS
from harness.charts import _words as words
from harness.charts.claims import forest
from harness.citation import together
from harness.claim import SOURCES
from harness.margins import CONFIRMED_OVER, REFUTED_UNDER, SAME
from harness.pages import described, markup, worker_costs
from harness.pages.claim_section import badge, section, untested
from harness.pages.gathered import Shown, place
from harness.pages.markup import Page
from harness.pages.placed import Placed
from harness.pages.verdicts import Place, Told, Verdicts
from harness.records import PROTOCOL_VERSION

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
    (".venv/bin/python -m harness claims", "print the verdicts of the runs under results/"),
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
        names = {each.shown.machine_id: described.machine_name(each.shown.run) for each in verdicts.places}
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


def answer(verdicts: Verdicts, suite: str, shown: Shown) -> str:
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


def _pairs(verdicts: Verdicts, told: Sequence[Told]) -> Iterator[tuple[Told, Place]]:
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
        yield markup.paragraph(where + described.note(note), "fr-note")


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
        if name == worker_costs.SUITE:
            yield from worker_costs.beside(verdicts)


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
