"""Marks of a run that come after it was written: files beside its folder, as nothing inside it is ever edited.

``<run_id>.withdrawn.json`` says for which defect a run is no longer shown. ``.label.json`` is the submitter's name for
it and a note; ``.tier.json`` comes from the maintainers alone. Such files may come from others: they hold plain text of
a length that is capped.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from feedrate.schema.errors import InputError, expected_one_of
from feedrate.schema.redaction import one_line
from feedrate.store import location
from feedrate.store.manifest import problem
from feedrate.store.runs import StoredRun, write_whole

LABEL_MOST = 60
"""Characters of a label."""
NOTE_MOST = 500
"""Characters of a note, and of the defect for which a run is withdrawn."""
FILE_MOST = 8_192
"""Bytes of such a file: the longest texts with every character escaped."""
SELF_REPORTED, REFERENCE = TIERS = ("self-reported", "reference")
"""Who vouches for a run: whoever measured it, or the maintainers of feedrate."""
KINDS = ("withdrawn", "label", "tier")


def _plain(text: str) -> str:
    if text != one_line(text):
        raise ValueError("holds control characters, line breaks, outer or double spaces; expected plain text")
    return text


def _day(text: str) -> str:
    date.fromisoformat(text)  # raises ValueError, as pydantic wants it
    return text


_Label = Annotated[str, Field(max_length=LABEL_MOST), AfterValidator(_plain)]
_Text = Annotated[str, Field(max_length=NOTE_MOST), AfterValidator(_plain)]
_Reason = Annotated[_Text, Field(min_length=1)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Withdrawn(_Frozen):
    """That a run has a defect and should no longer be shown."""

    why: _Reason
    on: Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), AfterValidator(_day)]
    """Day of the withdrawal, ISO 8601, UTC."""


class Labelled(_Frozen):
    """What the submitter calls a run."""

    label: _Label = ""
    note: _Text = ""


class Tier(_Frozen):
    """Who vouches for a run."""

    tier: Literal["self-reported", "reference"]


Mark = TypeVar("Mark", Withdrawn, Labelled, Tier)


@dataclass(frozen=True, slots=True)
class Beside:
    """Everything that lies beside a run."""

    tier: str = SELF_REPORTED
    label: str = ""
    note: str = ""
    withdrawn: Withdrawn | None = None


def mark_file(run: Path, kind: str) -> Path:
    """Give the file beside a run's folder that holds a mark of one of ``KINDS``."""
    return run.with_name(f"{run.name}.{kind}.json")


def marked_run(path: Path) -> Path | None:
    """Give the run's folder that a mark lies beside; None where the path is no mark or the run is not there."""
    name, _, kind = path.name.removesuffix(".json").rpartition(".")
    run = path.with_name(name or path.name)
    return run if kind in KINDS and path == mark_file(run, kind) and run.is_dir() else None


def about(run: Path) -> Beside:
    """Read everything that lies beside a run's folder; an InputError where a file is not as this module writes it."""
    withdrawn = _read(mark_file(run, "withdrawn"), Withdrawn)
    label = _read(mark_file(run, "label"), Labelled) or Labelled()
    tier = _read(mark_file(run, "tier"), Tier)
    return Beside(tier.tier if tier else SELF_REPORTED, label.label, label.note, withdrawn)


def not_withdrawn(runs: Iterable[StoredRun]) -> list[StoredRun]:
    """Keep the runs that were not withdrawn, in their order."""
    return [run for run in runs if about(run.folder).withdrawn is None]


def _read(path: Path, kind: type[Mark]) -> Mark | None:
    if (status := location.status(path)) is None:
        return None
    plain = stat.S_ISREG(status.st_mode)
    if not plain or status.st_size > FILE_MOST:
        got = f"{status.st_size:,} bytes" if plain else "no plain file"
        raise InputError(f"{path}: {got}; expected a plain file of at most {FILE_MOST:,} bytes. Remove it")
    try:
        return kind.model_validate_json(location.contents([path])[0])
    except ValidationError as error:
        raise InputError(f"{path}: {problem(error)}; expected what feedrate writes there") from error


def encode(mark: BaseModel) -> bytes:
    """Give the bytes of a file beside a run."""
    return mark.model_dump_json(indent=1).encode() + b"\n"


def labelled(label: str, note: str) -> Labelled:
    """Make a label of what somebody typed; an InputError where a text is too long, or both are empty."""
    label, note = _typed("--label", label, LABEL_MOST), _typed("--note", note, NOTE_MOST)
    if not label and not note:
        raise InputError("--label: nothing was given; expected a label, a note (--note) or both")
    return Labelled(label=label, note=note)


def label(run: Path, label: str, note: str = "") -> Path:
    """Write a label beside a run, in place of an earlier one, and return its file."""
    return _write(mark_file(run, "label"), labelled(label, note))


def withdraw(run: Path, why: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Path:
    """Say for which defect a run should no longer be shown, and return the file; only removing that takes it back.

    Raises:
        InputError: there is no reason, it is too long, or the run was withdrawn before.
    """
    if before := about(run).withdrawn:
        raise InputError(f"{run.name}: was withdrawn on {before.on} already: {before.why}")
    reason = _typed("--why", why, NOTE_MOST)
    if not reason:
        raise InputError("--why: nothing was given; expected the defect: the run's page will give it")
    return _write(mark_file(run, "withdrawn"), Withdrawn(why=reason, on=now().date().isoformat()))


def set_tier(run: Path, tier: str) -> Path:
    """Say which of ``TIERS`` vouches for a run, and return the file; for maintainers.

    Raises:
        InputError: there is no such tier.
    """
    if tier not in TIERS:
        raise InputError(f"tier '{tier}': {expected_one_of(tier, TIERS)}")
    return _write(mark_file(run, "tier"), Tier.model_validate({"tier": tier}))


def _typed(option: str, text: str, most: int) -> str:
    line = one_line(text)
    if len(line) > most:
        raise InputError(f"{option}: {len(line):,} characters; expected at most {most}. Shorten it")
    return line


def _write(path: Path, mark: BaseModel) -> Path:
    write_whole(path, encode(mark))
    return path
