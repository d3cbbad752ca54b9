"""What the stored runs found, in five sentences for whoever reads no more: for the front page and for the README.

Every number is made from records: of the newest run that asks what better settings gain, of the claims of the machine
that has tested most of them, and of the newest record of ``make bench``. Which question a sentence is of is fixed, and
does not depend on the answer. Each sentence names its machine, and the runs behind it with their grades.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from feedrate.analysis.claim_values import label, settings_text
from feedrate.analysis.estimate import RATIO, Estimate
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.estimators import frame, summary
from feedrate.analysis.sentences import estimate, worst
from feedrate.analysis.summary import EMULATED, TRAIN
from feedrate.pages import descriptions
from feedrate.pages.runs import RunView
from feedrate.pages.tasks import gain_sentence
from feedrate.pages.verdicts import ClaimResult, Verdicts
from feedrate.plan.claim import Effect, terms
from feedrate.questions.accuracy import page as accuracy_page
from feedrate.questions.claims import page as claims_page
from feedrate.schema import words
from feedrate.schema.axes import PHOTOGRAPHS
from feedrate.schema.metrics import METRICS
from feedrate.store.bench_record import BenchRecord

STORED = "lmdb-over-png"
"""The claim that tells what storing decoded pixels is worth."""
_FIXED = "This task comes first in a fixed order, whatever it gains"
_SPOKEN = {
    "confirmed": ("holds", "hold"),
    "depends": ("depends on the setting", "depend on the setting"),
    "refuted": ("does not hold", "do not hold"),
    "no difference": ("makes no difference", "make no difference"),
    "inconclusive": ("is open", "are open"),
}
"""Verdicts as a count of sentences has them: one, several."""
_SO = {
    "confirmed": "so how samples are stored, pixels and container together, matters",
    "depends": "which depends on the setting",
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
    grades: tuple[str, ...] = ()
    """Of the runs, A to D."""

    @property
    def source(self) -> str:
        """What it was made from, in words: ``runs X (grade B) and Y (grade C)``."""
        return f"{self.kind}{'s' if len(self.made_from) > 1 else ''} {self.names()}"

    def names(self, form: str = "{}") -> str:
        """List what it was made from, each name in a form, and a run with its grade."""
        grades = [f" (grade {grade})" for grade in self.grades] or [""] * len(self.made_from)
        return words.listed(form.format(name) + grade for name, grade in zip(self.made_from, grades, strict=True))


def _from(text: str, page: str, views: Sequence[RunView]) -> Sentence:
    """A finding that is made from runs."""
    ids, grades = tuple(view.manifest.run_id for view in views), tuple(view.grade.letter for view in views)
    return Sentence(text, page, ids, grades=grades)


def findings(runs: Sequence[RunView], verdicts: Verdicts, benches: Sequence[BenchRecord]) -> list[Sentence]:
    """Say what was found by runs that ask which settings suit a machine, newest first, and by ``make bench``."""
    gain = next(filter(None, map(_gained, runs)), None)
    return [*([gain] if gain else []), *_claimed(verdicts), *_accurate(benches)]


def _gained(view: RunView) -> Sentence | None:
    """What better settings gain before the first task of a run: on a CPU an emulated step, else real training."""
    kinds = (TRAIN, EMULATED) if view.manifest.device != "cpu" else (EMULATED, TRAIN)
    rows = [row for kind in kinds for row in rows_of(view.headlines) if row["kind"] == kind and row["gain"] is not None]
    if not rows or not words.known(rows[0]["gain"]["lo"]):
        return None
    where = descriptions.on(view.manifest.machine, view.manifest.device)
    return _from(f"On {where}: {gain_sentence(rows[0])}. {_FIXED}.", view.page, [view])


def _claimed(verdicts: Verdicts) -> Iterator[Sentence]:
    """What the place says of the claims that has tested most of them; of several the one that was measured last."""
    own = [[part[at] for part in verdicts.results.values() if part[at].tested] for at in range(len(verdicts.places))]
    tested = max(own, key=lambda mine: (len(mine), max(map(_started, mine), default="")), default=[])
    if not tested:
        return
    where = f"On {descriptions.on(tested[0].view.manifest.machine, tested[0].device)}"
    for stored in tested:
        if stored.claim.id == STORED and words.known(stored.row["ratio"]):
            yield _from(f"{where}: {_stored(stored)}.", f"{claims_page.PATH}#claim-{STORED}", _views([stored]))
    counts = Counter(each.verdict for each in tested)
    said = words.listed(
        f"{count} {verbs[count > 1]}" for verdict, verbs in _SPOKEN.items() if (count := counts[verdict])
    )
    asked = f"of {words.plural(len(tested), 'tested sentence')} on faster training{_samples(tested, ' (samples: {})')}"
    yield _from(f"{where}: {asked}, {said}.", claims_page.PATH, _views(tested))
    if falls := [each for each in tested if each.verdict == "refuted"]:
        listed = words.listed(f"“{each.claim.says.rstrip('.')}” ({_refuting(each)})" for each in falls)
        yield _from(f"{where}: what does not hold is {listed}.", claims_page.PATH, _views(falls))


def _started(result: ClaimResult) -> str:
    return result.view.manifest.started_at


def _views(results: Sequence[ClaimResult]) -> list[RunView]:
    """The runs that claims were tested by, newest first."""
    views = {view.manifest.run_id: view for each in results for view in each.views}
    return sorted(views.values(), key=lambda view: (view.manifest.started_at, view.manifest.run_id), reverse=True)


def _stored(result: ClaimResult) -> str:
    """What decoded pixels are worth before a step, at worst, and to the loader alone."""
    cases = [case for case in result.cases if case.get("role") == "case"]
    mean = f", averaged over {words.plural(len(cases), 'setting')}" if len(cases) > 1 else ""
    least = f", at worst {worst(result.row)}" if worst(result.row) else ""
    beside = [f"{aside['label']} {estimate(aside)}" for aside in result.asides if words.known(aside["ratio"])]
    return (
        f"before an emulated step of 10 ms, training on decoded pixels in LMDB is {_ratio(result.row)} as fast as on "
        f"PNG files ({_samples([result], '{}')}{mean}{least}), "
        f"{_SO[result.verdict]}{''.join(f'; {text}' for text in beside)}"
    )


def _samples(result: Sequence[ClaimResult], text: str) -> str:
    """The workloads whose samples were read, put into a text; empty where none were."""
    workloads = sorted({name for each in result for name in _workloads(each)})
    return text.format(words.listed(workloads)) if workloads else ""


def _workloads(result: ClaimResult) -> set[str]:
    """The workloads of a claim's cells: of those that stand in for another, the one that its run has."""
    if result.claim.effect is None:
        return set()
    have = set(result.view.trials["cell_id"])
    tried = (terms(result.claim.effect, result.device, photographs) for photographs in PHOTOGRAPHS)
    wanted = next((cells for cells in tried if all(term.cell_id in have for term in cells)), [])
    return {str(term.cell["workload"]) for term in wanted}


