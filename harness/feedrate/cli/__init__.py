"""The commands. No logic: each reads its options, calls one function and prints."""

from __future__ import annotations

import signal
import sys
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
Seed = Annotated[int | None, typer.Option(help="Repeat the order of an earlier run.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="The id of a run, or its folder.")]
Label = Annotated[str, typer.Option(help="A name for the run: at most 60 characters of plain text.")]
Note = Annotated[str, typer.Option(help="A remark on the run: at most 500 characters of plain text.")]
Build = Annotated[Path, typer.Option(help="Build folder.")]

MATRIX, DATA_ROOT, RESULTS, BUILD = Path("matrix.yaml"), Path("data"), Path("results"), Path("build")


def _end_like_ctrl_c(*endings: signal.Signals) -> None:
    """Have a signal interrupt the command, unless it was started to ignore it (nohup)."""
    for ending in endings:
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, signal.default_int_handler)


@app.command()
def plan(
    matrix: MatrixFile = MATRIX,
    profile: Profile = "quick",
    suite: SuiteName = "",
    budget: Budget = "",
    data: Data = None,
    data_root: DataRoot = DATA_ROOT,
    results: Results = RESULTS,
    yes: Yes = False,
    tune: Tune = False,
) -> None:
    """Print what the matrix expands to on this machine, and run nothing."""
    from feedrate.plan import request

    options = Options(matrix, profile, suite, budget, data, data_root, results, yes, tune=tune)
    request.show(request.make(options), Console())


@app.command()
def sweep(
    matrix: MatrixFile = MATRIX,
    profile: Profile = "quick",
    suite: SuiteName = "",
    budget: Budget = "",
    data: Data = None,
    data_root: DataRoot = DATA_ROOT,
    results: Results = RESULTS,
    yes: Yes = False,
    fresh: Fresh = False,
    seed: Seed = None,
    wait_quiet: WaitQuiet = "",
    tune: Tune = False,
    on: Engine = "",
    nodes: Nodes = 1,
    partition: Partition = "",
    constraint: Constraint = "",
    account: Account = "",
    time_limit: TimeLimit = "",
    together: Together = False,
) -> None:
    """Measure what the matrix asks for; results go to results/MACHINE/RUN/."""
    from feedrate.plan import request
    from feedrate.store import remote
    from feedrate.sweep import screen
    from feedrate.sweep import sweep as sweeping

    console = Console()
    options = Options(matrix, profile, suite, budget, data, data_root, results, yes, fresh, seed, wait_quiet, tune)
    if on or together:
        from feedrate.cluster import sweep as cluster

        _end_like_ctrl_c(signal.SIGTERM)
        asked = cluster.Asked(on, nodes, time_limit, partition, constraint, account, together)
        if any(status.state != "ended" for status in cluster.run(options, asked, console)):
            raise typer.Exit(1)
        return
    local = request.make(options)
    request.show(local, console)
    _end_like_ctrl_c(signal.SIGTERM)
    with screen.TerminalScreen(console) as terminal:
        run = sweeping.run(local, terminal)
    if run is None:
        console.print("Interrupted before a trial had ended: nothing was written.")
        raise typer.Exit(130)
    from feedrate.questions.summary import terminal as summary_terminal

    summary_terminal.show(run, console)
    remote.require_handed_in(run.folder, results)
    if run.manifest.stop_reason == "interrupted":
        raise typer.Exit(130)
    if not run.manifest.outcomes.get("ok"):
        raise typer.Exit(1)


@app.command("gpu-reference")
def reference_of_gpu(
    out: Annotated[Path, typer.Option(parser=path, help="Gets results/ and an archive of each step.")] = BUILD
    / "gpu-reference",
    matrix: MatrixFile = MATRIX,
    profile: Profile = "gpu",
    budget: Budget = "",
    data_root: DataRoot = DATA_ROOT,
    fresh: Fresh = False,
    step: Annotated[
        str, typer.Option(help="Only this: probe, tests, reference or transfer; each fits 10 minutes.")
    ] = "",
) -> None:
    """Look at the device, test the CUDA paths, sweep the profiles gpu and transfer, with the Python that is there."""
    from feedrate.cli import gpu_reference

    options = Options(matrix, profile, "", budget, None, data_root, out / "results", fresh=fresh)
    _end_like_ctrl_c(signal.SIGTERM, signal.SIGHUP)
    raise typer.Exit(gpu_reference.make(options, out, Console(), step))


@app.command("run")
def run_script(
    command: Annotated[list[str], typer.Argument(metavar="-- PROGRAM ARG...", help="The script as you start it.")],
    steps: Annotated[int, typer.Option(min=0, help="End it after so many batches; 0 leaves it its own end.")] = 0,
    live: Annotated[bool, typer.Option("--live", help="Show pace, waits and workers while it runs.")] = False,
    headspace: Annotated[
        bool,
        typer.Option("--headspace", help="After --steps batches time step and loader alone; spoils the weights."),
    ] = False,
    lines: Annotated[
        bool, typer.Option("--lines/--no-lines", help="Sample which lines of code cost the time; takes some CPU.")
    ] = True,
    name: Annotated[str, typer.Option(help="What records call it: runs of one name are compared.")] = "",
    as_json: Annotated[
        str, typer.Option("--json", metavar="FILE", help="Write the report there, too; - is stdout.")
    ] = "",
    results: Annotated[
        Path | None, typer.Option(parser=place, help="Where the run is written; by default with feedrate's other runs.")
    ] = None,
) -> None:
    """Run a training script as it is, and say how long it waits for data, in which line, and what would help."""
    from feedrate.attach import terminal
    from feedrate.store import runs

    options: dict[str, Any] = {"name": name, "steps": steps, "live": live, "headspace": headspace, "lines": lines}
    terminal.run(command, Console(stderr=True), results or runs.home(), as_json=as_json, **options)


@app.command()
def tune(
    command: Annotated[
        list[str], typer.Argument(metavar="-- PROGRAM ARG...", help="The script as you start it, or FILE.py:FUNCTION.")
    ],
    batch_size: Annotated[str, typer.Option(metavar="N,N...", help="Batch sizes to try, too.")] = "",
    start_method: Annotated[str, typer.Option(metavar="NAME,...", help="How workers may be started, too.")] = "",
    max_workers: Annotated[int, typer.Option(min=0, help="0: as many as there are cores, 16 at least.")] = 0,
    within: Annotated[float, typer.Option(min=0.1, help="By how many per cent the best setting may be faster.")] = 3.0,
    budget: Annotated[str, typer.Option(help="No other trial begins after so long, such as 90s, 4m.")] = "",
    python: Annotated[str, typer.Option(help="The Python that runs FILE.py:FUNCTION.")] = sys.executable,
    name: Annotated[str, typer.Option(help="What records call it; by default as its file.")] = "",
    fresh: Annotated[bool, typer.Option("--fresh", help="Do not resume an interrupted search.")] = False,
    as_json: Annotated[str, typer.Option("--json", metavar="FILE", help="Write the result there; - is stdout.")] = "",
    results: Annotated[
        Path | None, typer.Option(parser=place, help="Where the run is written; by default with feedrate's other runs.")
    ] = None,
) -> None:
    """Find the settings of a script's DataLoader that feed it best, and how far from the best they can be."""
    from feedrate.attach import space, terminal
    from feedrate.store import runs

    asked = space.asked(batch_size, start_method, max_workers)
    options: dict[str, Any] = {"within_pct": within, "budget": budget, "as_json": as_json}
    options |= {"python": python, "name": name, "fresh": fresh}
    terminal.tune(command, Console(stderr=True), results or runs.home(), asked, **options)


@app.command()
def top(
    pid: Annotated[int, typer.Argument(metavar="PID", help="The training process.")],
    seconds: Annotated[float, typer.Option(min=1, help="How long to look.")] = 30.0,
) -> None:
    """Say what holds back a training that already runs, from the stacks of its processes."""
    from feedrate.attach import terminal

    terminal.top(pid, seconds, Console())


@app.command()
def claims(
    machine: Annotated[list[str] | None, typer.Option(help="A machine's id; may be given several times.")] = None,
    results: Results = RESULTS,
    whole: Annotated[bool, typer.Option("--whole", help="A sentence for every claim, made from its numbers.")] = False,
) -> None:
    """Print what the stored runs say of the sources' claims: a verdict for each, on one machine or several."""
    from feedrate.questions.claims import terminal as claims_terminal

    claims_terminal.show_results(results, Console(), machine or (), whole=whole)


@app.command()
def validate(
    files: Annotated[
        list[Path],
        typer.Argument(
            parser=place, metavar="FILE...", help="A trials.parquet, a run's folder, a folder of runs, or a store."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")] = False,
    results: Annotated[
        Path, typer.Option(parser=place, help="Runs to hold them beside: what is odd there is flagged.")
    ] = RESULTS,
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
    results: Results = RESULTS,
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
def nodes(
    sweep: Annotated[str, typer.Argument(metavar="SWEEP", help="What its runs call it; by default the newest.")] = "",
    results: Results = RESULTS,
) -> None:
    """Say whether a cluster's nodes are alike, and which stands out; of a sweep together, how many are fed at once."""
    from feedrate.questions.nodes import sweep as of_nodes
    from feedrate.questions.nodes import terminal as nodes_terminal
    from feedrate.questions.scaling import terminal as scaling_terminal

    found = of_nodes.named(sweep, results)
    if found.together:
        scaling_terminal.show(found, Console())
    else:
        nodes_terminal.show(found, results, Console())


@app.command()
def submit(
    run: RunName,
    label: Label = "",
    note: Note = "",
    yes: Annotated[bool, typer.Option("--yes", help="Publish without asking.")] = False,
    out: Annotated[
        Path, typer.Option(parser=path, help="Where one file to attach goes, if no pull request can be opened.")
    ] = BUILD,
    results: Results = RESULTS,
) -> None:
    """Publish a run: shows what will be public, asks, then opens a pull request or makes one file to attach."""
    from feedrate.share import terminal as share_terminal

    ask = (lambda _: True) if yes else share_terminal.confirm
    share_terminal.submit(run, Console(), results=results, label=label, note=note, out=out, ask=ask)


@app.command()
def withdraw(
    run: RunName,
    why: Annotated[str, typer.Option(help="The defect, in a sentence: the run's page gives it.")] = "",
    results: Results = RESULTS,
) -> None:
    """Take back a run that has a defect, never for what it found; its page stays, with the reason."""
    from feedrate.share import terminal as share_terminal

    share_terminal.withdraw(run, why, Console(), results)


@app.command()
def label(run: RunName, label: Label = "", note: Note = "", results: Results = RESULTS) -> None:
    """Give a run a label and a note, in a file beside it."""
    from feedrate.share import terminal as share_terminal

    share_terminal.label(run, label, note, Console(), results)


@app.command()
def tier(
    run: RunName,
    name: Annotated[str, typer.Argument(metavar="TIER", help="self-reported or reference.")],
    results: Results = RESULTS,
) -> None:
    """Say who vouches for a run (for the maintainers of feedrate)."""
    from feedrate.share import terminal as share_terminal

    share_terminal.set_tier(run, name, Console(), results)


@app.command()
def receive(
    archive: Annotated[Path, typer.Argument(parser=path, help="A file that make submit made.")],
    results: Results = RESULTS,
) -> None:
    """Take in a run that somebody sent as one file (for the maintainers of feedrate)."""
    from feedrate.share import proposal

    proposal.receive(archive, Console(), results)


@app.command()
def data_release(
    out: Annotated[Path, typer.Option(parser=path, help="A folder for archive, checksum and metadata.")] = BUILD
    / "release",
    results: Results = RESULTS,
) -> None:
    """Write all runs as one archive with its checksum, and the metadata for a DOI (for the maintainers of feedrate)."""
    from feedrate.share import release

    made = release.make(results, out)
    left = f"; {made.refused} that break a rule are left out" if made.refused else ""
    Console().print(
        f"{made.archive}: {made.runs} runs{left}. SHA256SUMS is its checksum, zenodo.json what Zenodo asks for.",
        highlight=False,
    )


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
    archive: Annotated[
        Path | None, typer.Option(parser=path, help="Your own copy: the zip as published, or the folder of its PNGs.")
    ] = None,
    data_root: DataRoot = DATA_ROOT,
) -> None:
    """Download the photographs of DIV2K and cut them into sub-images; goes on where it was interrupted."""
    from feedrate.downloads import div2k as fetching

    _end_like_ctrl_c(signal.SIGTERM)
    fetching.fetch(split, data_root, Console(), archive)


@app.command()
def pets(data_root: DataRoot = DATA_ROOT) -> None:
    """Download the Oxford-IIIT Pets; goes on where it was interrupted."""
    from feedrate.downloads import pets as fetching

    _end_like_ctrl_c(signal.SIGTERM)
    fetching.fetch(data_root, Console())


@app.command()
def summarise(results: Results = RESULTS) -> None:
    """Sum up all runs in results/summaries/, for a store of very many; only what is new is opened."""
    from feedrate.pages import summaries

    added = summaries.update(results)
    Console().print(f"{added.runs:,} runs are new, {added.left_out:,} were refused, marks of {added.marked:,} changed.")


@app.command()
def site(results: Results = RESULTS, out: Build = BUILD) -> None:
    """Build the website from all runs under results/ into build/site."""
    from feedrate.site import build as building

    index = building.build(results, out)
    Console().print(f"The site is in {index}: make serve shows it.")


@app.command()
def figures(
    results: Results = RESULTS,
    out: Annotated[
        Path, typer.Option(parser=path, help="A folder for them; it must be empty or made by this command.")
    ] = BUILD / "figures",
) -> None:
    """Write every figure of the website for papers: SVG, PNG (2×), PDF, CSV, Vega-Lite, and figures.bib for LaTeX."""
    from feedrate.site import build as building

    count = len(building.write_figures(results, out))
    Console().print(
        f"{count} figures are in {out}, each as SVG, PNG, PDF, CSV and Vega-Lite; cite them from figures.bib."
    )


@app.command()
def serve(results: Results = RESULTS, out: Build = BUILD) -> None:
    """Show the website on this machine, and build it again when results change."""
    from feedrate.site import build as building

    building.serve(results, out)


@app.command()
def readme(results: Results = RESULTS) -> None:
    """Put the newest loader run's figure and table, and what all runs found, into README.md."""
    from feedrate.site import readme as writing

    Console().print(f"README.md shows run {writing.write(results).manifest.run_id}.")


@app.command()
def bench(
    only: Annotated[
        str,
        typer.Option(
            help="Sections, by commas: speed, storage, accuracy, instrumentation, scripts, tuning, statistics, "
            "calibration, files, site."
        ),
    ] = "",
    results: Results = RESULTS,
) -> None:
    """Measure what feedrate promises of itself, and write it under results/MACHINE/bench/."""
    from feedrate.bench import runner

    _end_like_ctrl_c(signal.SIGTERM)
    console = Console()
    runner.show(runner.measure(console, only, results), console)


@app.command()
def axes() -> None:
    """Print the table of axes: name, default, values, meaning."""
    from feedrate.plan import request

    request.show_axes(Console())


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
