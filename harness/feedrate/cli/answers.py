"""Commands that read runs: what they say of claims, machines and nodes, and the website."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from feedrate.cli.options import BUILD, RESULTS, Build, Results, path, rich_console

commands, of_results = typer.Typer(), typer.Typer()
"""Top-level commands, and those of the group ``results``."""


@commands.command()
def claims(
    machine: Annotated[list[str] | None, typer.Option(help="A machine's id; may be given several times.")] = None,
    results: Results = RESULTS,
    whole: Annotated[bool, typer.Option("--whole", help="A sentence for every claim, made from its numbers.")] = False,
) -> None:
    """Print what the stored runs say of the sources' claims. Each gets a verdict."""
    from feedrate.questions.claims import terminal as claims_terminal

    claims_terminal.show_results(results, rich_console(), machine or (), whole=whole)


@commands.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A machine's or run's id, a run's folder, a trials.parquet.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What is held against it, named likewise.")],
    results: Results = RESULTS,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown, for a report.")] = False,
    whole: Annotated[bool, typer.Option("--all", help="List every setting.")] = False,
) -> None:
    """Compare two machines, or two runs of one. Says how many times as fast B is, where, and why."""
    from feedrate.questions.compare import comparison
    from feedrate.questions.compare import terminal as compare_terminal

    compared = comparison.compare(a, b, results)
    if markdown:
        typer.echo(compare_terminal.markdown(compared, whole=whole), nl=False)
    else:
        compare_terminal.show(compared, rich_console(), whole=whole)


@of_results.command()
def nodes(
    sweep: Annotated[str, typer.Argument(metavar="SWEEP", help="What its runs call it; by default the newest.")] = "",
    results: Results = RESULTS,
) -> None:
    """Say whether a cluster's nodes are alike, and which stands out. Of a sweep together: how many are fed at once."""
    from feedrate.questions.nodes import page as nodes_page
    from feedrate.questions.nodes import sweep as of_nodes
    from feedrate.questions.scaling import page as scaling_page

    nodes_sweep = of_nodes.named(sweep, results)
    if nodes_sweep.together:
        scaling_page.show(nodes_sweep, rich_console())
    else:
        nodes_page.show(nodes_sweep, results, rich_console())


@of_results.command()
def compact(results: Results = RESULTS) -> None:
    """Put the cells of all runs into results/compact/. For a store of very many runs; only new ones are opened."""
    from feedrate.pages import compact as pages_compact

    added = pages_compact.update(results)
    rich_console().print(f"{added.runs:,} runs are new, {added.left_out:,} were refused, {added.hidden:,} are hidden.")


@commands.command()
def site(results: Results = RESULTS, out: Build = BUILD) -> None:
    """Build the website from all runs into build/site."""
    from feedrate.site import build as building

    index = building.build(results, out)
    rich_console().print(f"The site is in {index}: make serve shows it.")


@commands.command()
def figures(
    results: Results = RESULTS,
    out: Annotated[Path, typer.Option(parser=path, help="Empty, or made by this command.")] = BUILD / "figures",
) -> None:
    """Write every figure for papers. 89 and 183 mm wide as SVG and PDF; as on the website; figures.bib for LaTeX."""
    from feedrate.site import build as building

    count = len(building.write_figures(results, out))
    kinds = "for papers NAME-89mm and NAME-183mm, as SVG and PDF; as on the website as SVG, PNG, PDF, CSV and Vega-Lite"
    rich_console().print(f"{count} figures are in {out}: {kinds}. Cite them from figures.bib.")


@commands.command()
def serve(results: Results = RESULTS, out: Build = BUILD) -> None:
    """Show the website, and build it anew as results change."""
    from feedrate.site import build as building

    building.serve(results, out)


@of_results.command()
def readme(results: Results = RESULTS) -> None:
    """Put the newest loader run's figure and table into README.md. And what all runs found."""
    from feedrate.site import readme as writing

    rich_console().print(f"README.md shows run {writing.write(results).manifest.run_id}.")
