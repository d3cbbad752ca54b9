"""The home page: what this is, three doors, the figure that tells the story, the numbers that matter, what to type.

What the stored runs found, in five sentences for whoever reads no more: for the front page and for the README.

Every number of them is made from records: of the newest run in which better settings gain something, of the claims of
the machine that has tested most of them, and of the newest record of ``make bench``. Each sentence names its machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape

from feedrate.analysis.claims import label
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.estimators import frame, summary
from feedrate.analysis.sentences import settings_text
from feedrate.charts.figure import EMULATED, TRAIN, Figure
from feedrate.pages import descriptions, markup
from feedrate.pages.headlines import answer, gained, headline_table, over_blocks
from feedrate.pages.markup import Page, Placed
from feedrate.pages.runs import RunView, draw, newest, place
from feedrate.pages.verdicts import ClaimResult, Verdicts
from feedrate.plan.claim import PHOTOGRAPHS, Effect, terms
from feedrate.plan.suite import MAIN, Suite
from feedrate.questions.accuracy import page as accuracy_page
from feedrate.questions.claims import page as claims_page
from feedrate.questions.machines import page as machines_page
from feedrate.questions.reference import page as reference_page
from feedrate.questions.runs import trust
from feedrate.schema import words
from feedrate.schema.metrics import METRICS
from feedrate.store.bench_record import BenchRecord

STORED = "lmdb-over-png"
"""The claim that tells what storing decoded pixels is worth."""
_SPOKEN = {
    "confirmed": ("holds", "hold"),
    "refuted": ("does not hold", "do not hold"),
    "no difference": ("makes no difference", "make no difference"),
    "inconclusive": ("is open", "are open"),
}
"""Verdicts as a count of sentences has them: one, several."""
_SO = {
    "confirmed": "so how samples are stored, pixels and container together, matters",
    "refuted": "so storing decoded pixels does not pay",
    "no difference": "which makes no difference",
    "inconclusive": "which may be chance",
}
"""What follows from the ratio of ``STORED``, by its verdict."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One finding."""

    text: str
    """Plain text, with machine, spread and n."""
    page: str
    """Path of the page that has more of it."""
    made_from: tuple[str, ...]
    """Ids of the runs, newest first; or the name of the record."""
    kind: str = "run"
    """What these are: run or record."""

    @property
    def source(self) -> str:
        """What it was made from, in words."""
        return f"{self.kind}{'s' if len(self.made_from) > 1 else ''} {words.listed(self.made_from)}"


def findings(runs: Sequence[RunView], told: Verdicts, benches: Sequence[BenchRecord]) -> list[Sentence]:
    """Say what was found; what no record tells is left out.

    Args:
        runs: of suites that ask which settings suit a machine, newest first.
        told: what the records say of the sources' claims.
        benches: what ``make bench`` found.
    """
    gains = filter(None, map(_gained, runs))
    return [*([first] if (first := next(gains, None)) else []), *_claimed(told), *_accurate(benches)]


def _gained(shown: RunView) -> Sentence | None:
    """What better settings of the loader gain, where that is most; None where nothing is clear."""
    rows = [row for row in rows_of(shown.headlines) if row["gain"] is not None]
    clear = [row for row in rows if row["kind"] in (EMULATED, TRAIN) and row["gain"]["verdict"] == "faster"]
    if not clear:
        return None
    row = max(clear, key=lambda row: float(row["gain"]["lo"]))
    where = descriptions.on(shown.manifest.machine, shown.manifest.device)
    return Sentence(f"On {where}: {gained(row)}.", shown.page, (shown.manifest.run_id,))


