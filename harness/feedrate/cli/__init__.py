"""The commands. No logic: each reads its options, calls one function and prints."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from feedrate.plan.request import Options
from feedrate.schema.errors import FeedrateError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=("feedrate: how fast can a machine feed its accelerator, and what holds it back?"),
)

MatrixFile = Annotated[Path, typer.Option("--matrix", help="The YAML file that says what to sweep.")]
Profile = Annotated[str, typer.Option(help="A name under 'profiles' of the matrix.")]
SuiteName = Annotated[str, typer.Option("--suite", help="One suite instead of the profile's.")]
Budget = Annotated[str, typer.Option(help="Wall clock for the blocks, such as 90s, 4m, 1h30m.")]
Data = Annotated[str, typer.Option(help="A folder of photographs in DIV2K's place.")]
DataRoot = Annotated[Path, typer.Option(help="Where packed samples lie: the disk that is measured.")]
Results = Annotated[Path, typer.Option(help="Where runs are written.")]
Yes = Annotated[
    bool, typer.Option("--yes", help="Run a very large matrix, or one block although the budget is shorter.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Do not resume an unfinished run.")]
WaitQuiet = Annotated[str, typer.Option(help="Wait at most so long (10m) until nothing else uses the machine.")]
Seed = Annotated[int | None, typer.Option(help="Repeat the order of an earlier run.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run, or its folder.")]
Label = Annotated[str, typer.Option(help="A name for the run: at most 60 characters of plain text.")]
Note = Annotated[str, typer.Option(help="A remark on the run: at most 500 characters of plain text.")]


def _options(suite: str, budget: str, data: str, **rest: Any) -> Options:
    places: dict[str, Any] = {
        name: value.expanduser() if isinstance(value, Path) else value for name, value in rest.items()
    }
    folder = Path(data).expanduser() if data else None
    return Options(suite=suite or None, budget=budget or None, data=folder, **places)


@app.command()
def plan(
    matrix: MatrixFile = Path("matrix.yaml"),
    profile: Profile = "quick",
    suite: SuiteName = "",
    budget: Budget = "",
    data: Data = "",
    data_root: DataRoot = Path("data"),
    results: Results = Path("results"),
    yes: Yes = False,
) -> None:
    """Print what the matrix expands to on this machine, and run nothing."""
    from feedrate.plan import report as plan_report
    from feedrate.plan import request as here

    options = _options(
        suite, budget, data, matrix=matrix, profile=profile, data_root=data_root, results=results, yes=yes
    )
    plan_report.show(here.make(options), Console())


@app.command()
def sweep(
    matrix: MatrixFile = Path("matrix.yaml"),
    profile: Profile = "quick",
    suite: SuiteName = "",
    budget: Budget = "",
    data: Data = "",
    data_root: DataRoot = Path("data"),
    results: Results = Path("results"),
    yes: Yes = False,
    fresh: Fresh = False,
    seed: Seed = None,
    wait_quiet: WaitQuiet = "",
) -> None:
    """Measure what the matrix asks for; results go to results/MACHINE/RUN/."""
    from feedrate.plan import report as plan_report
    from feedrate.plan import request as here
    from feedrate.sweep import screen
    from feedrate.sweep import sweep as sweeping

    console = Console()
    options = _options(
        suite,
        budget,
        data,
        matrix=matrix,
        profile=profile,
        data_root=data_root,
        results=results,
        yes=yes,
        fresh=fresh,
        seed=seed,
        wait_quiet=wait_quiet or None,
    )
    planned = here.make(options)
    plan_report.show(planned, console)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with screen.TerminalScreen(console) as terminal:
        run = sweeping.run(planned, terminal)
    if run is None:
        console.print("Interrupted before a trial had ended: nothing was written.")
        raise typer.Exit(130)
    from feedrate.questions.summary import terminal as summary_terminal

    summary_terminal.show(run, console)
    if run.manifest.stop_reason == "interrupted":
        raise typer.Exit(130)
    if not run.manifest.outcomes.get("ok"):
        raise typer.Exit(1)


@app.command("gpu-reference")
def reference_of_gpu(
    out: Annotated[Path, typer.Option(help="Gets results/ and what the tests said.")] = Path("build/gpu-reference"),
    matrix: MatrixFile = Path("matrix.yaml"),
    profile: Profile = "gpu",
    budget: Budget = "",
    data_root: DataRoot = Path("data"),
    fresh: Fresh = False,
) -> None:
    """Test the CUDA paths, sweep the profile gpu and validate the run, with the Python that is there."""
    from feedrate.cli import gpu_reference

    out = out.expanduser()
    options = _options(
        "", budget, "", matrix=matrix, profile=profile, data_root=data_root, results=out / "results", fresh=fresh
    )
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # nohup
            signal.signal(ending, signal.default_int_handler)
    raise typer.Exit(gpu_reference.make(options, out, Console()).exit_status)


@app.command()
def claims(
    machine: Annotated[list[str] | None, typer.Option(help="A machine's id; may be said several times.")] = None,
    results: Results = Path("results"),
    whole: Annotated[bool, typer.Option("--whole", help="A sentence for every claim, made from its numbers.")] = False,
) -> None:
    """Print what the stored runs say of the sources' claims: a verdict for each, on one machine or several."""
    from feedrate.questions.claims import terminal as claims_terminal

    claims_terminal.show_results(results, Console(), machine or (), whole=whole)


