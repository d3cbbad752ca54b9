"""What ``feedrate tune`` says: the setting, what it gains, how far from the best it can be, and what it takes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from feedrate.analysis.crossfit import Gain, over
from feedrate.attach.report import caller_line
from feedrate.attach.space import Setting, gib
from feedrate.attach.trials import SEEN, Trial
from feedrate.attach.tune import Session
from feedrate.plan.search import GRID_BLOCKS, Outcome, Search
from feedrate.plan.tuning import manifest_entry, sentences
from feedrate.schema.words import listed, number, per_cent, plural, times
from feedrate.store.manifest import Tuned


@dataclass(frozen=True, slots=True)
class Result:
    """What a search found."""

    search: Search[Setting]
    outcome: Outcome[Setting]
    present: Setting
    gain: Gain | None
    """Over the present setting; None where that is the recommended one, or no block ran with both."""
    entry: Tuned
    """What its run says of it, with settings as they are written in caller_line of cells."""
    excluded: dict[str, int]
    """Reason to the number of settings that do not fit the machine for it."""
    failed: dict[Setting, str]
    memory_bytes: int
    shm_bytes: int


def result(session: Session) -> Result | None:
    """Put together what a search found; None where no trial ended well."""
    tuning = session.tuning
    search, present = tuning.search, tuning.present
    if search is None or present is None or not search.measured:
        return None
    outcome = search.outcome()
    memory, shared = tuning.machine.takes(outcome.recommended)
    gain = over({setting: search.logs[setting] for setting in search.measured}, present, outcome.recommended)
    ratio = gain.ratio if gain and gain.ratio.known else None
    ends = (round(ratio.value, 4), round(ratio.low, 4), round(ratio.high, 4)) if ratio else None
    settings = len(search.settings) + len(set(tuning.excluded) - set(search.settings))
    return Result(
        search=search,
        outcome=outcome,
        present=present,
        gain=gain,
        entry=manifest_entry(search, str, settings=settings, trials=len(tuning.tried), gain=ends),
        excluded=dict(Counter(tuning.excluded.values())),
        failed={trial.setting: trial.error for trial in tuning.tried if trial.error},
        memory_bytes=memory,
        shm_bytes=shared,
    )


def text(session: Session, result: Result | None, command: str) -> Iterator[tuple[str, str]]:
    """Say it in about ten lines: what each is about, and the line."""
    tuning = session.tuning
    if result is None:
        yield "", f"{command} {session.ended.report.status}: nothing was tuned"
        if tuning.ended != "interrupted":
            yield "note", "no trial ended well" if tuning.made else _untuned(session)
        if tuning.ended in ("short", "fails", "hung") or (tuning.ended == "budget" and tuning.made):
            yield "note", _ENDED[tuning.ended]
        yield from (("note", note) for note in session.ended.report.notes)
        return
    entry = result.entry
    grid = f"a grid of {entry.settings} settings × {GRID_BLOCKS} repetitions takes {entry.settings * GRID_BLOCKS}"
    yield "", f"{command} tuned in {session.took_s:.0f} s by {plural(entry.trials, 'measurement')}; {grid}"
    yield "set", f"{result.outcome.recommended}  at {caller_line(tuning.made)}"
    yield "gain", _said_gain(result)
    yield from (("bound", sentence) for sentence in sentences(entry))
    if (spread := _spread_pct(result)) is not None:
        yield "noise", f"measurements of one setting vary by {per_cent(spread, 1)} (standard deviation)"
    for reason, count in (dict(result.search.aside()) | result.excluded).items():
        yield "set aside", f"{plural(count, 'setting')}: {reason}"
    if audits := list(result.search.audits()):
        text = ", ".join(
            f"{audit.setting} {times(math.exp(-audit.measured))} (by the model {times(math.exp(-audit.predicted))})"
            for audit in audits
        )
        yield "checked", f"set aside, but measured all the same, against the leader: {text}"
    for error in dict.fromkeys(result.failed.values()):
        yield "failed", f"{', '.join(str(setting) for setting, why in result.failed.items() if why == error)}: {error}"
    workers, memory = plural(result.outcome.recommended.num_workers, "worker"), gib(result.memory_bytes)
    yield "takes", f"{workers}, about {memory} of memory, {gib(result.shm_bytes)} of it in /dev/shm"
    yield "paste", snippet(result.outcome.recommended, result.present)
    if not tuning.trained:
        yield "note", "no gradients were computed over this loader: it evaluates, or the script only infers"
    if note := _ENDED.get(tuning.ended):
        yield "note", note
    yield "note", "batches were repeated and their order changed: do not keep what this run trained"


def _spread_pct(result: Result) -> float | None:
    """What measurements of one setting vary by within a block; None where few settings ran twice."""
    spread = result.search.evidence.spread
    return 100 * math.expm1(spread.sd) if spread.freedom >= SEEN else None


_ENDED = {
    "budget": "the time was used up: a larger --budget tells more",
    "short": "the script ends before a trial has ended: give it more epochs, or a larger set of samples",
    "fails": "the script fails when it is started again: its own last lines say why",
    "interrupted": "the search was interrupted: this is what the trials said by then",
    "hung": "trials hung again and again: this is what the others said by then",
}
"""Why a search ended before all was known."""


def _untuned(session: Session) -> str:
    """Why there was no loader to tune."""
    if session.ended.report.loader is None:
        return "no DataLoader gave batches for two seconds while it ran"
    return (
        "its loader is not PyTorch's own (torchdata's StatefulDataLoader?), or it trained for less than two seconds, "
        "or computed no gradients and ended within twenty"
    )


def _said_gain(result: Result) -> str:
    if result.present == result.outcome.recommended:
        return "the present setting is " + ("the one" if result.outcome.settled else "the best that was tried")
    if result.present not in result.search.measured:
        return f"not known: the present {result.present} never ended well"
    if result.gain is None or not result.gain.ratio.known:
        means = result.search.evidence.means
        ratio = math.exp(means[result.present] - means[result.outcome.recommended])
        return (
            f"about {times(ratio)} over the present {result.present}; too few repetitions ran with both for an interval"
        )
    gain = result.gain.ratio.text(write="{:.2f}".format)
    return f"{gain} over the present {result.present}; in brackets the 95 % interval"


def standing(outcome: Outcome[Setting]) -> str:
    """Say where a search stands."""
    if outcome.settled:
        return f"{outcome.recommended}; no other setting seems better"
    return f"{outcome.recommended}; others may still be better"


def line(tried: Trial) -> str:
    """Say what a trial found."""
    if tried.error:
        return f"{tried.setting}: {tried.error}"
    return f"{tried.setting}: {number(1e9 * tried.told['steps'] / tried.told['wall_ns'])} steps/s"


def snippet(setting: Setting, present: Setting | None) -> str:
    """Write the settings as arguments to paste, and which of the present ones are to go."""
    given = ", ".join(f"{name}={value!r}" for name, value in setting.arguments().items())
    parts = [f"DataLoader(..., {given})"]
    before = present.arguments() if present else {}
    before |= {"prefetch_factor": None} if present and present.num_workers and not setting.num_workers else {}
    if gone := [name for name in before if name not in setting.arguments()]:
        parts.append(f"leave out {listed(gone)}")
    if setting.persistent_workers:
        parts.append("make it once, before the loop over epochs")
    if setting.non_blocking or (present and present.non_blocking):
        parts.append(f"batch.to(device, non_blocking={bool(setting.non_blocking)})")
    return "; ".join(parts)


def as_object(session: Session, result: Result | None) -> dict[str, Any]:
    """The same for a machine."""
    if result is None:
        return {"recommended": None}
    return {
        "recommended": result.outcome.recommended.given(),
        "present": result.present.given(),
        "gain": result.gain.ratio.row() if result.entry.gain and result.gain else None,
        "bound_pct": 100 * math.expm1(result.outcome.bound) if math.isfinite(result.outcome.bound) else None,
        "known": result.outcome.settled,
        "compared": result.outcome.compared,
        "unseen": result.entry.unseen,
        "model_error_pct": result.entry.model_error_pct,
        "spread_pct": _spread_pct(result),
        "trials": result.entry.trials,
        "settings": result.entry.settings,
        "took_s": session.took_s,
        "set_aside": dict(result.search.aside()),
        "excluded": result.excluded,
        "memory_bytes": result.memory_bytes,
        "shm_bytes": result.shm_bytes,
        "made": session.tuning.made,
    }
