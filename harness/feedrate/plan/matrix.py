"""matrix.yaml: read, checked once, and turned into frozen values.

Every complaint names the file, the path in it, what stood there, what was expected and the nearest valid name. An
unknown key is refused, never ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from feedrate.plan import suite
from feedrate.schema import plugins, words
from feedrate.schema.axes import BY_NAME, SCRIPT, Value
from feedrate.schema.errors import InputError, expected_one_of
from feedrate.store.manifest import Protocol

VERSION = 1
SHIPPED = Path("matrix.yaml")
DEVICES = ("cpu", "cuda")
DEVICE = "device"
"""Key of a slice that is not an axis: the slice is for this device only."""

Slice = Mapping[str, tuple[Value, ...]]
"""Axis to its values; every combination of them is wanted."""
DEFAULT_PROTOCOL = {
    "warmup_s": 0.3,
    "window_s": 0.6,
    "min_steps": 12,
    "blocks": [8, 30],
    "ci_target_pct": 3.0,
    "control_every": 16,
    "timeout_s": 120.0,
}
_WHOLE = ("min_steps", "control_every")


@dataclass(frozen=True, slots=True)
class SuiteSlice:
    """One product of axis values within a suite."""

    suite: str
    axes: Slice
    device: str | None
    """Only on this device; None is any."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """What a profile asks for."""

    path: str
    profile: str
    slices: tuple[SuiteSlice, ...]
    protocol: Protocol
    budget_s: float | None
    """Wall clock for all blocks; None is no limit."""

    def suites(self) -> dict[str, Any]:
        """Suite to its slices as plain values, for the manifest."""
        plain: dict[str, list[dict[str, Any]]] = {}
        for suite_slice in self.slices:
            only_on = {DEVICE: suite_slice.device} if suite_slice.device else {}
            plain.setdefault(suite_slice.suite, []).append(
                {**only_on, **{k: list(v) for k, v in suite_slice.axes.items()}}
            )
        return plain


class _UniqueKeys(yaml.SafeLoader):
    """YAML as PyYAML reads it, except that a key given twice is an error and not the last one wins."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float | bool):
                raise yaml.MarkedYAMLError(problem="a key must be a name", problem_mark=key_node.start_mark)
            if key in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key '{key}' stands here twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _parse(path: Path) -> Any:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)  # noqa: S506 - a SafeLoader
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(
            f"{path}: cannot be read: {reason}; expected a matrix file (--matrix names another)"
        ) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        position = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "unknown place"
        raise InputError(f"{path}: {position}: not YAML: {error.problem or error}; mend that line") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML: {error}") from error