@app.command()
def validate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="A trials.parquet, a run's folder, or a folder of runs.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")] = False,
    results: Annotated[Path, typer.Option(help="Runs to hold them beside: what is odd there is flagged.")] = Path(
        "results"
    ),
) -> None:
    """Check result files of others: structure, ranges, identities.

    Files that are refused, and paths that name nothing, say why (exit status 2); odd files get a flag.
    """
    from feedrate.share import terminal as share_terminal

    validated = share_terminal.validate(files, results, None if as_json else Console())
    if as_json:
        typer.echo(share_terminal.as_json(validated))
    if not all(one.valid for one in validated):
        raise typer.Exit(2)


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A machine's or run's id, a run's folder, a trials.parquet.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What is held against it, named likewise.")],
    results: Results = Path("results"),
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a report.")] = False,
    whole: Annotated[bool, typer.Option("--all", help="List every cell.")] = False,
) -> None:
    """Compare two machines, or two runs of one: how many times as fast B is, where, and why."""
    from feedrate.questions.compare import comparison
    from feedrate.questions.compare import terminal as compare_terminal

    found = comparison.compare(a, b, results)
    if markdown:
        typer.echo(compare_terminal.markdown(found, whole=whole), nl=False)
    else:
        compare_terminal.show(found, Console(), whole=whole)


@app.command()
def submit(
    run: RunName,
    label: Label = "",
    note: Note = "",
    yes: Annotated[bool, typer.Option("--yes", help="Publish without asking.")] = False,
    out: Annotated[Path, typer.Option(help="Where one file to attach goes, if no pull request can be opened.")] = Path(
        "build"
    ),
    results: Results = Path("results"),
) -> None:
    """Publish a run: shows what will be public, asks, then opens a pull request or makes one file to attach."""
    from feedrate.share import terminal as share_terminal

    ask = (lambda _: True) if yes else share_terminal.confirm
    share_terminal.submit(run, Console(), results=results, label=label, note=note, out=out.expanduser(), ask=ask)


@app.command()
def withdraw(
    run: RunName,
    why: Annotated[str, typer.Option(help="The reason, in a sentence: the run's page gives it.")] = "",
    results: Results = Path("results"),
) -> None:
    """Say that a run should no longer be shown; its page stays, with the reason."""
    from feedrate.share import terminal as share_terminal

    share_terminal.withdraw(run, why, Console(), results)


@app.command()
def label(run: RunName, label: Label = "", note: Note = "", results: Results = Path("results")) -> None:
    """Give a run a label and a note, in a file beside it."""
    from feedrate.share import terminal as share_terminal

    share_terminal.label(run, label, note, Console(), results)


