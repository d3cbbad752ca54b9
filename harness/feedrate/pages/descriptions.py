"""Runs, machines and settings in words, the same on every page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from html import escape
from typing import Any

import pandas as pd
from markupsafe import Markup

from feedrate.machine.identity import Machine
from feedrate.schema import words
from feedrate.schema.axes import AXES, SETTINGS

GIB = 2**30
_NAMED = re.compile(r"(?<![\w`*])[`*]([\w.=/-]+)[`*](?![\w`*])")
"""A name that a docstring sets apart."""


def name_of(machine: Machine) -> str:
    """Name a machine for people: its GPUs if it has some, its processor, its cores or the threads that they run."""
    threaded = machine.cores_physical is not None and machine.cores_physical < machine.cores_logical
    cores = words.plural(machine.cores_logical, "hardware thread" if threaded else "core")
    gpu = f"{gpu_words(machine)}, " if machine.gpu_name else ""
    quota = machine.cpu_quota_cores
    limit = f" limited to {quota:g}" if quota and quota < machine.cores_logical else ""
    return f"{gpu}{machine.cpu_model}, {cores}{limit}"


def gpu_words(machine: Machine) -> str:
    """Name a machine's GPUs; how many only where all are of one kind, as the record has no count of each."""
    alike = machine.gpu_count > 1 and " + " not in (machine.gpu_name or "")
    return f"{machine.gpu_count} × {machine.gpu_name}" if alike else machine.gpu_name or ""


def on(machine: Machine, device: str) -> str:
    """Name where something was measured: the machine, and its CPU where it has a GPU that was not used."""
    return name_of(machine) + (f", on {device_name(device)}" if gpu_idle(machine, device) else "")


def gpu_idle(machine: Machine, device: str) -> bool:
    """Say whether a machine has a GPU that was not used: the name of the machine alone would name the wrong device."""
    return device == "cpu" and machine.gpu_count > 0


def device_name(device: str) -> str:
    """Name a device for people: ``CPU``, ``GPU``."""
    return {"cuda": "GPU"}.get(device, device.upper())


def day(moment: str) -> str:
    """Write the date of an ISO 8601 moment; text that is none stays as it is."""
    try:
        return datetime.fromisoformat(moment).strftime("%-d %B %Y")
    except ValueError:
        return moment


def minutes(start: str, end: str) -> str:
    """Write how long something took, from two ISO 8601 moments."""
    try:
        seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    except (ValueError, TypeError):
        return "unknown"
    return words.show(seconds)


def size(count: int | None) -> str:
    """Write a number of bytes in the unit that suits it."""
    if count is None:
        return "unknown"
    for unit, scale in (("GiB", GIB), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{words.number(count / scale)} {unit}"
    return f"{count} bytes"


def setting(row: Mapping[Any, Any]) -> str:
    """Write a cell by the axes that are not at their default: ``batch_size 8, num_workers 2``."""
    return changed(row) or "all at their defaults"


def changed(row: Mapping[Any, Any]) -> str:
    """Write the axes in a row that apply and are not at their default; empty when there are none."""
    parts = []
    for axis in AXES:
        value = row.get(axis.name)
        if not pd.isna(value) and value != axis.default:
            text = f"{value:g}" if axis.type is float else str(axis.type(value))
            parts.append(f"{axis.name} {text.lower() if axis.type is bool else text}")
    return ", ".join(parts)


def knobs(row: Mapping[Any, Any]) -> str:
    """Write what can be chosen of a cell: format, batch and workers where they apply, others not at their default."""
    chosen = {name: row[name] for name in SETTINGS if not pd.isna(row[name])}
    parts = [str(chosen.pop("storage_format"))] if "storage_format" in chosen else []
    parts.append(f"batch {chosen.pop('batch_size')}")
    if "num_workers" in chosen:
        parts.append(words.plural(int(chosen.pop("num_workers")), "worker"))
    return ", ".join(filter(None, [*parts, changed(chosen)]))


def fixed(row: Mapping[Any, Any]) -> str:
    """Write format and batch size of a cell, where they apply: ``png, batch 32``."""
    named = (("storage_format", ""), ("batch_size", "batch "))
    return ", ".join(f"{word}{row[name]}" for name, word in named if not pd.isna(row[name]))


def reading(row: Mapping[Any, Any]) -> list[str]:
    """Write how samples were read, where that is not as usual: from a cold or full page cache, in stored order."""
    caches = (("page_cache", state, f"{state} page cache") for state in ("cold", "full"))
    unusual = (*caches, ("access", "sequential", "in stored order"))
    return [text for name, value, text in unusual if row.get(name) == value]


def note(text: str) -> str:
    """Write a run's own remark as a sentence; a name at its beginning keeps its spelling."""
    if old := re.match(r"workload (\w+) is replaced by (\w+):.*\((make div2k|--data DIR)\)", text):
        verb = "fetches" if old[3].startswith("make") else "reads"
        return f"{old[2]} replaces {old[1]}: synthetic images ({old[3]} {verb} real ones)."
    return words.sentence(text) if text.partition(" ")[0].isalpha() else f"{text.rstrip('.')}."


def prose(text: str) -> Markup:
    """Write text of feedrate's own as HTML: names between backticks or asterisks become code, apostrophes curl.

    Args:
        text: a docstring, or the doc of an axis or a column; never anything that comes from a record.
    """
    html = _NAMED.sub(lambda match: f"<code>{match[1]}</code>", escape(text.replace("'", "’")))
    return Markup(html)  # noqa: S704 - it has been escaped
