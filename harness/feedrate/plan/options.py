"""The options of ``feedrate plan`` and ``feedrate sweep``: each stands here once, with its default and what it does.

From here come what the command line takes (``cli.options.takes``), the command that a run records, and the one that
another process is given. Imports the standard library alone: ``feedrate --help`` reads it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

PLANS, RECORDED = "plans", "recorded"
"""Marks of an option: ``feedrate plan`` takes it, too; the command that a run records names it."""


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """What the command line asks of a sweep."""

    profile: Annotated[str, "A name under 'profiles' of the matrix.", PLANS, RECORDED] = "quick"
    suite: Annotated[str, "One suite instead of the profile's.", PLANS, RECORDED] = ""
    budget: Annotated[str, "Wall clock for the repetitions, such as 90s, 4m, 1h30m.", PLANS, RECORDED] = ""
    matrix: Annotated[Path, "The YAML file that says what to sweep.", PLANS, RECORDED] = Path("matrix.yaml")
    data: Annotated[Path | None, "A folder of photographs in DIV2K's place.", PLANS, RECORDED] = None
    data_root: Annotated[Path, "Where packed samples lie: the disk that is measured.", PLANS, RECORDED] = Path("data")
    tune: Annotated[bool, "Search for the best settings, do not measure all of them.", PLANS, RECORDED] = False
    results: Annotated[Path, "Where runs lie: a folder, or a store such as s3://bucket/results.", PLANS] = Path(
        "results"
    )
    yes: Annotated[bool, "Run a very large matrix, or one repetition although the budget is shorter.", PLANS] = False
    fresh: Annotated[bool, "Do not resume an unfinished run."] = False
    seed: Annotated[int | None, "Repeat the order of an earlier run."] = None
    wait_quiet: Annotated[str, "Wait at most so long (10m) until nothing else uses the machine."] = ""
    archive: Annotated[Path | None, "Keep the run in this .tar.gz, too, after every measurement; not with --on."] = None
    on: Annotated[str, "slurm: on nodes of a cluster; local: tries that on this machine.", RECORDED] = ""
    nodes: Annotated[int, "How many nodes, with --on.", RECORDED] = 1
    together: Annotated[bool, "With --on: nodes run each measurement at the same moment.", RECORDED] = False
    partition: Annotated[str, "Of Slurm."] = ""
    constraint: Annotated[str, "A feature that Slurm's nodes must have, or several joined by &."] = ""
    account: Annotated[str, "Of Slurm, that is charged."] = ""
    time: Annotated[str, "What Slurm grants a node; by default the budget and 15 min."] = ""

    def arguments(self) -> list[str]:
        """The options that are not at their default, as they are typed."""
        return [word for name, value in self._changed() for word in _typed(name, value)]

    def command(self) -> str:
        """The command that repeats the run; folders of the user's are named by a word alone.

        A node that swept by itself repeats its run without the others.
        """
        unsaid = () if self.together else ("on", "nodes")
        shown: dict[str, Any] = {"matrix": self.matrix.name, "data": "DIR", "data_root": "DIR"}
        changed = ((name, shown.get(name, value)) for name, value in self._changed() if name not in unsaid)
        words = [word for name, value in changed if OPTIONS[name].recorded for word in _typed(name, value)]
        return shlex.join(["feedrate", "sweep", *words])

    def _changed(self) -> Iterator[tuple[str, Any]]:
        values = ((name, getattr(self, name)) for name in OPTIONS)
        return ((name, value) for name, value in values if value != OPTIONS[name].default)


class Option(NamedTuple):
    """What an option takes, and what is said of it."""

    type: Any
    default: Any
    help: str
    plans: bool
    recorded: bool


def _options() -> Iterator[tuple[str, Option]]:
    hints = get_type_hints(SweepOptions, include_extras=True)
    for field in fields(SweepOptions):
        text, *marks = hints[field.name].__metadata__
        kind = hints[field.name].__origin__
        yield field.name, Option(kind, field.default, text, PLANS in marks, RECORDED in marks)


OPTIONS: dict[str, Option] = dict(_options())
"""Name of each option to what it is."""


def flag(name: str) -> str:
    """An option as it is typed: ``--data-root``."""
    return f"--{name.replace('_', '-')}"


def _typed(name: str, value: object) -> list[str]:
    return [flag(name)] if value is True else [flag(name), str(value)]