def _claimed(told: Verdicts) -> Iterator[Sentence]:
    """What the place says of the claims that has tested most of them; of several the one that was measured last."""
    own = [[part[at] for part in told.told.values() if part[at].tested] for at in range(len(told.places))]
    tested = max(own, key=lambda mine: (len(mine), max(map(_started, mine), default="")), default=[])
    if not tested:
        return
    where = f"On {descriptions.on(tested[0].shown.manifest.machine, tested[0].device)}"
    for stored in tested:
        if stored.claim.id == STORED and words.known(stored.row["ratio"]):
            yield Sentence(f"{where}: {_stored(stored)}.", f"{claims_page.PATH}#claim-{STORED}", _runs([stored]))
    counts = Counter(each.verdict for each in tested)
    said = words.listed(
        f"{count} {verbs[count > 1]}" for verdict, verbs in _SPOKEN.items() if (count := counts[verdict])
    )
    asked = f"of {words.plural(len(tested), 'tested sentence')} on faster training{_samples(tested, ' (samples: {})')}"
    yield Sentence(f"{where}: {asked}, {said}.", claims_page.PATH, _runs(tested))
    if falls := [each for each in tested if each.verdict == "refuted"]:
        listed = words.listed(f"“{each.claim.says.rstrip('.')}” ({_refuting(each)})" for each in falls)
        yield Sentence(f"{where}: what does not hold is {listed}.", claims_page.PATH, _runs(falls))


def _started(told: ClaimResult) -> str:
    return told.shown.manifest.started_at


def _runs(told: Sequence[ClaimResult]) -> tuple[str, ...]:
    """The runs that claims were tested by, newest first."""
    return tuple(dict.fromkeys(each.shown.manifest.run_id for each in sorted(told, key=_started, reverse=True)))


def _stored(told: ClaimResult) -> str:
    mean = f"averaged over {words.plural(len(told.cases), 'setting')}, from memory and from the disk"
    return (
        f"decoded pixels in LMDB are read {words.number(told.row['ratio'])} times as fast as PNG files "
        f"({over_blocks(told.row)}; {_samples([told], '{}, ')}{mean}), {_SO[told.verdict]}"
    )


def _samples(told: Sequence[ClaimResult], text: str) -> str:
    """The workloads whose samples were read, put into a text; empty where none were."""
    found = sorted({name for each in told for name in _workloads(each)})
    return text.format(words.listed(found)) if found else ""


def _workloads(told: ClaimResult) -> set[str]:
    """The workloads of a claim's cells: of those that stand in for another, the one that its run has."""
    if told.claim.effect is None:
        return set()
    have = set(told.shown.trials["cell_id"])
    tried = (terms(told.claim.effect, told.device, photographs) for photographs in PHOTOGRAPHS)
    wanted = next((cells for cells in tried if all(term.cell_id in have for term in cells)), [])
    return {str(term.cell["workload"]) for term in wanted}


def _refuting(told: ClaimResult) -> str:
    """The number that refutes a claim, with spread and n, and what it is the ratio of."""
    n = int(told.row["n"])
    if told.claim.effect is None:
        return f"{words.plural(n, 'check')} saw otherwise"
    several = "" if len(told.cases) < 2 else f", averaged over {words.plural(len(told.cases), 'setting')}"
    return f"{_findings_compared(told.claim.effect, words.number(told.row['ratio']))}{several}; {over_blocks(told.row)}"


def _findings_compared(effect: Effect, ratio: str) -> str:
    metric = METRICS[effect.metric]
    first, last = settings_text(effect.steps[0][1]), settings_text(effect.steps[-1][1])
    if effect.against:
        every = [*effect.cases, *effect.against]
        sides = [
            " or ".join(label(case, every) or "the default" for case in part) for part in (effect.cases, effect.against)
        ]
        return f"the effect on {metric.noun} with {sides[0]} is {ratio} times that with {sides[1]}"
    if effect.along:
        return f"{metric.noun} changes by a factor of {ratio} for every doubling of {effect.along}"
    if metric.rate:
        return f"{last} is {ratio} times as fast as {first}"
    return f"with {last} {metric.noun} is {ratio} times what it is with {first}"


def _accurate(benches: Sequence[BenchRecord]) -> Iterator[Sentence]:
    """How far to trust the throughput itself."""
    witnessed = [bench for bench in benches if bench.witnessed]
    for bench in sorted(witnessed, key=lambda bench: bench.started_at)[-1:]:
        if said := accuracy_page.ours(summary(frame(bench.witnessed)), descriptions.on(bench.machine, bench.device)):
            yield Sentence(said, accuracy_page.PATH, (bench.name,), "record")