def _section(value: Any, where: str, keys: Sequence[str] | None = None) -> dict[str, Any]:
    """A mapping with text keys, each one of ``keys`` when given; nothing at all counts as empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"{where}: got {value!r}; expected a mapping of names to values")
    for key in value:
        if not isinstance(key, str) or (keys is not None and key not in keys):
            raise InputError(f"{where}: unknown key '{key}'; {expected_one_of(key, keys or ['text'])}")
    return value


def _axis(name: str, values: Any, where: str) -> tuple[Value, ...]:
    listed = values if isinstance(values, list) else [values]
    if not listed:
        raise InputError(f"{where}: got no values; expected at least one, or leave the axis out for its default")
    checked = [BY_NAME[name].checked(value, where) for value in listed]
    if SCRIPT in checked and name == "workload":
        expected = expected_one_of(SCRIPT, plugins.names("feedrate.workloads"))
        raise InputError(
            f"{where}: got '{SCRIPT}'; {expected}. A script of your own is "
            "measured as it runs: feedrate run -- python train.py"
        )
    if len({(type(v), v) for v in checked}) < len(checked):
        raise InputError(f"{where}: got {values!r}; expected each value once")
    return tuple(checked)


def _slice(name: str, raw: Any, where: str) -> SuiteSlice:
    given = dict(_section(raw, where, [*(axis for axis in BY_NAME if axis != "script"), DEVICE]))
    device = given.pop(DEVICE, None)
    if device is not None and device not in DEVICES:
        raise InputError(f"{where}.{DEVICE}: got {device!r}; {expected_one_of(device, DEVICES)}")
    return SuiteSlice(name, {axis: _axis(axis, values, f"{where}.{axis}") for axis, values in given.items()}, device)


def _slices(name: str, raw: Any, where: str) -> tuple[SuiteSlice, ...]:
    if isinstance(raw, list):
        return tuple(_slice(name, content, f"{where}[{i}]") for i, content in enumerate(raw))
    return (_slice(name, raw, where),)


def _protocol(raw: Mapping[str, Any], where: str) -> Protocol:
    values = {**DEFAULT_PROTOCOL, **raw}
    for key, value in values.items():
        if not _fits(key, value):
            number = f"{'whole ' if key in _WHOLE else ''}number {'of at least' if key == 'warmup_s' else 'above'} 0"
            expected = "[fewest, most] such as [8, 30]" if key == "blocks" else f"a {number}"
            raise InputError(f"{where}.{key}: got {value!r}; expected {expected}")
    if values["timeout_s"] <= values["warmup_s"] + values["window_s"]:
        raise InputError(f"{where}.timeout_s: got {values['timeout_s']!r}; expected more than warmup_s + window_s")
    return Protocol(**{**values, "blocks": tuple(values["blocks"])})


def _fits(key: str, value: Any) -> bool:
    if key == "blocks":
        whole = isinstance(value, list) and len(value) == 2 and all(type(number) is int for number in value)
        return whole and 1 <= value[0] <= value[1]
    number = isinstance(value, int if key in _WHOLE else int | float) and not isinstance(value, bool)
    return number and 0 <= value < math.inf and (value > 0 or key == "warmup_s")


def _protocol_values(raw: Any, where: str, device: str) -> dict[str, Any]:
    """A protocol as it stands, with what it says for this device alone put over it."""
    given = dict(_section(raw, where, [*DEFAULT_PROTOCOL, *DEVICES]))
    special = {name: _section(given.pop(name, None), f"{where}.{name}", list(DEFAULT_PROTOCOL)) for name in DEVICES}
    return given | special[device]


def _suite_slices(
    path: Path, base: Mapping[str, Any], chosen: Mapping[str, Any], only: str, profile: str
) -> Iterator[SuiteSlice]:
    """The slices of the chosen suites; a profile's list replaces them, its mapping changes those axes in each."""
    for name in [only] if only else list(chosen or base):
        raw = base[name] if name in base else list(suite.load(name).slices)
        slices = _slices(name, raw, f"{path}: suites.{name}") if raw else ()
        where, changes = f"{path}: profiles.{profile}.suites.{name}", chosen.get(name)
        if isinstance(changes, list) or (changes is not None and not slices):
            slices = _slices(name, changes, where)
        elif changes is not None:
            new = _slice(name, changes, where)
            slices = tuple(
                SuiteSlice(name, {**before.axes, **new.axes}, new.device or before.device) for before in slices
            )
        if not slices:
            raise InputError(
                f"{path}: suites.{name}: sweeps nothing; expected axes with values, here or in suites/{name}.py"
            )
        yield from slices


def load(path: Path, profile: str = "quick", only: str = "", budget: str = "", device: str = "cpu") -> Matrix:
    """Read a matrix file and pick a profile; ``InputError`` where anything in it cannot be used."""
    if path == SHIPPED and not path.exists():  # installed from a wheel, in a folder without one
        path = plugins.RESOURCES / path
    document = _section(_parse(path), f"{path}", ["version", "protocol", "suites", "profiles"])
    if document.get("version") != VERSION:
        raise InputError(f"{path}: version: got {document.get('version')!r}; expected {VERSION}")
    names = plugins.names("feedrate.suites")
    base = _section(document.get("suites"), f"{path}: suites", names)
    profiles = _section(document.get("profiles"), f"{path}: profiles")
    if profile not in profiles:
        raise InputError(f"{path}: profiles: unknown profile '{profile}'; {expected_one_of(profile, profiles)}")
    where = f"{path}: profiles.{profile}"
    chosen = _section(profiles[profile], where, ["budget", "protocol", "suites"])
    suites = _section(chosen.get("suites"), f"{where}.suites", names)
    protocol = _protocol_values(document.get("protocol"), f"{path}: protocol", device)
    protocol |= _protocol_values(chosen.get("protocol"), f"{where}.protocol", device)
    if only and only not in names:
        raise InputError(f"--suite: unknown suite '{only}'; {expected_one_of(only, names)}")
    slices = tuple(_suite_slices(path, base, suites, only, profile))
    of_suite = suite.load(only).budget_on(device) if only and only not in {**base, **suites} else None
    wanted = budget or of_suite or chosen.get("budget")
    budget_s = words.parse(wanted, "--budget" if budget else f"{where}.budget") if wanted is not None else None
    return Matrix(str(path), profile, slices, _protocol(protocol, f"{path}: protocol"), budget_s)
