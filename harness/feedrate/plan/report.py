"""The plan as text: what would run here, what would not, and how long it takes."""

from __future__ import annotations

from functools import partial

from rich.console import Console
from rich.table import Table

from feedrate.plan.request import LocalPlan
from feedrate.plan.schedule import BLOCKS_WANTED, Plan
from feedrate.schema import words
from feedrate.schema.axes import AXES


def show(local: LocalPlan, console: Console) -> None:
    """Print a plan: cells, merged and excluded combinations with reasons, time for a block, blocks, what to cut."""
    say = partial(console.print, highlight=False, markup=False)
    plan, machine = local.plan, local.machine
    device = machine.gpu_name if plan.place.device == "cuda" else f"{machine.cores_logical} cores, no GPU"
    say(f"{machine.machine_id}: {machine.cpu_model}, {device}")
    say(
        f"{plan.matrix.path}, profile {plan.matrix.profile}: {plan.combinations:,} combinations → "
        f"{len(plan.cells):,} cells on this machine",
        style="bold",
    )
    for counted in plan.merged:
        say(f"  − {counted.count:,} merged: {counted.reason}")
    for counted in plan.excluded:
        say(f"  − {counted.count:,} left out: {counted.reason}")
    if plan.ceilings:
        say(f"  + {len(plan.ceilings):,} added: stages of the training cells, each alone (their ceilings)")
    table = Table(box=None, padding=(0, 2), show_header=False)
    for axis in AXES:
        values = [cell.axes[axis.name] for cell in plan.cells if axis.name in cell.axes]
        if len(set(values)) > 1:
            table.add_row(axis.name, ", ".join(f"{value} ({values.count(value)})" for value in dict.fromkeys(values)))
    console.print(table)
    for line in plan.substitutions:
        say(f"  {line}")
    say(_time(plan))
    if outlook := _outlook(plan):
        say(outlook)
    if cuts := plan.cuts():
        enough = words.show(plan.block_s * BLOCKS_WANTED)
        say(f"Fewer than {BLOCKS_WANTED} blocks decide little. Raise BUDGET to {enough}, or leave out:", style="yellow")
        for cut in cuts:
            say(f"  {cut}", style="yellow")


def _time(plan: Plan) -> str:
    measured = sum(cell.cell_id in plan.place.seconds for cell in plan.all_cells) / len(plan.all_cells)
    basis = "as measured here before" if measured > 0.9 else "estimated; the first run here will tell"
    limit = "no budget" if plan.matrix.budget_s is None else f"budget {words.show(plan.matrix.budget_s)}"
    return (
        f"A block (every cell once, in random order) takes about {words.show(plan.block_s)} ({basis}); "
        f"{limit}: about {words.plural(plan.blocks, 'block')}, {words.show(plan.blocks * plan.block_s)}."
    )


def _outlook(plan: Plan) -> str | None:
    """How many blocks the contrasts will take, and whether longer windows would make them fewer."""
    outlook = plan.outlook()
    if outlook is None:
        return None
    # The prediction goes no further than the protocol's most blocks.
    half, most = (f"{n} or more" if n == plan.rule.most else str(n) for n in (outlook.half, outlook.most))
    longer = "longer windows (protocol.window_s) help"
    advice = longer if outlook.within > 0.5 else "more blocks help, longer windows do not"
    return (
        f"At the spread seen here before, half of the contrasts reach ±{plan.matrix.protocol.ci_target_pct:g} % after "
        f"{half} blocks, nine in ten after {most}; {outlook.within:.0%} of that spread arises within windows: {advice}."
    )


def show_axes(console: Console) -> None:
    """Print the table of axes."""
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for heading in ("axis", "default", "values", "what it is"):
        table.add_column(heading, no_wrap=heading in ("axis", "default"))
    for axis in AXES:
        least = f"≥ {axis.least or 0:g}"
        kind = {bool: "false, true", int: f"whole numbers {least}", float: f"numbers {least}"}
        values = ", ".join(axis.choices()) if axis.choices else kind[axis.type]
        default = str(axis.default).lower() if axis.type is bool else str(axis.default)
        table.add_row(axis.name, default, values, axis.doc)
    console.print(table)
