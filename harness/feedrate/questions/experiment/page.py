"""The page on the experiment that the sources' figures come from: its tables beside those of runs that repeat it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import islice

import pandas as pd

from feedrate.analysis.claims import VERDICTS
from feedrate.analysis.sentences import estimate
from feedrate.pages import descriptions, markup, selection
from feedrate.pages.markup import Page
from feedrate.pages.runs import RunView
from feedrate.pages.verdicts import ClaimResult, Place, Verdicts
from feedrate.plan.claim import SOURCES, Claim
from feedrate.plan.suite import MAIN
from feedrate.questions.claims import page as claims_page
from feedrate.questions.claims.page import badge
from feedrate.questions.experiment import analysis
from feedrate.questions.runs import trust
from feedrate.schema import words
from feedrate.schema.axes import Value
from feedrate.store.marks import REFERENCE

PATH = "experiment.md"
TITLE = "The experiment, redone"
SOURCE = "IO"
"""Key of ``SOURCES``."""
MINUTES = {8: 16.0, 16: 8.0, 32: 6.0, 64: 4.0, 128: 3.0}
"""Batch size to an epoch's time in the source's tables."""
SPOKEN_MINUTES = {8: 20.0, 128: 4.0}
"""The same in its text."""
UTILIZATION = {8: 33, 16: 31, 32: 37, 64: 52, 128: 84}
"""Batch size to the GPU utilization that the source saw, in per cent."""
_LEAD = (
    "Of the documents that feedrate tests, one is an experiment: in 2019 somebody trained SRCNN on patches of DIV2K "
    "with a GTX 1080 Ti, and turned one knob after another. No spread is given. Here the same knobs are turned again, "
    "with intervals, on machines of today."
)
_KINDS = {("train", "real"): "real training", ("train", "emulated"): "emulated step"}


def page(runs: Sequence[RunView], told: Verdicts) -> Page:
    """Write the page.

    Args:
        runs: all that may be drawn on, newest first.
        told: what the records say of the sources' claims.
    """
    body = [f"# {TITLE}\n", markup.paragraph(_LEAD, "fr-lead"), *_holds(told), *_source()]
    repeated = list(islice(_repeated(runs), selection.MACHINES))
    for shown, found in repeated:
        body += _machine(shown, found)
    if not repeated:
        body.append(
            markup.paragraph(
                "No run here has a series of batch sizes. Type make sweep PROFILE=reference.", "fr-missing"
            )
        )
    if len(repeated) == selection.MACHINES:
        body.append(
            markup.paragraph(
                f"At most {selection.MACHINES} machines are shown here: first those with reference runs, then those "
                "that were measured last.",
                "fr-note",
            )
        )
    return Page(PATH, TITLE, "\n".join(body))


def _repeated(runs: Sequence[RunView]) -> Iterator[tuple[RunView, pd.DataFrame]]:
    """Of each machine and device the run that repeats most, with its contrasts; reference runs come first."""
    of_machine: dict[tuple[str, str], list[RunView]] = {}
    for shown in runs:
        if MAIN in shown.manifest.suites:
            of_machine.setdefault(shown.where, []).append(shown)
    for own in sorted(of_machine.values(), key=lambda own: not any(map(_vouched, own))):
        yield from islice(_fullest(own), 1)


def _fullest(own: Sequence[RunView]) -> Iterator[tuple[RunView, pd.DataFrame]]:
    """A machine's runs with a series of batch sizes: reference runs first, then those with most, then the newest.

    Runs are read, and contrasts made, only as far as they are asked for: both take a while.
    """
    for tier in (True, False):
        part = [shown for shown in own if _vouched(shown) is tier]
        for shown in sorted(part, key=lambda shown: -analysis.batch_sizes(shown.trials)):
            found = analysis.compared(shown.trials)
            if len(analysis.epochs(found)):
                yield shown, found


def _vouched(shown: RunView) -> bool:
    """Whether it is a reference run."""
    return shown.beside.tier == REFERENCE


def _holds(told: Verdicts) -> Iterator[str]:
    """What still holds of the source's sentences, counted place by place, then each with its verdict."""
    own = {name: claim for name, (_, claim) in told.asked.items() if SOURCE in claim.sources}
    of_place = {
        place: [told.told[name][at] for name in own if told.told[name][at].tested]
        for at, place in enumerate(told.places)
    }
    tested = {place: part for place, part in of_place.items() if part}
    yield markup.heading(2, "What still holds", "holds")
    if not tested:
        yield markup.paragraph(
            "No run here has tested the source’s claims. Type make sweep SUITE=claims.", "fr-missing"
        )
        return
    known = {each.claim.id for part in tested.values() for each in part}
    untested = [claim for name, claim in own.items() if name not in known]
    yield markup.paragraph(_tally(tested, len(own), len(known)) + _open(untested))
    rows = [
        _verdict(each, place.name if len(tested) > 1 else "")
        for name in own
        for place, part in tested.items()
        for each in part
        if each.claim.id == name
    ]
    yield f"<ul>{''.join(rows)}</ul>\n"


def _tally(tested: Mapping[Place, Sequence[ClaimResult]], asked: int, known: int) -> str:
    """How many of the sentences were tested, and how that ended in each place: a sentence has a verdict a place."""
    machines = len({place.shown.machine_id for place in tested})
    said = (
        f"Of the {asked} sentences that feedrate tests of this source, {known} have been tested on "
        f"{words.plural(machines, 'machine')}"
    )
    counts = {place: Counter(each.verdict for each in part) for place, part in tested.items()}
    listed = {
        place: words.listed(f"{count[verdict]:,} {verdict}" for verdict in VERDICTS if count[verdict])
        for place, count in counts.items()
    }
    if len(listed) == 1:
        return f"{said}: {''.join(listed.values())}."
    return " ".join([f"{said}.", *(f"On {place.name}: {part}." for place, part in listed.items())])


