"""What runs found of a claim, in short plain sentences: the same on the site's pages and in the terminal.

Plain text without markup, to stand behind the verdict. The effect with its 95 % interval comes first. Then what it is
the mean of, and the worst of that; the source's figure, where it has one; and what an open claim lacks. A stand-in for
photographs never passes for them: which workload was read is said by the run and not here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from feedrate.analysis.claim_values import label, settings_text
from feedrate.analysis.claims import FEW_BLOCKS, NOT_TESTABLE, asked
from feedrate.analysis.verdicts import single_verdict
from feedrate.plan.claim import Claim, Effect, Values
from feedrate.plan.claim_selection import LEAST_BLOCKS
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME, EMULATED_STEPS, REPLACED
from feedrate.schema.metrics import METRICS, THROUGHPUT

MOST_BLOCKS = 100
"""Beyond so many more blocks a forecast from the spread so far says little but that there is far to go."""
MOST_NAMED = 4
"""Settings that a sentence names; of more it gives the numbers, as a table has them all."""
_KINDS = {"load": "Loading alone", "compute": "The step alone", "copy": "Copying alone"}
_IN_WORDS = ("mode", "step", "step_ms", "check", "n_samples")
"""Axes of a case that the sentence has in words, or that are no setting to choose."""
_IN_EACH = {
    "confirmed": "It holds in each of them",
    "refuted": "It is refuted in each of them",
    "no difference": "There is no difference in any of them",
    "inconclusive": "No single setting is conclusive",
}
Row = Mapping[Any, Any]


def sentence(row: Row, cases: Sequence[Row], claim: Claim) -> str:
    """Say what runs found of a claim, without its verdict.

    Args:
        row: of ``Findings.claims``.
        cases: the rows of ``Findings.cases`` of the same claim.
        claim: what was judged.

    Returns:
        The effect and its setting, where it holds, what it says besides, what it lacks; or why it cannot be tested
        here.
    """
    if row["verdict"] == NOT_TESTABLE:
        return f"Not testable here: {row['reason']}."
    effect = claim.effect
    if effect is None:
        return _fact(row, cases)
    if not _finite(row["ratio"]):
        tells = f" and tells {METRICS[effect.metric].noun}" if effect.metric != THROUGHPUT else ""
        return f"No repetition has a measurement of every side that ended well{tells}."
    parts = [words.sentence(_change(row, effect)), *_conditions(effect), *_mean(row, effect), *_held(row, effect)]
    measured = [case for case in cases if _finite(case["ratio"]) and not case["role"].startswith("also")]
    if effect.against and measured:
        sides = [f"{_number(side['ratio'])} with {side['case'] or 'the default'}" for side in measured]
        parts.append(f"The factor by itself: {', '.join(sides)}.")
    elif len(measured) > 1:
        parts.append(_where(measured))
    if besides := [also(case) for case in cases if case["role"] == "also"]:
        alone = f" Without these parts the claim would be {row['own']}." if row["own"] != row["verdict"] else ""
        parts.append(f"Other parts of the claim: {'; '.join(besides)}.{alone}")
    if claim.by_construction and row["verdict"] == "confirmed":
        parts.append("It holds by construction: only A pays the cost that the claim is about.")
    return " ".join(parts)


def origins(holding: Sequence[Claim]) -> str:
    """Say of the claims that hold how many a document says, and how many hold by construction."""
    if not holding:
        return ""
    advice = sum(claim.sources == ("field",) for claim in holding)
    built = sum(claim.by_construction for claim in holding)
    text = f"Of the confirmed, documents say {len(holding) - advice} and common advice says {advice}"
    return f"{text}; {built} of them {'holds' if built == 1 else 'hold'} by construction." if built else f"{text}."


def also(case: Row) -> str:
    """Write what a claim says besides, with its number and verdict."""
    return (
        f"{case['case']}: {estimate(case)}, {case['verdict']}"
        if _finite(case["ratio"])
        else f"{case['case']}: inconclusive"
    )


def remarks(row: Row) -> list[str]:
    """Say what is to be known of the runs that a verdict rests on: how many they are, and which do not count."""
    runs, few = len(row["run_ids"]), row["own"] and row["n"] < FEW_BLOCKS
    notes = [words.plural(runs, "run")] if runs > 1 else []
    notes += [f"few repetitions (under {FEW_BLOCKS})"] if few else []
    for name, text in (("withheld", "left out for noise"), ("withdrawn", "withdrawn")):
        if _finite(row[name]) and row[name]:
            notes.append(f"{words.plural(int(row[name]), 'run')} {text}")
    return notes


def worst(row: Row) -> str:
    """Write the ratio of the worst case: ``1.02×``; empty where there is but one case."""
    return f"{_number(row['worst'])}×" if _finite(row["worst"]) else ""


def estimate(row: Row, kind: str = "ratio") -> str:
    """Write ``ratio`` with its interval ``lo`` to ``hi``: ``1.62× (1.55–1.70)``."""
    return words.estimate((row["ratio"], row["lo"], row["hi"]), kind, write=_number)


def power(row: Row, effect: Effect) -> str:
    """Write with which power of its size a batch's time grows; empty where the effect is no time along the batch size.

    A time a sample that changes by a factor r with each doubling of the batch makes the batch's time grow by 2 r:
    its exponent is 1 + log2 r. One is linear; under one grows less.
    """
    metric = METRICS[effect.metric]
    times = len(metric.up) == 1 and metric.columns[0].endswith("_ns") and metric.down == ("samples",)
    if effect.along != "batch_size" or effect.against or not times or not _finite(row["ratio"]):
        return ""
    value, low, high = (1 + math.log2(row[name]) for name in ("ratio", "lo", "hi"))
    exponent = words.estimate((value, low, high), write="{:.2f}".format)
    return f"a batch's time grows with its size to the power of {exponent}"


def blocks_needed(row: Row) -> str:
    """Write what would decide an effect that is inconclusive, from its spread so far."""
    if row["n"] < LEAST_BLOCKS:
        return f"nothing is decided from fewer than {LEAST_BLOCKS} repetitions"
    if row["undecided"]:
        return f"by itself {row['undecided']} is undecided"
    if len(row["run_ids"]) > 1:
        return "a new run would decide more than a longer one"
    blocks = row["blocks_needed"]
    more = max(1, math.ceil(blocks - row["n"])) if _finite(blocks) else math.inf
    if more > MOST_BLOCKS:
        return f"more than {MOST_BLOCKS} more repetitions would be needed: a quieter machine or longer windows"
    return f"about {more} more {'repetition' if more == 1 else 'repetitions'} would decide it"


def _finite(value: object) -> bool:
    return isinstance(value, int | float | np.number) and math.isfinite(value)


def _number(value: float) -> str:
    """Two decimals near one; fewer where the number is large, more where it is small."""
    if value >= 1e4 or value < 1e-3:
        return f"{value:.1e}"
    return f"{value:.2f}" if 0.1 <= value < 10 else f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def _change(row: Row, effect: Effect) -> str:
    """What B does to A, or an axis to a metric."""
    metric = METRICS[effect.metric]
    first, last = settings_text(effect.steps[0][1]), settings_text(effect.steps[-1][1])
    if effect.against:
        everything = [*effect.cases, *effect.against]
        cause = f"every doubling of {effect.along}" if effect.along else f"going from {first} to {last}"
        sides = [
            " or ".join(label(case, everything) or "the default" for case in side)
            for side in (effect.cases, effect.against)
        ]
        return f"{cause} changes {metric.noun} {estimate(row)} as much with {sides[0]} as with {sides[1]}"
    if effect.along:
        ends = [values[effect.along] for _, values in (effect.steps[0], effect.steps[-1])]
        growth = f". {words.sentence(power(row, effect))[:-1]}" if power(row, effect) else ""
        return (
            f"{metric.noun} changes by a factor of {estimate(row, 'number')} with every doubling of {effect.along}, "
            f"from {ends[0]} to {ends[1]}{growth}"
        )
    if effect.level:
        return f"{metric.noun} is {estimate(row)} the source's figure of {_number(effect.figure or 1.0)}{metric.unit}"
    if metric.rate:
        return f"with {last} it is {estimate(row)} as fast as with {first}"
    return f"with {last} {metric.noun} is {estimate(row)} what it is with {first}"


def _conditions(effect: Effect) -> Iterator[str]:
    """What all cases do and hold fixed."""
    everything = [*effect.cases, *effect.against]
    varied = {name for _, values in effect.steps for name in values}
    shared = {
        name: value
        for name, value in everything[0].items()
        if all(case.get(name) == value for case in everything)
        and name not in _IN_WORDS
        and name not in varied
        and not (name == "workload" and value in REPLACED)
    }
    kinds = {_kind({**case, **effect.steps[0][1]}) for case in everything}
    kind = kinds.pop() if len(kinds) == 1 else ""
    if shared:
        yield f"{kind or 'Measured'} at {settings_text(shared)}."
    elif kind:
        yield f"{kind}."


def _mean(row: Row, effect: Effect) -> Iterator[str]:
    """Over how many settings the effect is averaged, and that which is least in the direction that is claimed."""
    if len(effect.cases) > 1:
        least = f"; the worst is {worst(row)} ({row['worst_case']})" if worst(row) else ""
        yield f"Mean of {len(effect.cases)} settings{least}."


def _kind(values: Values) -> str:
    mode, step, step_ms = (values.get(name, BY_NAME[name].default) for name in ("mode", "step", "step_ms"))
    if mode in _KINDS:
        return _KINDS[str(mode)]
    return f"Before an emulated step of {step_ms:g} ms" if step in EMULATED_STEPS else "Training"


def _held(row: Row, effect: Effect) -> Iterator[str]:
    """The source's figure that the effect is held against, and what an open claim lacks."""
    if effect.figure and not effect.level:
        yield f"The source’s figure is {_number(effect.figure)}×."
    if row["own"] == "depends":
        yield f"Settings contradict each other: {row['depends_on']}."
    if row["own"] != "inconclusive":
        return
    if row["reason"]:
        yield f"The run’s intervals do not hold: {row['reason']}."
        return
    alone = single_verdict(asked(dict(row), effect)) if row["n"] >= LEAST_BLOCKS and not row["undecided"] else ""
    if alone not in ("", "inconclusive"):
        yield f"It is open after correcting for multiple tests; alone it would be called {alone}."
    yield words.sentence(blocks_needed(row))


