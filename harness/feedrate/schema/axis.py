"""What an axis is, and the conditions on earlier axes and on the device under which one matters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from feedrate.schema.errors import InputError, expected_one_of
from feedrate.schema.plugins import declared, traits

Value = bool | int | float | str
Cell = Mapping[str, Value]
"""The axes of a cell that apply, by name."""
Idle = Callable[[Cell, str], str | None]
"""(axes so far, device) → why an axis cannot matter there, or None when it applies."""


def always(_cell: Cell, _device: str) -> str | None:
    """The axis matters everywhere."""
    return None


@dataclass(frozen=True, slots=True)
class Axis:
    """One knob."""

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
    name: str = ""
    """As PyTorch spells it, where PyTorch has it; the table gives it."""

    @property
    def type(self) -> type[Value]:
        """The type of its values in matrix.yaml and in the records."""
        return type(self.default)

    def checked(self, value: Any, where: str) -> Value:
        """Check one value that somebody wrote, ``where`` names the place; an axis of floats takes whole numbers.

        Raises:
            InputError: no value of this axis.
        """
        if self.type is float and type(value) is int:
            value = float(value)
        if type(value) is not self.type:
            kind = {int: "a whole number", float: "a number", bool: "true or false", str: "a name"}[self.type]
            raise InputError(f"{where}: got {value!r}; expected {kind}")
        if self.choices and value not in self.choices():
            noun = self.name.removeprefix("storage_")
            raise InputError(f"{where}: unknown {noun} '{value}'; {expected_one_of(value, self.choices())}")
        if isinstance(value, int | float) and not self.least <= value < float("inf"):
            raise InputError(f"{where}: got {value!r}; expected a number of at least {self.least:g}")
        checked: Value = value
        return checked


NO_CUDA = "no CUDA device here"


def one_of(*options: str) -> Callable[[], tuple[str, ...]]:
    """Name the values of an axis."""
    return lambda: options


def only(axis: str, *wanted: Value) -> Idle:
    """The axis matters only where another axis has one of the wanted values."""

    def idle(cell: Cell, _device: str) -> str | None:
        if cell.get(axis) in wanted:
            return None
        return f"matters only with {axis} = {' or '.join(str(value) for value in wanted)}"

    return idle


def all_of(*conditions: Idle) -> Idle:
    """The axis matters only where every condition holds; the first that does not is the reason."""

    def idle(cell: Cell, device: str) -> str | None:
        return next((reason for condition in conditions if (reason := condition(cell, device))), None)

    return idle


def any_of(*conditions: Idle) -> Idle:
    """The axis matters where one of the conditions holds; the reason is the first one's."""

    def idle(cell: Cell, device: str) -> str | None:
        reasons = [condition(cell, device) for condition in conditions]
        return reasons[0] if all(reasons) else None

    return idle


def on_cuda(*conditions: Idle) -> Idle:
    """The axis matters only on CUDA, and where every further condition holds."""
    return all_of(lambda _, device: None if device == "cuda" else NO_CUDA, *conditions)


def needs_workers(cell: Cell, _device: str) -> str | None:
    """The axis is about workers."""
    return None if cell.get("num_workers", 0) else "matters only with num_workers > 0"


def needs_model(cell: Cell, _device: str) -> str | None:
    """The axis is about a model's step."""
    if cell.get("mode") == "compute" or (cell.get("mode") == "train" and cell.get("step") == "real"):
        return None
    return "matters only where a model runs (mode = compute, or train with step = real)"


def model_has(knob: str) -> Idle:
    """The axis is a knob of some networks only (``KNOBS`` in a model's file)."""

    def idle(cell: Cell, _device: str) -> str | None:
        name = str(cell.get("model", ""))
        known = (declared("feedrate.workloads.models", name, "KNOBS") or ()) if name else ()
        return None if knob in known else f"no knob of model = {name or 'none'}"

    return idle


def above(axis: str, least: float = 0) -> Idle:
    """The axis shapes what another axis, a number, switches on."""

    def idle(cell: Cell, _device: str) -> str | None:
        return None if float(cell.get(axis, 0)) > least else f"matters only with {axis} > {least:g}"

    return idle


LOADS = only("mode", "train", "load")


def loads_one_by_one(cell: Cell, device: str) -> str | None:
    """The axis is about samples that are read one by one; a stream forms its own order and has no single reads."""
    if reason := LOADS(cell, device):
        return reason
    return "matters only where samples are read one by one" if traits(str(cell["storage_format"])).streamed else None


def loads_synthetic(cell: Cell, device: str) -> str | None:
    """Costs are planted into what a loader does, and into synthetic samples only."""
    if cell.get("workload") == "synthetic" and not loads_one_by_one(cell, device):
        return None
    return "planted only where synthetic samples are loaded one by one"


def format_has(knob: str) -> Idle:
    """The axis is a knob of some storage formats only."""

    def idle(cell: Cell, _device: str) -> str | None:
        name = str(cell.get("storage_format", ""))
        return None if name and knob in traits(name).knobs else f"no knob of storage_format = {name or 'none'}"

    return idle


def streams(cell: Cell, _device: str) -> str | None:
    """The axis is about samples that are streamed from shards."""
    name = str(cell.get("storage_format", ""))
    return None if name and traits(name).streamed else "matters only where samples are streamed from shards"
