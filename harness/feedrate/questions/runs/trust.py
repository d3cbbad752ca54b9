"""How far a run can be trusted: disturbed trials, noise, why it stopped, where its spread comes from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from feedrate.analysis import noise, variance
from feedrate.analysis.blocks import successful
from feedrate.analysis.estimates import rows_of
from feedrate.machine.probes import noise as rules
from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView
from feedrate.schema import words
from feedrate.schema.columns import TELEMETRY, TRIALS
from feedrate.store.manifest import Stopped

PARTS = {"within": "within windows", "between": "between trials", "drift": "drift"}
"""Parts of the spread between trials, in words."""
_IDLE = {"main_cpu_pct": 0.0, "workers_cpu_pct": 0.0, "read_bytes": 0}
"""A look at the machine is judged as a trial in which nothing of ours ran."""
_SPOKEN = {
    "cpu_util_pct": "CPU in use, all cores",
    "foreign_cpu_pct": "CPU of others",
    "steal_pct": "CPU taken by the hypervisor",
    "throttled_ns": "Stopped by a CPU quota",
    "cpu_pressure_pct": "Tasks waited for a CPU",
    "io_pressure_pct": "Tasks waited for storage",
    "memory_pressure_pct": "Tasks waited for memory",
    "load_1m": "Load average over a minute",
    "gpu_foreign_processes": "Processes of others on the GPU",
    "gpu_util_pct": "GPU in use",
}
"""What a look tells, in words; the mask of throttle reasons is left to the rules."""
_UNITS = {column.name: column.unit for column in (*TRIALS, *TELEMETRY)} | {
    "foreign_cpu_pct": "% of one core",
    "cpu_pressure_pct": "%",
}


def badge(page: str, view: RunView) -> Markup:
    """Write a run's grade as a link to the rules."""
    return markup.link(page, "methodology.md#grade", f"grade {view.grade.letter}", "fr-grade")


def values(view: RunView) -> dict[str, Any]:
    """Gather what the page of a run says of its trust: rows of tables, empty where there is nothing to say."""
    narrow, wide, failed = _split(view.manifest.contrasts)
    return {
        "disturbed": list(_disturbed(view)),
        "looks": list(_looks(view)),
        "narrow": narrow,
        "wide": wide,
        "failed_contrasts": failed,
        "by_axis": list(_by_axis(view.manifest.contrasts)),
        "blocks_of": _blocks,
        "spread": view.spread if view.spread and words.known(view.spread["total_sd"]) else None,
        "parts": PARTS,
        "spread_rows": list(_spread(view.spread)) if view.spread else [],
    }


def has_flags(view: RunView) -> bool:
    """Say whether a run recorded roles and flags at all."""
    return bool(view.trials["role"].notna().any())


def _disturbed(view: RunView) -> Iterator[tuple[str, ...]]:
    """Which flags how many trials carry."""
    ended = successful(view.trials)
    if not len(ended) or not has_flags(view):
        return
    for row in rows_of(noise.flagged(ended)):
        if row["watched"] or row["trials"]:
            link = markup.link(view.page, f"methodology.md#flag-{row['flag']}", row["flag"])
            worst = f"{words.number(row['worst'])} {row['unit']}" if words.known(row["worst"]) else "–"
            yield link, f"{row['trials']:,}", words.percent(row["share"]), worst


def _looks(view: RunView) -> Iterator[tuple[str, ...]]:
    """What a look at the machine saw before and after the run."""
    sides = (view.manifest.noise_before, view.manifest.noise_after)
    if not any(sides):
        return
    for name, spoken in _SPOKEN.items():
        if any(side.get(name) is not None for side in sides):
            yield spoken, *(_seen(name, side.get(name)) for side in sides)
    judged = (rules.flags({**side, **_IDLE}) or "quiet" if side else "no look" for side in sides)
    yield Markup("<strong>By the rules for trials</strong>"), *judged


def _seen(name: str, value: float | None) -> str:
    if value is None:
        return "not told"
    if name.endswith("_ns"):
        return f"{words.number(value / 1e6)} ms"
    unit = _UNITS.get(name, "")
    return f"{words.number(float(value), 2)}{f' {unit}' if unit else ''}"


def _split(contrasts: Sequence[Stopped]) -> tuple[list[Stopped], list[Stopped], list[Stopped]]:
    """Narrow enough, still wide, failed."""
    narrow = [one for one in contrasts if one.reason == "target"]
    failed = [one for one in contrasts if one.reason == "failed"]
    return narrow, [one for one in contrasts if one.reason not in ("target", "failed")], failed


def _blocks(contrasts: Sequence[Stopped]) -> str:
    counts = [one.blocks for one in contrasts]
    return words.plural(counts[0], "block") if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} blocks"


def _by_axis(contrasts: Sequence[Stopped]) -> Iterator[tuple[str, ...]]:
    """How far the contrasts in each axis had come."""
    axes: defaultdict[str, list[Stopped]] = defaultdict(list)
    for one in contrasts:
        axes[one.axis].append(one)
    for axis, own in axes.items():
        yield markup.code(axis), f"{len(own):,}", *(f"{len(part):,}" for part in _split(own)), _blocks(own)


def _spread(found: Mapping[str, float]) -> Iterator[tuple[str, ...]]:
    """Each part of the spread between trials, and its share of the variance."""
    whole = sum(found[f"{part}_sd"] ** 2 for part in variance.PARTS)
    for part in variance.PARTS:
        share = words.percent(found[f"{part}_sd"] ** 2 / whole) if whole else "–"
        yield PARTS[part].capitalize(), f"{100 * found[f'{part}_sd']:.1f} %", share
    yield Markup("<strong>All</strong>"), f"{100 * found['total_sd']:.1f} %", ""


def added(view: RunView) -> dict[str, str]:
    """Name what the harness ran beside the cells that were asked for, as facts of the run."""
    run, found = view.manifest, dict[str, str]()
    if run.ceilings:
        text = f"{words.plural(run.ceilings, 'cell')}: stages of training cells, each alone"
        found["Ceilings added"] = markup.link(view.page, "methodology.md#ceilings", text)
    if run.control:
        own = view.trials[view.trials["cell_id"].eq(run.control).fillna(False)]
        name = descriptions.setting(own.iloc[0].to_dict()) if len(own) else run.control
        found["Control cell"] = f"{name}: {words.plural(len(own), 'trial')}"
    return found