def _where(cases: Sequence[Row]) -> str:
    """In which of several settings it holds, and in which not."""
    verdicts = {str(case["verdict"]) for case in cases}
    if len(verdicts) == 1:
        low, high = (_number(end([case["ratio"] for case in cases])) for end in (min, max))
        return f"{_IN_EACH[verdicts.pop()]} ({low}×{'' if low == high else f' to {high}×'})."
    holds, fails, unknown = [], [], []
    for case in cases:
        setting = f"{case['case']} ({_number(case['ratio'])}×)"
        if case["verdict"] == "confirmed":
            holds.append(setting)
        elif case["verdict"] == "inconclusive":
            unknown.append(setting)
        else:
            fails.append(f"{setting[:-1]}, {case['verdict']})")
    if len(cases) > MOST_NAMED:
        counts = ((holds, "confirmed in {}"), (fails, "contradicted in {}"), (unknown, "inconclusive in {}"))
        ends = words.listed(text.format(len(group)) for group, text in counts if group)
        return words.sentence(f"Of {len(cases)} settings: {ends}")
    parts = [f"It holds at {_enumerate(holds)}"] if holds else []
    parts += [f"{'not' if holds else 'It does not hold'} at {_enumerate(fails)}"] if fails else []
    parts += [f"{'inconclusive' if parts else 'Inconclusive'} at {_enumerate(unknown)}"] if unknown else []
    return f"{'; '.join(parts)}."


