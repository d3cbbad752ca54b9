"""What ``feedrate tune`` says: the setting, what it gains, how far from the best it can be, and what it takes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from feedrate.analysis.crossfit import Gain, cross_fitted
from feedrate.attach.report import place
from feedrate.attach.space import Setting, gib
from feedrate.attach.tune import Session, Tried
from feedrate.plan.search import GRID_BLOCKS
from feedrate.schema.words import number, percent, plural, times


@dataclass(frozen=True, slots=True)
class Audit:
    """A setting that was set aside and measured all the same: logs of its time over the leader's."""

    setting: Setting
    predicted: float
    measured: float


@dataclass(frozen=True, slots=True)
class Result:
    """What a search found."""

    recommended: Setting
    present: Setting
    within: float
    bound: float
    """The best setting is at most so much faster (log)."""
    known: bool
    gain: Gain | None
    """Log of how many times as fast as the present setting; None where that is the recommended one."""
    settings: int
    trials: int
    aside: dict[str, int]
    """Reason to the number of settings that were not measured for it."""
    excluded: dict[str, int]
    """The same of those that do not fit the machine."""
    failed: dict[Setting, str]
    audits: tuple[Audit, ...]
    memory_bytes: int
    shm_bytes: int

    @property
    def gain_ends(self) -> tuple[float, float, float] | None:
        """How many times as fast as the present setting, and the ends of the interval; None where it is not known."""
        if self.gain is None or math.isnan(self.gain.log):
            return None
        ends = self.gain.interval()
        return round(ends["ratio"], 4), round(ends["lo"], 4), round(ends["hi"], 4)


def result(session: Session) -> Result | None:
    """Put together what a search found; None where no trial ended well."""
    tuning = session.tuning
    search, present = tuning.search, tuning.present
    if search is None or present is None or not search.measured:
        return None
    outcome = search.outcome()
    memory, shared = tuning.machine.takes(outcome.recommended)
    return Result(
        recommended=outcome.recommended,
        present=present,
        within=search.within,
        bound=outcome.bound,
        known=outcome.known,
        gain=_gain(session, outcome.recommended),
        settings=len(search.settings) + len(set(tuning.excluded) - set(search.settings)),
        trials=len(tuning.tried),
        aside=dict(search.aside()),
        excluded=dict(Counter(tuning.excluded.values())),
        failed={each.setting: each.error for each in tuning.tried if each.error},
        audits=tuple(Audit(*found) for found in search.audits()),
        memory_bytes=memory,
        shm_bytes=shared,
    )


def _gain(session: Session, recommended: Setting) -> Gain | None:
    """What the best setting gains over the present one: chosen by half of the blocks, measured by the others."""
    search, present = session.tuning.search, session.tuning.present
    if search is None or present is None or present not in search.logs or recommended == present:
        return None
    blocks = sorted(search.logs[present].keys() & search.logs[recommended].keys())
    rows = [
        [search.logs[present][block] - search.logs[each][block] for block in blocks]
        for each in search.measured
        if each != present and search.logs[each].keys() >= set(blocks)
    ]
    return cross_fitted(np.array(rows)) if rows else None


def text(session: Session, found: Result | None, command: str) -> Iterator[tuple[str, str]]:
    """Say it in about ten lines: what each is about, and the line."""
    tuning = session.tuning
    if found is None:
        yield "", f"{command} {session.ended.report.status}: nothing was tuned"
        yield (
            "note",
            "no trial ended well" if tuning.made else "no DataLoader gave batches for two seconds while it ran",
        )
        yield from (("note", note) for note in session.ended.report.notes)
        return
    grid = f"a grid of {found.settings} settings × {GRID_BLOCKS} blocks takes {found.settings * GRID_BLOCKS}"
    yield "", f"{command} tuned in {session.took_s:.0f} s by {plural(found.trials, 'trial')}; {grid}"
    yield "set", f"{found.recommended}  at {place(tuning.made)}"
    yield "gain", _said_gain(found)
    yield "bound", _said_bound(found)
    for reason, count in (found.aside | found.excluded).items():
        yield "set aside", f"{plural(count, 'setting')}: {reason}"
    if found.audits:
        said = ", ".join(
            f"{each.setting} {times(math.exp(-each.measured))} (by the model {times(math.exp(-each.predicted))})"
            for each in found.audits
        )
        yield "checked", f"set aside, but measured all the same, against the leader: {said}"
    for error in dict.fromkeys(found.failed.values()):
        yield "failed", f"{', '.join(str(each) for each, why in found.failed.items() if why == error)}: {error}"
    workers, memory = plural(found.recommended.num_workers, "worker"), gib(found.memory_bytes)
    yield "takes", f"{workers}, about {memory} of memory, {gib(found.shm_bytes)} of it in /dev/shm"
    yield "paste", snippet(found.recommended)
    if tuning.ended == "short":
        yield "note", "the script ends before a trial has ended: give it more epochs, or a larger set of samples"
    yield "note", "batches were repeated and their order changed: do not keep what this run trained"


def _said_bound(found: Result) -> str:
    if not math.isfinite(found.bound):
        return "not known yet: a larger --budget gives one"
    said = f"the best of all settings is at most {percent(math.expm1(found.bound))} faster, with 95 % confidence"
    more = f"; a larger --budget narrows that to {percent(math.expm1(found.within))}"
    return said if found.known else said + more


def _said_gain(found: Result) -> str:
    if found.gain is None:
        return "the present setting is the one"
    if math.isnan(found.gain.log):
        return "not known: too few blocks"
    ends = found.gain.interval()
    return f"{times(ends['ratio'])} (95 % {ends['lo']:.2f}–{ends['hi']:.2f}) over the present {found.present}"


def line(tried: Tried) -> str:
    """Say what a trial found."""
    if tried.error:
        return f"{tried.setting}: {tried.error}"
    return f"{tried.setting}: {number(1e9 * tried.told['steps'] / tried.told['wall_ns'])} steps/s"


def snippet(setting: Setting) -> str:
    """Write the settings as arguments to paste."""
    given = ", ".join(f"{name}={value!r}" for name, value in setting.arguments().items())
    return f"DataLoader(..., {given})"


def as_object(session: Session, found: Result | None) -> dict[str, Any]:
    """The same for a machine."""
    if found is None:
        return {"recommended": None}
    return {
        "recommended": found.recommended.arguments(),
        "present": found.present.arguments(),
        "gain": found.gain.interval() if found.gain and found.gain_ends else None,
        "bound_pct": 100 * math.expm1(found.bound) if math.isfinite(found.bound) else None,
        "known": found.known,
        "trials": found.trials,
        "settings": found.settings,
        "took_s": session.took_s,
        "set_aside": found.aside,
        "excluded": found.excluded,
        "memory_bytes": found.memory_bytes,
        "shm_bytes": found.shm_bytes,
        "made": session.tuning.made,
    }