@app.command()
def tier(
    run: RunName,
    name: Annotated[str, typer.Argument(metavar="TIER", help="self-reported or reference.")],
    results: Results = Path("results"),
) -> None:
    """Say who vouches for a run (for the maintainers of feedrate)."""
    from feedrate.share import terminal as share_terminal

    share_terminal.rank(run, name, Console(), results)


@app.command()
def receive(
    archive: Annotated[Path, typer.Argument(help="A file that make submit made.")], results: Results = Path("results")
) -> None:
    """Take in a run that somebody sent as one file (for the maintainers of feedrate)."""
    from feedrate.share import receive as share_receive

    share_receive.receive(archive.expanduser(), Console(), results)


@app.command()
def check_submission(
    checkout: Annotated[Path, typer.Argument(help="A checkout of the merge of a pull request, with its parents.")],
) -> None:
    """Hold what a pull request adds under results/ against the rules, as data."""
    from feedrate.share import proposal

    proposal.review(checkout, Console())


@app.command()
def div2k(
    split: Annotated[str, typer.Option(help="train (800 photographs, 3.5 GB) or valid (100, 0.4 GB).")] = "train",
    archive: Annotated[str, typer.Option(help="Your own copy: the zip as published, or the folder of its PNGs.")] = "",
    data_root: DataRoot = Path("data"),
) -> None:
    """Download the photographs of DIV2K and cut them into sub-images; goes on where it was interrupted."""
    from feedrate.downloads import div2k as fetching

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    own = Path(archive).expanduser() if archive else None
    fetching.fetch(split, data_root.expanduser(), Console(), own)


@app.command()
def pets(data_root: DataRoot = Path("data")) -> None:
    """Download the Oxford-IIIT Pets; goes on where it was interrupted."""
    from feedrate.downloads import pets as fetching

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    fetching.fetch(data_root.expanduser(), Console())


@app.command()
def site(
    results: Results = Path("results"), out: Annotated[Path, typer.Option(help="Build folder.")] = Path("build")
) -> None:
    """Build the website from all runs under results/ into build/site."""
    from feedrate.site import build as building

    index = building.build(results, out)
    Console().print(f"The site is in {index}: make serve shows it.")


@app.command()
def figures(
    results: Results = Path("results"),
    out: Annotated[Path, typer.Option(help="A folder for them; it must be empty or made by this command.")] = Path(
        "build/figures"
    ),
) -> None:
    """Write every figure of the website for papers: SVG, PNG (2×), PDF, CSV, Vega-Lite, and figures.bib for LaTeX."""
    from feedrate.site import build as building

    count = len(building.write_figures(results, out.expanduser()))
    Console().print(
        f"{count} figures are in {out}, each as SVG, PNG, PDF, CSV and Vega-Lite; cite them from figures.bib."
    )


@app.command()
def serve(
    results: Results = Path("results"), out: Annotated[Path, typer.Option(help="Build folder.")] = Path("build")
) -> None:
    """Show the website on this machine, and build it again when results change."""
    from feedrate.site import build as building

    building.serve(results, out)


@app.command()
def readme(results: Results = Path("results")) -> None:
    """Put the newest loader run's figure and table, and what all runs found, into README.md."""
    from feedrate.site import readme as writing

    Console().print(f"README.md shows run {writing.write(results).manifest.run_id}.")


@app.command()
def bench(
    only: Annotated[
        str,
        typer.Option(
            help="Sections, by commas: speed, storage, accuracy, instrumentation, statistics, calibration, files, site."
        ),
    ] = "",
    results: Results = Path("results"),
) -> None:
    """Measure what feedrate promises of itself, and write it under results/MACHINE/bench/."""
    from feedrate.bench import runner

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console()
    runner.show(runner.measure(console, only, results), console)


@app.command()
def axes() -> None:
    """Print the table of axes: name, default, values, meaning."""
    from feedrate.plan import report as plan_report

    plan_report.show_axes(Console())


def main() -> int:
    """Run a command; a mistake of the user's is one line, never a traceback.

    Returns:
        1 for a failed run, 2 for bad input; every other status leaves as SystemExit.
    """
    try:
        app()
    except FeedrateError as error:
        Console(stderr=True).print(f"feedrate: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return error.exit_status
    return 0