PATH = "index.md"
FEATURED = 3
"""Machines whose numbers stand on the front: those that were measured last."""
_TITLE = "How fast can a machine feed its accelerator?"
_LEAD = (
    "feedrate sweeps the settings that people argue about (batch size, workers, pinned memory, prefetching, storage "
    "format) over real PyTorch training loops, and says which stage starves the accelerator, and by how much. Every "
    "number has its spread, its machine and the command that repeats it."
)
_COMMANDS = (
    ("make sweep", "measure this machine: about five minutes after set-up; it ends with the best settings"),
    ("make serve", "build these pages from your own results, and show them"),
)
_MORE = (
    ("make sweep DATA=photos/", "measure with your own photographs"),
    ("make sweep SUITE=storage DATA=photos/", "which storage format they should live in"),
    ("make sweep SUITE=claims", "what of the usual advice holds on this machine"),
)
EXPLORE = "explore.md"
"""As ``pages.explore`` has it, which draws on this page."""
_OPENING = "defaults"
_OPENING_PANELS = 2


def leading(runs: Sequence[RunView]) -> list[RunView]:
    """Keep the runs that speak for their machine and device: of the main suite, or where it has none, of any other."""
    asking = [shown for shown in runs if shown.asks]
    main = {shown.where for shown in asking if MAIN in shown.suites}
    return [shown for shown in asking if MAIN in shown.suites or shown.where not in main]


def opening(runs: Sequence[RunView]) -> tuple[RunView, Figure] | None:
    """Pick the figure that opens the site and the README: defaults against best, from the newest run that has it."""
    for shown in leading(runs):
        figure = draw(_OPENING, shown)
        if figure.panels:
            return shown, replace(figure, panels=figure.panels[:_OPENING_PANELS])
    return None


def page(
    runs: Sequence[RunView],
    suites: Sequence[tuple[str, str, Suite]],
    told: Verdicts,
    known: int | None = None,
    benches: Sequence[BenchRecord] = (),
) -> Page:
    """Write the home page.

    Args:
        runs: all runs, newest first; none is fine.
        suites: name, page and content of each suite that has results.
        told: what the runs say of the claims.
        known: how many machines there are, where that is more than have a run here.
        benches: what ``make bench`` found.
    """
    known = len({shown.machine_id for shown in runs}) if known is None else known
    body = [f"# {_TITLE}\n", markup.paragraph(_LEAD, "fr-lead")]
    speaking = leading(runs)
    figures: dict[str, Placed] = {}
    if found := opening(speaking):
        shown, figure = found
        placed = place(figure, "opening", PATH, shown.origin)
        figures[placed.name] = placed
        picture = (
            f'<h2 id="opening-figure">{escape(figure.title)}</h2>\n'
            f"{_origin(shown, shown.name)}{markup.slot(placed.name)}\n{_explore()}"
        )
        body.append(f'<div class="fr-hero">{_doors(told, known)}<div>{picture}</div></div>\n')
    else:
        body.append(_doors(told, known))
    body += _found(findings(speaking, told, benches))
    body += _numbers(speaking, known) if speaking else [_nothing(known)]
    body += _tune(suites)
    if suites:
        body += [markup.heading(2, "The questions", "questions"), _questions(suites)]
    return Page(PATH, _TITLE, "\n".join(body), figures, hide=("navigation", "toc"))


def _found(sentences: Sequence[Sentence]) -> list[str]:
    """The findings, each with a way to what it was made from."""
    items = "".join(f"<li>{escape(each.text)} {markup.link(PATH, each.page, each.source)}</li>" for each in sentences)
    return markup.section("What was found", f'<ul class="fr-found">{items}</ul>\n' if items else "", name="found")


def _explore() -> str:
    return (
        f'<p class="fr-note">{markup.link(PATH, EXPLORE, "Explore")} draws every number of every run by any axis.</p>\n'
    )


def _doors(told: Verdicts, known: int) -> str:
    doors = (
        ("#tune", "Tune my machine", "Two commands measure it and say which settings feed it best."),
        (machines_page.INDEX, "Compare hardware", _compared(known)),
        (claims_page.PATH, "Check a claim", _tested(told)),
    )
    items = "".join(
        f"<li>{markup.link(PATH, path, title)}<span>{escape(said)}</span></li>" for path, title, said in doors
    )
    return f'<ul class="fr-doors">{items}</ul>\n'


def _compared(count: int) -> str:
    if not count:
        return "No machine has been measured yet."
    if count == 1:
        return "One machine so far: what suits it, and what holds it back."
    return f"{count:,} machines: what suits each, and what holds it back."


