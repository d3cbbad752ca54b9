"""What an axis is, and the conditions on earlier axes and on the device under which one matters."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from feedrate.schema.errors import InputError, expected_one_of
from feedrate.schema.plugins import declared, loader_traits, samples_of, traits

Value = bool | int | float | str
Cell = Mapping[str, Value]
"""The axes of a cell that apply, by name."""
Idle = Callable[[Cell, str], str | None]
"""(axes so far, device) → why an axis cannot matter there, or None when it applies."""
Role = Literal["activity", "condition", "setting", "knob"]
"""What an axis is to a user: what a trial does (an activity), what the task gives (a condition), or what can be chosen.

Activities are never contrasted, cells of different conditions never ranked. A knob is a setting of loader and storage
that leaves what is trained as it is: a tuned sweep chooses among its values.
"""
SCRIPT = "script"
"""The workload that is a training script of others (``feedrate run``): what it does is its own."""
TUNE = "tune"
"""The suite of trials that a search chose (``feedrate tune``); those of a script as it is have the suite ``SCRIPT``."""
FREE_NAME = re.compile(r"[\w.+-]{1,60}", re.ASCII)
"""A free name: none can be a path or markup."""


def always(_cell: Cell, _device: str) -> str | None:
    """The axis matters everywhere."""
    return None


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis; ``activity``, ``condition``, ``setting`` and ``knob`` make one."""

    role: Role
    default: Value
    """Frozen: changing it would change the identity of published cells. Its type is that of all values of the axis."""
    doc: str
    """One sentence for the data dictionary."""
    unit: str = ""
    """Unit of a number; empty for counts and names."""
    choices: Callable[[], tuple[str, ...]] | None = None
    """Names that are valid, for an axis of names."""
    least: float = 0
    """Smallest valid number."""
    idle: Idle = always
    """Where it cannot matter, and why."""
    of_scripts: bool = False
    """Whether it is told of a training script of others, too; what else a script does is not known."""
    name: str = ""
    """As PyTorch spells it, where PyTorch has it; the table gives it."""

    @property
    def type(self) -> type[Value]:
        """The type of its values in matrix.yaml and in the records."""
        return type(self.default)

    def checked(self, value: Any, where: str) -> Value:
        """Check a value that somebody wrote, ``where`` names the place; an axis of floats takes whole numbers.

        Raises:
            InputError: no value of this axis.
        """
        if self.type is float and type(value) is int:
            value = float(value)
        if type(value) is not self.type:
            kind = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}[self.type]
            raise InputError(f"{where}: got {value!r}; expected {kind}")
        if not self.choices and isinstance(value, str) and value and not FREE_NAME.fullmatch(value):
            raise InputError(f"{where}: got {value!r}; expected up to 60 letters, digits, dots, dashes and underscores")
        if self.choices and value not in self.choices():
            noun = self.name.removeprefix("storage_")
            raise InputError(f"{where}: unknown {noun} '{value}'; {expected_one_of(value, self.choices())}")
        if isinstance(value, int | float) and not self.least <= value < float("inf"):
            raise InputError(f"{where}: got {value!r}; expected a number of at least {self.least:g}")
        checked: Value = value
        return checked


activity, condition, setting, knob = (partial(Axis, role) for role in get_args(Role))


def named(**axes: Axis) -> tuple[Axis, ...]:
    """Give every axis the name that it stands under."""
    return tuple(replace(axis, name=name) for name, axis in axes.items())


NO_CUDA = "no CUDA device here"


def one_of(*options: str) -> Callable[[], tuple[str, ...]]:
    """Name the values of an axis."""
    return lambda: options


def unless(holds: Callable[[Cell, str], object], reason: str) -> Idle:
    """The axis matters only where something holds of the axes so far, its own value and the device."""
    return lambda cell, device: None if holds(cell, device) else reason


def only(axis: str, *wanted: Value) -> Idle:
    """The axis matters only where another axis has one of the wanted values."""
    options = " or ".join(map(str, wanted))
    return unless(lambda cell, _: cell.get(axis) in wanted, f"matters only with {axis} = {options}")


def above(axis: str, least: float = 0) -> Idle:
    """The axis shapes what another axis, a number, switches on."""
    return unless(lambda cell, _: float(cell.get(axis, 0)) > least, f"matters only with {axis} > {least:g}")


def all_of(*conditions: Idle) -> Idle:
    """The axis matters only where every condition holds; the first that does not is the reason."""
    return lambda cell, device: next((reason for holds in conditions if (reason := holds(cell, device))), None)


def any_of(*conditions: Idle) -> Idle:
    """The axis matters where one of the conditions holds; the reason is the first one's."""

    def idle(cell: Cell, device: str) -> str | None:
        reasons = [condition(cell, device) for condition in conditions]
        return reasons[0] if all(reasons) else None

    return idle


def on_cuda(*conditions: Idle) -> Idle:
    """The axis matters only on CUDA, and where every further condition holds."""
    return all_of(unless(lambda _, device: device == "cuda", NO_CUDA), *conditions)


def _knob_of(axis: str, knobs: Callable[[str], Container[str]]) -> Callable[[str], Idle]:
    """Make conditions of axes that are knobs of some values of another axis only."""

    def has(knob: str) -> Idle:
        def idle(cell: Cell, _device: str) -> str | None:
            name = str(cell.get(axis, ""))
            return None if name and knob in knobs(name) else f"no knob of {axis} = {name or 'none'}"

        return idle

    return has


model_has = _knob_of("model", lambda name: declared("feedrate.workloads.models", name, "KNOBS") or ())
format_has = _knob_of("storage_format", lambda name: traits(name).knobs)
loader_has = _knob_of("loader", lambda name: loader_traits(name).knobs)


def has_samples(*kinds: str) -> Callable[[Cell, str], bool]:
    """Whether a cell's samples are of one of some kinds (``plugins.samples_of``)."""
    return lambda cell, _device: samples_of(str(cell.get("workload", ""))) in kinds


def _streamed(cell: Cell) -> bool:
    """Whether a cell's format forms its own order and has no single reads."""
    return "storage_format" in cell and traits(str(cell["storage_format"])).streamed


LOADS = only("mode", "train", "load")
NEEDS_WORKERS = above("num_workers")
OF_A_SCRIPT = only("workload", SCRIPT)
NEEDS_MODEL = unless(
    lambda cell, _: cell.get("mode") == "compute" or (cell.get("mode") == "train" and cell.get("step") == "real"),
    "matters only where a model runs (mode = compute, or train with step = real)",
)
LOADS_ONE_BY_ONE = all_of(
    LOADS, unless(lambda cell, _: not _streamed(cell), "matters only where samples are read one by one")
)
LOADS_SYNTHETIC = unless(
    lambda cell, device: cell.get("workload") == "synthetic" and not LOADS_ONE_BY_ONE(cell, device),
    "planted only where synthetic samples are loaded one by one",
)
"""Costs are planted into what a loader does, and into synthetic samples only."""
OF_IMAGES = unless(has_samples("images", "files"), "matters only where samples are images")
ALIKE = unless(has_samples("images", "tokens"), "matters only where a sample is the same at every visit")
OF_FILES = all_of(
    only("mode", "train", "load", "copy"),
    unless(has_samples("files"), "matters only where samples are image files of any size"),
)
STREAMED_BY_LOADER = all_of(
    LOADS,
    unless(
        lambda cell, _: cell.get("storage_format") in loader_traits(str(cell.get("loader", ""))).streams,
        "matters only where a loader streams the format by itself",
    ),
)
STREAMS = unless(lambda cell, _: _streamed(cell), "matters only where samples are streamed from shards")