def _open(untested: Sequence[Claim]) -> str:
    """Why the other sentences have no verdict."""
    cuda = sum(claim.needs in ("cuda", "gpus") for claim in untested)
    others = len(untested) - cuda
    said = [f"{cuda} that {'needs' if cuda == 1 else 'need'} a CUDA device"] if cuda else []
    said += [f"{others} that no run here has measured"] if others else []
    return f" Not tested: {words.listed(said)}." if said else ""


def _verdict(told: ClaimResult, place: str) -> str:
    link = markup.link(PATH, f"{claims_page.PATH}#claim-{told.claim.id}", told.claim.says)
    where = f"{place}: " if place else ""
    return f"<li>{badge(told.verdict)} {link} {escape(where + told.sentence)}</li>"


def _source() -> Iterator[str]:
    """The source's own figures, which contradict each other."""
    rows = [
        (
            str(batch),
            f"{minutes:g} min",
            f"{SPOKEN_MINUTES[batch]:g} min" if batch in SPOKEN_MINUTES else "–",
            words.number(minutes / MINUTES[8]),
            f"{UTILIZATION[batch]}\u00a0%",
        )
        for batch, minutes in MINUTES.items()
    ]
    yield markup.heading(2, "What the source found", "source")
    yield markup.paragraph(
        f"{SOURCES[SOURCE].title} ({SOURCES[SOURCE].about}). Its text and its tables disagree: both are given."
    )
    columns = ("Batch size", "An epoch, its tables", "An epoch, its text", "Against batches of 8", "GPU utilization")
    yield markup.table("Figures of the source", columns, rows, columns, stack=True)


def _machine(shown: RunView, found: pd.DataFrame) -> Iterator[str]:
    name, name_id = shown.name, shown.mark
    run = shown.manifest
    yield markup.heading(2, name, f"machine-{name_id}")
    link = markup.link(PATH, shown.page, f"run {run.run_id}")
    day, again = escape(descriptions.day(run.started_at)), markup.code(run.command)
    yield f'<p class="fr-origin">{day}, {link}, {trust.badge(PATH, shown)}; {again} repeats it</p>\n'
    yield from _grid(
        analysis.epochs(found),
        "batch_size",
        "How long an epoch takes, against batches of 8",
        "Less than 1 is shorter. The source’s tables: "
        + words.listed(f"{words.number(MINUTES[batch] / MINUTES[8])} at {batch}" for batch in analysis.BATCHES[1:])
        + ".",
        f"epochs-{name_id}",
    )
    yield from _grid(
        analysis.turned(found, "storage_format", "png", "lmdb"),
        "storage_format",
        "LMDB against a folder of PNG files",
        "How many times as many samples a second. The source: better, “but not so much”.",
        f"lmdb-{name_id}",
    )
    for a, b in ((0, 8), (8, 16)):
        yield from _grid(
            analysis.turned(found, "num_workers", a, b),
            "num_workers",
            f"{b} workers against {'none' if a == 0 else a}",
            "How many times as many samples a second.",
            f"workers-{b}-{name_id}",
        )
    pinned = analysis.turned(found, "pin_memory", a=False, b=True)
    if len(pinned):
        yield from _grid(
            pinned,
            "pin_memory",
            "Pinned memory against pageable",
            "How many times as many samples a second. The source: slower at 16 pixels, faster at 64.",
            f"pinned-{name_id}",
        )
    elif run.device == "cuda":
        yield markup.paragraph("This run gives no ratio of pinned to pageable memory.", "fr-note")
    else:
        yield markup.paragraph("Pinned memory needs a CUDA device; this run was made on the CPU.", "fr-note")


def _grid(found: pd.DataFrame, axis: str, title: str, what: str, name: str) -> Iterator[str]:
    """A table of ratios: settings below each other, batch sizes side by side."""
    if not len(found):
        return
    batches = sorted(found["batch_size"].astype(int).unique())
    names = analysis.held(axis)
    rows = [
        (*_setting(dict(zip(names, key, strict=True))), *_ratios(row, batches))
        for key, row in analysis.by_batch(found, axis).items()
    ]
    columns = ["What ran", "Setting", *(f"batch {batch}" for batch in batches), "n"]
    yield markup.heading(3, title, name)
    yield markup.paragraph(f"{what} In brackets the 95\u00a0% interval; n counts blocks.", "fr-note")
    yield markup.table(title, columns, rows, columns[2:], stack=True)


def _setting(values: Mapping[str, Value | None]) -> tuple[str, str]:
    kind = _KINDS.get((str(values["mode"]), str(values["step"])), "the loader alone")
    if kind == "emulated step":
        kind += f", {values['step_ms']:g} ms"
    parts = [str(values["workload"]), f"{values['patch_size']} px", str(values.get("storage_format") or "")]
    if "num_workers" in values:
        parts.append(words.plural(int(values["num_workers"] or 0), "worker"))
    if values.get("pin_memory"):
        parts.append("pinned")
    return kind, escape(", ".join(filter(None, parts)))


def _ratios(row: Mapping[int, pd.Series], batches: Sequence[int]) -> list[str]:
    counts = sorted({int(row[batch]["n"]) for batch in row})
    n = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return [estimate(row[batch].to_dict(), "") if batch in row else "–" for batch in batches] + [n]
