"""What an axis is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import InputError, expected_one_of

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

    name: str
    """As PyTorch spells it, where PyTorch has it."""
    type: type[Value]
    """The type of its values in matrix.yaml and in the records."""
    default: Value
    """Frozen: changing it would change the identity of published cells."""
    doc: str
    """One sentence for the data dictionary."""
    unit: str = ""
    """Unit of a number; empty for counts and names."""
    choices: Callable[[], tuple[str, ...]] | None = None
    """Names that are valid, for an axis of names."""
    least: float | None = None
    """Smallest valid number."""
    idle: Idle = always
    """Where it cannot matter, and why."""

    def checked(self, value: Any, where: str) -> Value:
        """Check one value that somebody wrote; whole numbers are taken for an axis of floats.

        Args:
            value: as it was written.
            where: it stands, for the complaint.

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
        if self.least is not None and isinstance(value, int | float) and not self.least <= value < float("inf"):
            raise InputError(f"{where}: got {value!r}; expected a number of at least {self.least:g}")
        checked: Value = value
        return checked