def _refuting(result: ClaimResult) -> str:
    """The number that refutes a claim, with spread and n, and what it is the ratio of."""
    n = int(result.row["n"])
    if result.claim.effect is None:
        return f"{words.plural(n, 'check')} saw otherwise"
    if fallen := [case for case in result.cases if case.get("role") == "also" and case["verdict"] == "refuted"]:
        return f"{fallen[0]['case']}: {_ratio(fallen[0])}"
    effect = result.claim.effect
    count, figure = len(effect.cases), None if effect.level else effect.figure
    several = "" if count < 2 else f", averaged over {words.plural(count, 'setting')}"
    several += f", at worst {worst(result.row)}" if worst(result.row) else ""
    several += f", where the source’s figure comes to {words.number(figure)}" if figure else ""
    return f"{_compared(effect, _ratio(result.row))}{several}"


def _ratio(row: Mapping[str, Any]) -> str:
    return Estimate.of_row(row, RATIO, "ratio").with_n()


def _compared(effect: Effect, ratio: str) -> str:
    metric = METRICS[effect.metric]
    first, last = settings_text(effect.steps[0][1]), settings_text(effect.steps[-1][1])
    if effect.against:
        every = [*effect.cases, *effect.against]
        sides = [
            " or ".join(label(case, every) or "the default" for case in part) for part in (effect.cases, effect.against)
        ]
        return f"the effect on {metric.noun} with {sides[0]} is {ratio} that with {sides[1]}"
    if effect.along:
        return f"{metric.noun} changes by a factor of {ratio} for every doubling of {effect.along}"
    if effect.level:
        return f"{metric.noun} is {ratio} the source’s figure of {words.number(effect.figure or 1)}"
    if metric.rate:
        return f"{last} is {ratio} as fast as {first}"
    return f"with {last} {metric.noun} is {ratio} what it is with {first}"


def _accurate(benches: Sequence[BenchRecord]) -> Iterator[Sentence]:
    """How far to trust the throughput itself."""
    witnessed = [bench for bench in benches if bench.witnessed]
    for bench in sorted(witnessed, key=lambda bench: bench.started_at)[-1:]:
        errors, where = summary(frame(bench.witnessed)), descriptions.on(bench.machine, bench.device)
        if said := accuracy_page.own_error(errors, where):
            yield Sentence(said, accuracy_page.PATH, (bench.name,), "record")