def _tested(told: Verdicts) -> str:
    asked = f"{len(told.told)} statements on what makes training faster"
    machines_asked = len({place.shown.machine_id for place in told.places})
    if not machines_asked:
        return f"{asked}; no run has tested them yet."
    tested = f"{asked}; {told.frame()['claim'].nunique()} tested so far"
    if machines_asked > 1:
        return f"{tested}, on {machines_asked} machines."
    found = ", ".join(filter(None, (_decided(told, at) for at in range(len(told.places)))))
    return f"{tested}, on one machine{': ' if found else ''}{found}."


def _decided(told: Verdicts, at: int) -> str:
    """How many claims hold at a place and how many do not; with its device where the machine has another too."""
    counts = {verdict: count for verdict, count in told.tally(at).items() if verdict in ("confirmed", "refuted")}
    said = words.listed(f"{count} {verdict}" for verdict, count in counts.items())
    return f"{said} on {told.places[at].device.upper()}" if said and told.places[at].several else said


def _origin(shown: RunView, *before: str) -> str:
    run = markup.link(PATH, shown.page, f"run {shown.manifest.run_id}")
    said = ", ".join(
        [*before, descriptions.day(shown.manifest.started_at), words.plural(shown.manifest.blocks, "block")]
    )
    return f'<p class="fr-origin">{markup.entities(said)}, {run}, {trust.badge(PATH, shown)}</p>\n'


def _numbers(runs: Sequence[RunView], known: int) -> list[str]:
    body = [markup.heading(2, "The numbers", "numbers")]
    speaking = newest(runs)
    machine_ids = list(dict.fromkeys(shown.machine_id for shown in speaking))[:FEATURED]
    for shown in (each for each in speaking if each.machine_id in machine_ids):
        table = headline_table(shown.headlines)
        body += [markup.heading(3, shown.name, f"numbers-{shown.mark}"), _origin(shown)]
        body += [markup.paragraph(answer(shown.headlines)), table] if table else [markup.paragraph(_without(shown))]
        more = markup.link(PATH, shown.machine_page, "Everything about this machine")
        body.append(f'<p class="fr-note">{more}</p>\n')
    if known > len(machine_ids):
        rest = markup.link(PATH, machines_page.INDEX, f"All {known:,} machines")
        many = words.plural(len(machine_ids), "machine")
        body.append(f"<p>These are the numbers of the {many} measured last. {rest}</p>\n")
    body.append(
        markup.paragraph(
            "n counts blocks. The best of many settings is picked by its own estimate, so that estimate is a little "
            "too good; the comparison with the defaults is paired block by block.",
            "fr-note",
        )
    )
    return body


def _without(shown: RunView) -> str:
    """Why a run has no table: stages alone and cross-checks are no tasks."""
    if shown.manifest.outcomes.get("ok"):
        return "This run has no task whose best setting could be told; its page has what it measured."
    return "No trial of this run ended well; its page lists why."


def _nothing(known: int) -> str:
    said = (
        "<strong>No run here asks which settings suit a machine.</strong> Type <code>make sweep</code>"
        if known
        else "<strong>There are no results here yet.</strong> Type <code>make sweep</code>"
    )
    return (
        f'<div class="fr-nothing"><p>{said}: it takes about five minutes and leaves a folder under '
        "<code>results/</code>. Build the site again and its numbers are here.</p></div>\n"
    )


def _tune(suites: Sequence[tuple[str, str, Suite]]) -> list[str]:
    """What to type, and where the answer stands for machines that were measured."""
    how = markup.link(PATH, reference_page.CONTRIBUTE_PATH, "How to run it, and how to add your machine here")
    asked = [markup.link(PATH, path, content.question) for name, path, content in suites if name == MAIN]
    answered = f"What came out on machines that were measured: {asked[0]} " if asked else ""
    return [
        markup.heading(2, "Tune my machine", "tune"),
        markup.commands(_COMMANDS),
        markup.paragraph("That is all on Linux with Python 3.11 or newer, make and git. Then, for instance:"),
        markup.commands(_MORE),
        f"<p>{answered}{how}.</p>\n",
    ]


def _questions(suites: Sequence[tuple[str, str, Suite]]) -> str:
    items = "".join(f"<li>{markup.link(PATH, path, suite.question)}</li>" for _, path, suite in suites)
    return f'<ul class="fr-questions">{items}</ul>\n'
