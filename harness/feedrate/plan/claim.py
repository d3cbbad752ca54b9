"""A claim: a sentence about what makes training faster, and the cells whose records confirm or refute it.

A claim's *effect* is made of cells: in every block, a weighted sum of the logs of one metric. Two cells that differ in
what the claim is about have the weights -1 (A) and +1 (B), and the exponential of their mean over blocks is the ratio
B ÷ A. Several cases (other batch sizes, formats …) are averaged; cases to be held *against* them are subtracted, which
asks whether a change does more here than there (an interaction). A series of values has the weights of a
least-squares line: then the ratio is what one doubling of the axis does. A single cell of weight 1 is a *level*: the
metric itself, held against a figure of the source.

A claim of a fact has no effect: a check (``mode = check``) looks, and reports what it saw.

Claims name axes and values, never ids. Which cells they are depends on the device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

from feedrate.schema.axes import AXES, BY_NAME, PHOTOGRAPHS, Value, applicable, cell_id, stand_ins
from feedrate.schema.errors import InputError, expected_one_of
from feedrate.schema.metrics import METRICS

Values = Mapping[str, Value]
"""Axis to its value; other axes stand at their defaults."""
Says = Literal["more", "less", "same"]
Needs = Literal["cpu", "cuda", "gpus", "disks", "machines", "caffe"]
"""What it takes to test a claim: any machine, a CUDA device, two of them, two storage devices, several machines, or
another framework, whose reader it speaks of."""
NEVER: tuple[Needs, ...] = ("disks", "machines", "caffe")
"""What no single run of feedrate has."""
NEEDS: Mapping[str, str] = {
    "cpu": "",
    "cuda": "needs a CUDA device",
    "gpus": "needs two CUDA devices",
    "disks": "needs runs on two storage devices (--data-root), compared by feedrate compare",
    "machines": "needs several machines that differ in it: feedrate records it, and feedrate compare shows it",
    "caffe": "speaks of Caffe's reader, which feedrate does not run",
}


@dataclass(frozen=True, slots=True)
class Source:
    """A document that says things."""

    title: str
    about: str
    """What it is, and on what machine, if it says so."""


SOURCES: Mapping[str, Source] = {
    "BOT": Source("Bottlenecks in Pytorch training", "a blog post of 2019; names no machine"),
    "IO": Source(
        "I got stuck in the i/o bottleneck in deep learning!",
        "an experiment of 2019: SRCNN on DIV2K, one GTX 1080 Ti, 16 workers; no spread is given",
    ),
    "TIPS": Source("Pytorch (v>=1.6.0) performance tuning tips", "a blog post; no measurements"),
    "API": Source(
        "Pytorch data api: worker, pinned memory, prefetch, non-blocking", "a blog post in Korean; no measurements"
    ),
    "AIDA": Source(
        "AIDA Technical Workshop – Profiling and improving pytorch experiments",
        "a workshop's material; ResNet-18 on Oxford-IIIT Pets",
    ),
    "LMDB": Source("LMDB’s manual", "the documentation of mdb_env_open and its flags"),
    "SPDL": Source("Scalable and Performant Data Loading", "the paper of SPDL’s authors, arXiv:2504.20067"),
    "LitData": Source("LitData’s README and documentation", "by its authors; files lie in a cloud’s store there"),
    "TurboLoader": Source("TurboLoader’s README", "by its author; measured on an Apple M4 Max"),
    "field": Source("Common advice", "said in forums and manuals, by nobody in particular"),
}


@dataclass(frozen=True, slots=True)
class Effect:
    """A number that is made of cells: see this file's head."""

    steps: tuple[tuple[float, Values], ...]
    """Weight of each side within a case, and the values that make it this side."""
    cases: Sequence[Values]
    """What is held fixed; each is one question, and their mean is the effect."""
    against: Sequence[Values] = ()
    """Cases whose effect is subtracted; the effect is an interaction then."""
    metric: str = "throughput"
    """A name of ``metrics.METRICS``."""
    says: Says = "more"
    """What the claim says of B's metric."""
    figure: float | None = None
    """The ratio that the source's own figure comes to: the effect is compared with it, not with 1."""
    along: str | None = None
    """The axis of a series; None for a pair."""
    needs: Needs | None = None
    """What it takes, where that is more than its claim takes: sizes that only an accelerator can compute in time."""

    @property
    def level(self) -> bool:
        """Whether it is a metric itself, and no ratio of two."""
        return len(self.steps) == 1

    @property
    def several(self) -> Sequence[Values]:
        """The cases that it is the mean of, where they are several; the sides of an interaction are no cases of it."""
        return () if self.against or len(self.cases) < 2 else self.cases

    def sides(self, case: Values) -> list[tuple[float, dict[str, Value]]]:
        """Weight and values of every side of a case."""
        return [(weight, {**case, **values}) for weight, values in self.steps]

    def weighted_cases(self) -> list[tuple[float, Values]]:
        """Every case with its weight: 1 ÷ their number, negative for those held against."""
        shares = ((self.cases, 1), (self.against, -1))
        return [(sign / len(cases), case) for cases, sign in shares for case in cases]

    def settings(self) -> Iterator[dict[str, Value]]:
        """The values of every side of every case."""
        return (values for _, case in self.weighted_cases() for _, values in self.sides(case))


