"""Commands that measure this machine, and those that bring photographs for it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from feedrate.cli.options import (
    BUILD,
    DATA_ROOT,
    RESULTS,
    DataRoot,
    Results,
    end_like_ctrl_c,
    path,
    rich_console,
    takes,
)
from feedrate.plan.options import OPTIONS, SweepOptions

commands, of_data = typer.Typer(), typer.Typer()
"""Top-level commands, and those of the group ``data``."""


@commands.command()
@takes(*(name for name, option in OPTIONS.items() if option.plans))
def plan(
    options: SweepOptions,
    axes: Annotated[bool, typer.Option("--axes", help="Print the table of axes: default, values, meaning.")] = False,
) -> None:
    """Print what the matrix expands to here, and run nothing."""
    from feedrate.plan import request

    if axes:
        request.show_axes(rich_console())
    else:
        request.show(request.make(options), rich_console())


@commands.command()
@takes(*OPTIONS)
def sweep(options: SweepOptions) -> None:
    """Measure what the matrix asks for. Results go to results/MACHINE/RUN/."""
    from feedrate.machine import packages
    from feedrate.plan import request
    from feedrate.store import remote
    from feedrate.sweep import screen
    from feedrate.sweep import sweep as sweeping

    packages.check(packages.SWEEPING, "type make sweep, which makes an environment of its own")
    console = rich_console()
    end_like_ctrl_c(signal.SIGTERM)
    if options.on or options.together:
        from feedrate.cluster import sweep as cluster

        if any(status.state != "ended" for status in cluster.run(options, console)):
            raise typer.Exit(1)
        return
    local = request.make(options)
    request.show(local, console)
    with screen.TerminalScreen(console) as terminal:
        run = sweeping.run(local, terminal)
    if run is None:
        console.print("Interrupted before a measurement had ended: nothing was written.")
        raise typer.Exit(130)
    from feedrate.questions.summary import terminal as summary_terminal

    summary_terminal.show(run, console)
    remote.require_handed_in(run.folder, options.results)
    if run.manifest.stop_reason == "interrupted":
        raise typer.Exit(130)
    if not run.manifest.outcomes.get("ok"):
        raise typer.Exit(1)


@commands.command("gpu-reference")
@takes("matrix", "budget", "data_root")
def reference_of_gpu(
    options: SweepOptions,
    out: Annotated[Path, typer.Option(parser=path, help="Gets results/ and archives.")] = BUILD / "gpu-reference",
    step: Annotated[str, typer.Option(help="Only this: probe, tests, reference, transfer, hook; 10 min each.")] = "",
) -> None:
    """Test a GPU, sweep the GPU profiles, and watch a script. The profiles are gpu and transfer."""
    from feedrate.cli import gpu_reference

    end_like_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    raise typer.Exit(gpu_reference.make(options, out, rich_console(), step))


@commands.command()
def bench(
    only: Annotated[
        str,
        typer.Argument(
            metavar="SECTIONS",
            help="By commas: speed, accuracy, scripts, account, tuning, calibration, site. All take two hours.",
        ),
    ] = "",
    results: Results = RESULTS,
) -> None:
    """Measure what feedrate promises of itself. Figures go to results/MACHINE/bench/."""
    from feedrate.bench import runner

    end_like_ctrl_c(signal.SIGTERM)
    console = rich_console()
    runner.show(runner.measure(console, only, results), console)


@of_data.command()
def div2k(
    split: Annotated[str, typer.Option(help="train (800 photographs, 3.5 GB) or valid (100, 0.4 GB).")] = "train",
    archive: Annotated[
        Path | None, typer.Option(parser=path, help="Your own copy: the zip as published, or the folder of its PNGs.")
    ] = None,
    data_root: DataRoot = DATA_ROOT,
) -> None:
    """Download the photographs of DIV2K, and cut them. It goes on where it was interrupted."""
    from feedrate.downloads import div2k as fetching

    end_like_ctrl_c(signal.SIGTERM)
    fetching.fetch(split, data_root, rich_console(), archive)


@of_data.command()
def pets(data_root: DataRoot = DATA_ROOT) -> None:
    """Download the Oxford-IIIT Pets. It goes on where it was interrupted."""
    from feedrate.downloads import pets as fetching

    end_like_ctrl_c(signal.SIGTERM)
    fetching.fetch(data_root, rich_console())
