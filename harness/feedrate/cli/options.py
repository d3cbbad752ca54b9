"""Options that several commands share, and how people's words are read."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer


def path(text: str | Path) -> Path | None:
    """A path as people type it; make passes an empty text where nothing was said."""
    return Path(text).expanduser() if str(text) else None


def place(text: str | Path) -> Path | None:
    """A folder or a store's URL as people type it; make passes an empty text where nothing was said."""
    from feedrate.store import place as places

    return places.parse(text) if str(text) else None


MatrixFile = Annotated[Path, typer.Option("--matrix", parser=path, help="The YAML file that says what to sweep.")]
Profile = Annotated[str, typer.Option(help="A name under 'profiles' of the matrix.")]
SuiteName = Annotated[str, typer.Option("--suite", help="One suite instead of the profile's.")]
Budget = Annotated[str, typer.Option(help="Wall clock for the blocks, such as 90s, 4m, 1h30m.")]
Data = Annotated[Path | None, typer.Option(parser=path, help="A folder of photographs in DIV2K's place.")]
DataRoot = Annotated[Path, typer.Option(parser=path, help="Where packed samples lie: the disk that is measured.")]
Results = Annotated[
    Path, typer.Option(parser=place, help="Where runs lie: a folder, or a store such as s3://bucket/results.")
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Run a very large matrix, or one block although the budget is shorter.")
]
Tune = Annotated[
    bool, typer.Option("--tune", help="Search for the best settings of loader and storage; do not measure all of them.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Do not resume an unfinished run.")]
WaitQuiet = Annotated[str, typer.Option(help="Wait at most so long (10m) until nothing else uses the machine.")]
Engine = Annotated[str, typer.Option("--on", help="slurm: on nodes of a cluster; local: tries that on this machine.")]
Nodes = Annotated[int, typer.Option(help="How many nodes, with --on.")]
Together = Annotated[bool, typer.Option(help="With --on: nodes run each trial at the same moment.")]
Partition = Annotated[str, typer.Option(help="Of Slurm.")]
Constraint = Annotated[str, typer.Option(help="A feature that Slurm's nodes must have, or several joined by &.")]
Account = Annotated[str, typer.Option(help="Of Slurm, that is charged.")]
TimeLimit = Annotated[str, typer.Option("--time", help="What Slurm grants a node; by default the budget and 15 min.")]
Archive = Annotated[
    Path | None, typer.Option(parser=path, help="Keep the run in this .tar.gz, too, after every trial; not with --on.")
]
Seed = Annotated[int | None, typer.Option(help="Repeat the order of an earlier run.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run, or its folder.")]
Label = Annotated[str, typer.Option(help="A name for the run: at most 60 characters of plain text.")]
Note = Annotated[str, typer.Option(help="A remark on the run: at most 500 characters of plain text.")]
Build = Annotated[Path, typer.Option(help="Build folder.")]

MATRIX, DATA_ROOT, RESULTS, BUILD = Path("matrix.yaml"), Path("data"), Path("results"), Path("build")


def end_like_ctrl_c(*endings: signal.Signals) -> None:
    """Have a signal interrupt the command, unless it was started to ignore it (nohup)."""
    for ending in endings:
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, signal.default_int_handler)