def pair(a: Values, b: Values, *cases: Values, **more: Any) -> Effect:
    """Compare two settings; further arguments are fields of ``Effect``, here and below."""
    return Effect(((-1.0, a), (1.0, b)), cases, **more)


def change(axis: str, a: Value, b: Value, *cases: Values, **more: Any) -> Effect:
    """Compare two values of one axis."""
    return pair({axis: a}, {axis: b}, *cases, **more)


def level(metric: str, *cases: Values, **more: Any) -> Effect:
    """Hold a metric itself against the source's figure: 0.8 times as much or more; for ``less`` 1.25 times or less."""
    return Effect(((1.0, {}),), cases, metric=metric, **more)


def slope(axis: str, values: Sequence[int], *cases: Values, **more: Any) -> Effect:
    """Fit a line through the logs of a metric over the log of an axis; the effect is what one doubling does."""
    logs = [math.log(value) for value in values]
    mean = sum(logs) / len(logs)
    square = sum((log - mean) ** 2 for log in logs)
    steps = tuple((math.log(2) * (log - mean) / square, {axis: value}) for log, value in zip(logs, values, strict=True))
    return Effect(steps, cases, along=axis, **more)


@dataclass(frozen=True, slots=True)
class Part:
    """Something that a claim says besides: it holds only if this does, too."""

    label: str
    effect: Effect
    device: Literal["cpu", "cuda"] | None = None
    """Where alone it counts; None for everywhere."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of the sources, and how it is tested."""

    id: str
    says: str
    """The source's sentence in our own words, with its scope: of what, where."""
    sources: tuple[str, ...]
    """Keys of ``SOURCES``."""
    design: str
    """How it is tested: what A and B are, and what is held fixed."""
    not_shown: str
    """What the test does not show."""
    effect: Effect | None = None
    """What decides it; None for a fact."""
    also: tuple[Part, ...] = ()
    """What it says besides: it is confirmed only if all of this is, and refuted if any is (intersection-union test)."""
    facts: tuple[Values, ...] = ()
    """Checks, for a claim of a fact: values beside ``mode = check``. The first decides, the others say where else."""
    unseen: Literal["refuted", "inconclusive"] = "refuted"
    """What it means that no check saw the fact: that it is none, or that it did not happen here."""
    asides: Mapping[str, Effect] = field(default_factory=dict)
    """Further numbers that do not decide it, by what they are, such as *throughput, per doubling of the batch*."""
    needs: Needs = "cpu"
    on_cuda: Effect | None = None
    """What decides it on a CUDA device instead, which the sizes of ``effect`` would leave idle."""
    most_cores: int | None = None
    """Cores beyond which its sides are not what it speaks of; None where that does not matter."""
    least_cores: int = 1
    """Cores below which they are not."""
    by_construction: bool = False
    """Whether the test gives A the cost that B is without, so that only a broken loader could refute it."""
    figures: str = ""
    """What the source measured, where it gives figures; with its contradictions."""

    def on(self, device: str) -> Claim:
        """The claim as it is tested on a device, ``cpu`` or ``cuda``."""
        also = tuple(addition for addition in self.also if addition.device in (None, device))
        effect = self.on_cuda if self.on_cuda and device == "cuda" else self.effect
        return replace(self, effect=effect, on_cuda=None, also=also)

    def deciding(self) -> list[Effect]:
        """The effects that must all hold; none for a fact."""
        return [self.effect, *(addition.effect for addition in self.also)] if self.effect else []

    def effects(self) -> list[tuple[Effect, Needs]]:
        """What decides it, on any device, and what stands beside it; each with what it takes."""
        effects: list[tuple[Effect, Needs]] = [(self.effect, self.needs)] if self.effect else []
        effects += [(self.on_cuda, "cuda")] if self.on_cuda else []
        effects += [(addition.effect, "cuda" if addition.device == "cuda" else self.needs) for addition in self.also]
        return [*effects, *((effect, effect.needs or self.needs) for effect in self.asides.values())]


