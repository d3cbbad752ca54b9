"""Options that several commands share, and how people's words are read."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from feedrate.plan.options import OPTIONS, SweepOptions, flag

if TYPE_CHECKING:
    from rich.console import Console


def rich_console(*, stderr: bool = False) -> Console:
    """The terminal to print on. Loading rich takes a third of the time of ``--help``, which does without."""
    from rich.console import Console

    return Console(stderr=stderr)


def path(text: str | Path) -> Path | None:
    """A path as people type it; make passes an empty text where nothing was said."""
    return Path(text).expanduser() if str(text) else None


def results_path(text: str | Path) -> Path | None:
    """A folder or a store's URL as people type it; make passes an empty text where nothing was said."""
    from feedrate.store import location

    return location.parse(text) if str(text) else None


def _option(name: str) -> Any:
    """An option of ``plan.options`` for typer."""
    option = OPTIONS[name]
    parser = (results_path if name == "results" else path) if Path in (option.type, *get_args(option.type)) else None
    return typer.Option(flag(name), parser=parser, help=option.help)


def takes(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Have a command take options of a sweep by name: its function's first argument is what was typed for them.

    All others of the function's arguments are options of its own.
    """

    def of(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def command(**given: Any) -> None:
            function(SweepOptions(**{name: given.pop(name) for name in names}), **given)

        parameters = list(signature(function, eval_str=True).parameters.values())[1:]
        shared = [
            Parameter(
                name,
                Parameter.POSITIONAL_OR_KEYWORD,
                default=OPTIONS[name].default,
                annotation=Annotated[OPTIONS[name].type, _option(name)],
            )
            for name in names
        ]
        command.__signature__ = Signature([*shared, *parameters])  # type: ignore[attr-defined]
        return command

    return of


DataRoot = Annotated[Path, _option("data_root")]
Results = Annotated[Path, _option("results")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run, or its folder.")]
Label = Annotated[str, typer.Option(help="A name for the run: at most 60 characters of plain text.")]
Note = Annotated[str, typer.Option(help="A remark on the run: at most 500 characters of plain text.")]
Build = Annotated[Path, typer.Option(help="Build folder.")]

DATA_ROOT, RESULTS, BUILD = OPTIONS["data_root"].default, OPTIONS["results"].default, Path("build")


def end_like_ctrl_c(*endings: signal.Signals) -> None:
    """Have a signal interrupt the command, unless it was started to ignore it (nohup)."""
    for ending in endings:
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, signal.default_int_handler)
