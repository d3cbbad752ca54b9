"""What a run says of itself: one frozen record, written as ``run.json`` and embedded in every parquet file."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from feedrate import __version__
from feedrate.machine.identity import Machine, Software
from feedrate.schema.axes import SCRIPT, TUNE
from feedrate.schema.columns import PROTOCOL_VERSION, SCHEMA_VERSION
from feedrate.schema.errors import InputError
from feedrate.schema.redaction import one_line

_SHOWN = 80
"""Characters of a name that a stranger's file may give to a field."""
NEWEST_VERSION = 9_999
"""A larger number is no version of a schema or a protocol."""
RELEASE = r"[0-9]{1,4}(?:\.[0-9]{1,4}){1,3}"
"""A version of feedrate; what else a stranger's file has in its place is not repeated."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Protocol(_Frozen):
    """How long and how often: recorded, and never part of a cell's identity."""

    warmup_s: float
    window_s: float
    min_steps: int
    """Least warm-up, wall clock and steps of a trial's window."""
    blocks: tuple[int, int]
    """(fewest, most): no contrast stops before the fewest, and the most ends a run."""
    ci_target_pct: float = 3.0
    """A contrast stops when the half-width of its 95 % interval is at most this."""
    control_every: int = 16
    """The control cell runs again after so many trials."""
    timeout_s: float
    """A trial that has not reported after this long is killed."""


class Spread(_Frozen):
    """How a cell's log throughput varied in a run."""

    sd: float
    """Standard deviation between blocks."""
    within: float
    """The part of it that arises within windows: half the spread of the logs of the halves' ratios."""


class Stopped(_Frozen):
    """A contrast, and why it was not measured further."""

    axis: str
    cell_a: str
    cell_b: str
    blocks: int
    """Blocks in which both sides ended well."""
    reason: str
    """target, or what ended the run before: blocks, budget, interrupted; failed where a side only ever failed."""


class AskedClaim(_Frozen):
    """A claim that the run's cells were to judge, and why it was not measured further."""

    claim: str
    blocks: int
    """Blocks in which all cells of its effect ended well; for a fact, its checks."""
    reason: str
    """done, or what ended the run before: blocks, budget, interrupted; failed where a cell only ever failed."""


class Counted(_Frozen):
    """A number of combinations and why they are no cells of their own."""

    count: int
    reason: str


class Audited(_Frozen):
    """A setting that a search set aside and measured all the same: how many times as fast as the leading one it is."""

    cell_id: str
    predicted: float
    measured: float


class Tuned(_Frozen):
    """What a search found among settings of one task (``plan.search``)."""

    recommended: str
    """cell_id of the cheapest setting that is known to be near enough to the best."""
    present: str | None = None
    """cell_id of the setting that a script had."""
    settings: int
    """Settings to choose from, those that do not fit included."""
    trials: int
    within_pct: float
    """By how much another setting may be faster than the recommended one."""
    compared: int
    """Settings that were measured beside it until trials alone told how much faster they can be."""
    bound_pct: float | None
    """By how much the best of these can be at most, with 95 % confidence; None where that is not known."""
    known: bool
    """Whether no setting may be faster by more than the tolerance, as far as trials, the pipeline model or floors tell;
    a budget may end a search before."""
    unseen: int = 0
    """Settings of which the model had said something before they were measured."""
    model_error_pct: float | None = None
    """What it was off about them (standard deviation); None where there are none."""
    gain: tuple[float, float, float] | None = None
    """How many times as fast as the present one, cross-fitted, and the ends of its 95 % interval."""
    aside: tuple[Counted, ...] = ()
    """Settings that were not measured, and why."""
    audits: tuple[Audited, ...] = ()


class Dataset(_Frozen):
    """One packed set that the run read, by its folder's name."""

    name: str
    storage_format: str
    count: int
    bytes: int
    data_hash: str
    workload_version: int
    pack_s: float
    notes: tuple[str, ...] = ()


class Membership(_Frozen):
    """A run's place among those that the nodes of a cluster measured at once: its number, from 0, of so many."""

    sweep: str
    node: int
    nodes: int
    together: bool = False
    """Whether all nodes ran each trial at the same moment."""