Claims = Mapping[str, tuple[str, Claim]]
"""Id to the suite that asks it, and the claim."""


@dataclass(frozen=True, slots=True)
class Term:
    """A cell and its weight in an effect."""

    weight: float
    cell_id: str
    cell: dict[str, Value]


def cell_on(values: Values, device: str, photographs: str = PHOTOGRAPHS[0]) -> tuple[dict[str, Value], dict[str, str]]:
    """The cell that values make on a device, and for each of them that does not apply the reason."""
    cell, reasons = _cell_on(device, photographs, **values)
    return dict(cell), dict(reasons)


@lru_cache(maxsize=1 << 14, typed=True)  # every run of a site is asked for the same cells
def _cell_on(device: str, photographs: str, /, **values: Value) -> tuple[Values, Mapping[str, str]]:
    combination = {axis.name: axis.default for axis in AXES} | values
    workload = str(combination["workload"])
    combination["workload"] = stand_ins(photographs).get(workload, workload)
    cell, reasons = applicable(combination, device)
    return cell, {name: reasons[name] for name in values if name in reasons}


def terms(
    effect: Effect, device: str, photographs: str = PHOTOGRAPHS[0], cases: Sequence[tuple[float, Values]] | None = None
) -> list[Term]:
    """List the cells of an effect, or of some of its cases with their weights, each cell once; see ``cell_on``."""
    weights, cells = dict[str, float](), dict[str, dict[str, Value]]()
    for share, case in cases if cases is not None else effect.weighted_cases():
        for weight, values in effect.sides(case):
            cell, _ = cell_on(values, device, photographs)
            key = cell_id(cell)
            cells[key] = cell
            weights[key] = weights.get(key, 0.0) + share * weight
    return [Term(weights[key], key, cell) for key, cell in cells.items()]


def untestable(claim: Claim, device: str) -> str | None:
    """Why a claim cannot be tested on a device at all; a plan may still lack libraries, samples or devices."""
    if claim.needs != "cpu" and not (claim.needs in ("cuda", "gpus") and device == "cuda"):
        return NEEDS[claim.needs]
    for values in (values for effect in claim.deciding() for values in effect.settings()):
        for name, reason in cell_on(values, device)[1].items():
            if values[name] != BY_NAME[name].default:
                return f"{name}: {reason}"
    return None


def validate(claim: Claim, where: str) -> None:
    """Refuse a claim that cannot be tested: an unknown name or value, an A that equals its B, no case."""
    where = f"{where}: claim {claim.id}"
    for source in claim.sources:
        if source not in SOURCES:
            raise InputError(f"{where}: unknown source '{source}'; {expected_one_of(source, SOURCES)}")
    if bool(claim.effect) == bool(claim.facts) and claim.needs != "caffe":
        raise InputError(f"{where}: expected either an effect or facts")
    for values in claim.facts:
        _validate_values({"mode": "check", **values}, where)
    for effect, needs in claim.effects():
        _validate_effect(effect, "cuda" if needs in ("cuda", "gpus") else "cpu", where)


def _validate_values(values: Values, where: str) -> None:
    for name, value in values.items():
        if name not in BY_NAME:
            raise InputError(f"{where}: unknown axis '{name}'; {expected_one_of(name, BY_NAME)}")
        BY_NAME[name].checked(value, f"{where}: {name}")


def _validate_effect(effect: Effect, device: str, where: str) -> None:
    if effect.metric not in METRICS:
        raise InputError(f"{where}: unknown metric '{effect.metric}'; {expected_one_of(effect.metric, METRICS)}")
    if not effect.cases or len(effect.steps) < (1 if effect.figure else 2):
        raise InputError(
            f"{where}: got {len(effect.cases)} cases of {len(effect.steps)} sides; expected one of two, or of one side "
            "with a figure"
        )
    for values in effect.settings():
        _validate_values(values, where)
    for _, case in effect.weighted_cases():
        if len({cell_id(cell_on(values, device)[0]) for _, values in effect.sides(case)}) < len(effect.steps):
            same = " and ".join(_text(values) for _, values in effect.steps)
            raise InputError(
                f"{where}: {same} are the same cell with {_text(case)} on {device}; expected an A that differs from B"
            )


def _text(values: Values) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items()) or "nothing else"
