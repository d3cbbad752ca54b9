"""The end of a sweep on the terminal: best settings, what bounds them, defaults against best, files, what is next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from feedrate.analysis.ceilings import cells_with_ceilings
from feedrate.analysis.contrasts import contrasts
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.loader import overlap, stages
from feedrate.analysis.noise import CRITERIA, grade
from feedrate.analysis.summary import CONDITIONS, KNOBS, best_cells, default_vs_best
from feedrate.plan import suite
from feedrate.plan.suite import CALIBRATION
from feedrate.questions.calibration import terminal as calibration_terminal
from feedrate.questions.claims import terminal as claims_terminal
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME
from feedrate.schema.columns import WORKER_STAGES
from feedrate.schema.metrics import SAME
from feedrate.store.runs import StoredRun

Row = Mapping[str, Any]
_STOPPED = {
    "target": "every question is answered as well as wanted",
    "budget": "the budget is used",
    "blocks": "the protocol's blocks are done",
    "interrupted": "interrupted",
}


def show(run: StoredRun, console: Console) -> None:
    """Print what a run found."""
    trials = run.table("trials")
    _quality(run, trials, console)
    if (trials["outcome"] == "ok").any():
        _tasks(trials[trials["suite"].map(suite.for_machines)], console)
        calibration_terminal.show(trials[trials["suite"].eq(CALIBRATION)], console)
        _contrasts(run, trials[~trials["suite"].map(suite.for_claims)], console)
        claims_terminal.show_run(run, console)
    _next(run, console)


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, markup=False, highlight=False)


def _quality(run: StoredRun, trials: pd.DataFrame, console: Console) -> None:
    """How the run ended, how quiet the machine was, and what failed."""
    manifest = run.manifest
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(manifest.outcomes.items()))
    _say(
        console,
        f"\nRun {manifest.run_id}: {words.plural(manifest.cells, 'cell')}, "
        f"{words.plural(manifest.blocks, 'whole block')}, trials: {outcomes} ({_STOPPED[manifest.stop_reason]}).",
        "bold",
    )
    for line in manifest.substitutions:
        _say(console, f"Note: {line}.")
    found = grade(trials, manifest.control)
    _say(console, f"Grade {found.letter} (A best, D worst; the worst of {len(CRITERIA)} criteria decides)", "bold")
    for sentence in found.reasons:
        _say(console, f"  {sentence}")
    failed = trials[trials["outcome"] != "ok"]
    for (outcome, kind, message), rows in failed.groupby(["outcome", "error_kind", "error_message"], dropna=False):
        _say(console, f"  {len(rows)} × {outcome}: {kind}: {message}", "yellow")


def task(row: Row) -> str:
    """A question's conditions in a line: what is done, on what."""
    mode = {"load": "loading alone", "compute": "step alone", "copy": "copy alone", "train": "training"}[row["mode"]]
    if row["mode"] == "train" and row["step"] == "emulated":
        mode = f"emulated {row['step_ms']:g} ms step"
    shown = {"workload", "mode", "step", "step_ms", "patch_size"}
    rest = {axis: row[axis] for axis in CONDITIONS if axis not in shown and not bool(pd.isna(row[axis]))}
    more = [f", {axis}={value}" for axis, value in rest.items() if value != BY_NAME[axis].default]
    return f"{mode} · {row['workload']} {row['patch_size']} px{''.join(more)}"


def settings(row: Row) -> str:
    """The knobs of a cell in a line; what does not apply is left out."""
    known = {axis: row[axis] for axis in KNOBS if not bool(pd.isna(row[axis]))}
    parts = [str(known.pop("storage_format"))] if "storage_format" in known else []
    parts.append(f"batch {known.pop('batch_size')}")
    if "num_workers" in known:
        parts.append(words.plural(int(known.pop("num_workers")), "worker"))
    changed = {name: value for name, value in known.items() if value != BY_NAME[name].default}
    parts += [name if value is True else f"{name}={value}" for name, value in changed.items()]
    return ", ".join(parts)


def rate(value: float, lo: float, hi: float, n: int) -> str:
    """Samples a second with the half-width of the 95 % interval and its blocks; one has none, and that is said."""
    if not math.isfinite(lo):
        return f"{value:,.0f} samples/s (one block: no interval)"
    half = (hi - lo) / 2 / value
    spread = f"± {100 * half:.1f} %" if half < 1 else "± over 100 %"
    return f"{value:,.0f} samples/s ({spread}, {n} blocks)"