def _enumerate(settings: Sequence[str]) -> str:
    """Name an axis once where all settings differ in it alone: ``batch_size=8 (4.1×), 32 (2.0×)``."""
    axes = {setting.partition("=")[0] for setting in settings}
    alone = len(axes) == 1 and all(setting.count("=") == 1 for setting in settings)
    rest = [setting.partition("=")[2] if alone else setting for setting in settings[1:]]
    return (", " if alone else "; ").join([settings[0], *rest])


def _fact(row: Row, cases: Sequence[Row]) -> str:
    """What the checks of a fact saw; the first decides, the others say where else."""
    first, *others = cases
    setting = f" with {first['case']}" if first["case"] else ""
    parts = [f"Seen in {words.plural(round(row['n']), 'check')}{setting}: {str(first['evidence']).rstrip('. ')}."]
    if row["verdict"] == "inconclusive":
        nothing = row["fact"] is False
        parts.append("No error occurred; that decides nothing." if nothing else "The checks do not agree.")
    for word, start in (("confirmed", "It holds with"), ("refuted", "It does not hold with")):
        if settings := [str(case["case"]) for case in others if case["verdict"] == word]:
            few = "; ".join(settings) if len(settings) <= MOST_NAMED else f"{len(settings)} other settings"
            parts.append(f"{start} {few}.")
    return " ".join(parts)