class RunManifest(_Frozen):
    """Everything about a run that is not a measurement."""

    schema_version: int = SCHEMA_VERSION
    protocol_version: int = PROTOCOL_VERSION
    feedrate_version: str
    run_id: str
    machine: Machine
    software: Software
    device: str
    """cpu or cuda."""
    runtime: dict[str, str | int | float | None] = {}
    """What PyTorch and the driver say of themselves: CUDA, cuDNN, driver, threads, power limit, PCIe link; and what
    variables tell them (``identity.environment``)."""
    command: str
    """The command that repeats the run."""
    profile: str
    suites: dict[str, Any]
    """Suite to its slices: axis to values, as expanded here."""
    protocol: Protocol
    budget_s: float | None
    seed: int
    """Orders every block and every sampler of the run."""
    combinations: int
    cells: int
    merged: tuple[Counted, ...]
    excluded: tuple[Counted, ...]
    substitutions: tuple[str, ...]
    """Where a workload stands in for another, in words."""
    datasets: tuple[Dataset, ...]
    started_at: str
    ended_at: str
    blocks: int
    """Whole blocks that were measured."""
    stop_reason: str
    """target (contrasts are narrow enough, claims certain), blocks, budget, interrupted."""
    control: str | None = None
    """cell_id of the control cell."""
    ceilings: int = 0
    """Cells that the harness added: stages of training cells, each alone."""
    contrasts: tuple[Stopped, ...] = ()
    claims: tuple[AskedClaim, ...] = ()
    tuned: tuple[Tuned, ...] = ()
    """What searches found, where trials were chosen by them."""
    cluster: Membership | None = None
    untestable: dict[str, str] = {}
    """Claim to why the run could not test it."""
    noise_before: dict[str, float | int | None] = {}
    noise_after: dict[str, float | int | None] = {}
    """What looks at the machine saw, while feedrate itself did nothing."""
    outcomes: dict[str, int]
    cell_seconds: dict[str, float]
    """cell_id to the mean wall clock of its trials, in seconds: what a plan predicts from."""
    cell_spread: dict[str, Spread] = {}
    """cell_id to how its trials varied: what a plan predicts the blocks from."""
    parent_cpu_pct: float
    """CPU of the parent, probes included, during the blocks; 100 is one core."""

    @property
    def script(self) -> str:
        """What the script of the run is called; empty where the run is of none."""
        return self.command.partition(" -- ")[2] if {SCRIPT, TUNE} & self.suites.keys() else ""

    @property
    def search(self) -> Tuned | None:
        """What a search among the settings of a script's loader found; None of other runs, tuned sweeps among them."""
        return self.tuned[0] if self.script and self.tuned else None


def read_manifest(text: bytes | str, where: object) -> RunManifest:
    """Read a manifest from its JSON, as ``run.json`` or a parquet file's metadata hold it.

    Raises:
        InputError: it is no manifest, or of another version of the schema or the protocol; ``where`` names the file.
    """
    try:
        fields = from_json(text)
    except ValueError as error:
        raise _no_manifest(where, f"no JSON ({error})") from error
    if not isinstance(fields, dict):
        raise _no_manifest(where, f"found a {type(fields).__name__}, expected an object")
    _check_version(fields, where)
    try:
        return RunManifest.model_validate(fields)
    except ValidationError as error:
        raise _no_manifest(where, problem(error)) from error


def problem(error: ValidationError) -> str:
    """Say in one short line what is wrong with a stranger's file."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{one_line('.'.join(map(str, first['loc'])))[:_SHOWN] or 'the whole'}: {first['msg']}{more}"


def _no_manifest(where: object, problem: str) -> InputError:
    expected = "expected one that feedrate wrote, unchanged. Leave that run out"
    return InputError(f"{where}: not a run manifest: {problem}; {expected}")


def _check_version(fields: dict[str, Any], where: object) -> None:
    """Refuse a manifest of another version with what to do; before 0.3.0 none is converted."""
    for name, current in (("schema_version", SCHEMA_VERSION), ("protocol_version", PROTOCOL_VERSION)):
        version = fields.get(name)
        if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= NEWEST_VERSION:
            raise _no_manifest(where, f"no {name}, expected {current}")
        if version == current:
            continue
        writer = fields.get("feedrate_version")
        writer = writer if isinstance(writer, str) and re.fullmatch(RELEASE, writer) else "of an unknown version"
        advice = "Update feedrate (git pull)" if version > current else "Leave that run out, or measure it again"
        written = f"{where}: written by feedrate {writer} with {name} {version}"
        raise InputError(f"{written}; this is feedrate {__version__} and reads {current}. {advice}")