def _tasks(trials: pd.DataFrame, console: Console) -> None:
    """Per task: the best cell and what bounds it, then the default settings against the best at each batch size."""
    loading = {row["cell_id"]: row for row in rows_of(stages(trials))}
    hidden = {row["cell_id"]: row["fetch_hidden"] for row in rows_of(overlap(trials))}
    rates = {row["cell_id"]: row for row in rows_of(cells_with_ceilings(trials))}
    members = best_cells(trials)
    members = members[members["mode"].isin(["train", "load"])].reset_index(drop=True)
    sizes = members.groupby((members["place"] == 0).cumsum()).size()
    defaults: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of(default_vs_best(trials).sort_values(["storage_format", "batch_size"])):
        defaults.setdefault(task(row), []).append(row)
    # Real training first, then the emulated step, then the loader alone.
    best = sorted(
        zip(rows_of(members[members["place"] == 0]), sizes, strict=True),
        key=lambda pair: (
            pair[0]["mode"] != "train",
            pair[0]["step"] != "real",
            str(pair[0]["workload"]),
            int(pair[0]["patch_size"]),
        ),
    )
    for row, size in best:
        _say(console, f"\n{task(row)}", "bold")
        _say(console, f"  best: {settings(row)}: {rate(row['samples_per_s'], row['lo'], row['hi'], row['n'])}")
        _say(console, f"  {_held_back(row, loading.get(row['cell_id']), hidden.get(row['cell_id'], math.nan))}")
        if size > 1:
            than = "" if row["is_best"] else f" ({row['ratio_to_best']:.2f}× the fastest)"
            _say(
                console,
                f"  the cheapest of {size} that cannot be told from the fastest, out of {row['candidates']}{than}",
            )
        if rows := defaults.get(task(row)):
            console.print(_against_defaults(rows, rates))


def _held_back(row: Row, loading: Row | None, fetch_hidden: float) -> str:
    """What holds a cell back, in a line."""
    parts = [row["bottleneck"]] if row["mode"] == "train" else []
    if math.isfinite(row["efficiency"]):
        parts.append(f"reaches {row['efficiency']:.0%} of its smallest ceiling")
    if math.isfinite(fetch_hidden):
        parts.append(f"{fetch_hidden:.0%} of loading is hidden behind the step")
    if loading is not None:
        shares = ", ".join(f"{stage} {loading[f'{stage}_share']:.0%}" for stage in WORKER_STAGES)
        parts.append(f"a sample's loading: {shares}")
    return "; ".join(parts)


def _against_defaults(rows: list[dict[str, Any]], rates: Mapping[str, Row]) -> Table:
    """PyTorch's default DataLoader settings against the best, same format and batch size."""
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name in ("", "defaults", "best settings", "ratio (95 %)", "verdict"):
        table.add_column(name, justify="right" if name == "defaults" else "left")
    for row in rows:
        data, default = f"{row['storage_format']}, batch {row['batch_size']}", rates[row["default_cell"]]
        if row["default_cell"] == row["best_cell"]:
            found = ["the defaults", "", ""]
        else:
            best = settings(rates[row["best_cell"]]).removeprefix(f"{data}, ")
            interval = f"({row['lo']:.2f}–{row['hi']:.2f})" if math.isfinite(row["lo"]) else "(one block)"
            found = [best, f"{row['ratio']:.2f}× {interval}", row["verdict"]]
        table.add_row(f" {data}", f"{default['samples_per_s']:,.0f}", *found)
    return table


def _contrasts(run: StoredRun, trials: pd.DataFrame, console: Console) -> None:
    """How many questions are answered, and how many intervals became as narrow as the protocol wants."""
    found = contrasts(trials[trials["role"].ne("ceiling").fillna(True)])
    if found.empty:
        return
    decided = found[found["verdict"] != "inconclusive"]
    clear = decided[decided["verdict"] != "no difference"]
    narrow = sum(one.reason == "target" for one in run.manifest.contrasts)
    _say(
        console,
        f"\n{len(decided)} of {len(found)} contrasts (two cells that differ in one axis) are decided: "
        f"{len(clear)} differ, {len(decided) - len(clear)} do not (within {100 * (SAME[1] - 1):.0f} %). {narrow} are "
        f"as narrow as wanted (±{run.manifest.protocol.ci_target_pct:g} % after {run.manifest.protocol.blocks[0]} "
        "blocks or more).",
    )


def _next(run: StoredRun, console: Console) -> None:
    parent = run.manifest.parent_cpu_pct
    _say(
        console,
        f"Files: {run.folder}/ (trials.parquet holds the whole result). The harness itself used {parent:.1f} % "
        "of one core.",
    )
    if run.manifest.stop_reason == "interrupted":
        _say(console, "What had ended is written; make sweep begins a new run.")
    same = " ".join(word for word in run.manifest.command.split() if not word.startswith("BUDGET="))
    budget = run.manifest.budget_s
    longer = f" Tighter intervals: {same} BUDGET={words.typed(4 * budget)}." if budget else ""
    _say(console, f"Next: make site builds the charts into build/site, make serve shows them.{longer}")
