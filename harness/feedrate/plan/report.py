"""The plan as text: what would run here, what would not, and how long it takes."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from feedrate.plan.request import Here
from feedrate.plan.schedule import BLOCKS_WANTED, Plan
from feedrate.schema import words
from feedrate.schema.axes import AXES


def show(here: Here, console: Console) -> None:
    """Print a plan: cells, merged and excluded combinations with reasons, time for a block, blocks, what to cut."""
    plan = here.plan
    device = here.machine.gpu_name if plan.place.device == "cuda" else f"{here.machine.cores_logical} cores, no GPU"
    console.print(f"{here.machine.machine_id}: {here.machine.cpu_model}, {device}", highlight=False, markup=False)
    console.print(
        f"{plan.matrix.path}, profile {plan.matrix.profile}: {plan.combinations:,} combinations → "
        f"{len(plan.cells):,} cells on this machine",
        highlight=False,
        markup=False,
        style="bold",
    )
    for counted in plan.merged:
        console.print(f"  − {counted.count:,} merged: {counted.reason}", highlight=False, markup=False)
    for counted in plan.excluded:
        console.print(f"  − {counted.count:,} left out: {counted.reason}", highlight=False, markup=False)
    if plan.ceilings:
        console.print(
            f"  + {len(plan.ceilings):,} added: stages of the training cells, each alone (their ceilings)",
            highlight=False,
            markup=False,
        )
    console.print(_axes_swept(plan))
    for line in plan.substitutions:
        console.print(f"  {line}", highlight=False, markup=False)
    _time(plan, console)


def _axes_swept(plan: Plan) -> Table:
    """The axes that take more than one value, and how many cells have each."""
    table = Table(box=None, padding=(0, 2), show_header=False)
    for axis in AXES:
        values = list(dict.fromkeys(cell.axes[axis.name] for cell in plan.cells if axis.name in cell.axes))
        if len(values) > 1:
            counts = [(value, sum(cell.axes.get(axis.name) == value for cell in plan.cells)) for value in values]
            table.add_row(axis.name, ", ".join(f"{value} ({count})" for value, count in counts))
    return table


def _time(plan: Plan, console: Console) -> None:
    basis = "as measured here before" if plan.measured_share > 0.9 else "estimated; the first run here will tell"
    limit = "no budget" if plan.matrix.budget_s is None else f"budget {words.show(plan.matrix.budget_s)}"
    console.print(
        f"A block (every cell once, in random order) takes about {words.show(plan.block_s)} ({basis}); "
        f"{limit}: about {plan.blocks} block{'s' * (plan.blocks != 1)}, {words.show(plan.blocks * plan.block_s)}.",
        highlight=False,
    )
    _outlook(plan, console)
    if cuts := plan.cuts():
        console.print(
            f"Fewer than {BLOCKS_WANTED} blocks decide little. Raise BUDGET to "
            f"{words.show(plan.block_s * BLOCKS_WANTED)}, or leave out:",
            style="yellow",
            highlight=False,
        )
        for cut in cuts:
            console.print(f"  {cut}", style="yellow", highlight=False)


def _outlook(plan: Plan, console: Console) -> None:
    """How many blocks the contrasts will take, and whether longer windows would make them fewer."""
    if found := plan.outlook():
        # The prediction goes no further than the protocol's most blocks.
        half, most = (f"{n} or more" if n == plan.rule.most else str(n) for n in (found.half, found.most))
        advice = (
            "longer windows (protocol.window_s) help"
            if found.within > 0.5
            else "more blocks help, longer windows do not"
        )
        console.print(
            f"At the spread seen here before, half of the contrasts reach ±{plan.matrix.protocol.ci_target_pct:g} % "
            f"after {half} blocks, nine in ten after {most}; {found.within:.0%} of that spread arises "
            f"within windows: {advice}.",
            highlight=False,
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
