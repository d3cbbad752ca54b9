"""How far a run can be trusted: its grade, disturbed trials, noise, why it stopped, where its spread comes from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from html import escape

import pandas as pd

from feedrate.analysis import noise
from feedrate.analysis.blocks import successful
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.variance import PARTS
from feedrate.machine.probes import noise as rules
from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView
from feedrate.schema import words
from feedrate.schema.columns import TELEMETRY, TRIALS
from feedrate.store.manifest import Stopped

RULES = "methodology.md#grade"
STOPPED = {
    "target": "every question is answered as well as the protocol wants",
    "blocks": "the most blocks that the protocol allows had run",
    "budget": "the time that it was given was used up",
    "interrupted": "somebody stopped it",
}
PARTS_SPOKEN = {"within": "within windows", "between": "between trials", "drift": "drift"}
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


def badge(page: str, shown: RunView) -> str:
    """Write a run's grade as a link to the rules."""
    return markup.link(page, RULES, f"grade {shown.grade.letter}", "fr-grade")


def verdict(shown: RunView) -> str:
    """Write the grade as a letter with its reasons."""
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in shown.grade.reasons)
    rules_link = markup.link(shown.page, RULES, "The rules are stated")
    return (
        f'<div class="fr-verdict"><p class="fr-letter"><span class="fr-hidden">Grade </span>{shown.grade.letter}</p>'
        f"<div><ul>{reasons}</ul>"
        f'<p class="fr-note">The worst criterion gives the grade. It says how quiet the machine was and how often it '
        f"was asked; the intervals carry the noise that is there. {rules_link}.</p></div></div>\n"
    )


def disturbed(shown: RunView) -> str:
    """Write which flags how many trials carry; nothing for a run that recorded none."""
    ended = successful(shown.trials)
    if not len(ended) or not flags(shown.trials):
        return ""
    found = [row for row in rows_of(noise.flagged(ended)) if row["watched"] or row["trials"]]
    rows = [
        (
            markup.link(shown.page, f"methodology.md#flag-{row['flag']}", row["flag"]),
            f"{row['trials']:,}",
            words.percent(row["share"]),
            f"{words.number(row['worst'])} {escape(row['unit'])}" if words.known(row["worst"]) else "–",
        )
        for row in found
    ]
    unwatched = shown.grade.unwatched
    note = f"This machine tells nothing of: {', '.join(unwatched)}." if unwatched else ""
    table = markup.table("Flags of trials", ("Flag", "Trials", "Share", "Worst"), rows, ("Trials", "Share", "Worst"))
    return table + (markup.paragraph(note, "fr-note") if note else "")


def looks(shown: RunView) -> str:
    """Write what a look at the machine saw before and after the run; nothing where it was not recorded."""
    sides = (shown.manifest.noise_before, shown.manifest.noise_after)
    if not any(sides):
        return ""
    rows = [
        (escape(spoken), *(_seen(name, side.get(name)) for side in sides))
        for name, spoken in _SPOKEN.items()
        if any(side.get(name) is not None for side in sides)
    ]
    rows.append(("<strong>By the rules for trials</strong>", *(_judged(side) for side in sides)))
    return markup.paragraph(
        "The machine was watched for a moment while feedrate itself did nothing. A quiet second promises no quiet "
        "hour, so every trial is watched as well."
    ) + markup.table("A look at the machine before and after", ("What", "Before", "After"), rows, ("Before", "After"))


def _seen(name: str, value: float | None) -> str:
    if value is None:
        return "not told"
    if name.endswith("_ns"):
        return f"{words.number(value / 1e6)} ms"
    unit = _UNITS.get(name, "")
    return f"{words.number(float(value), 2)}{f' {escape(unit)}' if unit else ''}"


def _judged(side: Mapping[str, float | None]) -> str:
    return escape(rules.flags({**side, **_IDLE}) or "quiet") if side else "no look"


def stopped(shown: RunView) -> str:
    """Write why the run stopped and how far its contrasts had come."""
    run = shown.manifest
    why = STOPPED.get(run.stop_reason, run.stop_reason)
    said = f"It stopped after {words.plural(run.blocks, 'whole block')}: {why}. {_contrasts(run.contrasts)}"
    target, fewest = run.protocol.ci_target_pct, run.protocol.blocks[0]
    if run.contrasts:
        said += (
            f" A contrast, two settings that differ in one axis, is narrow enough when its 95\u00a0% interval is "
            f"±{target:g}\u00a0% or less, after {fewest} blocks or more."
        )
    return markup.paragraph(said.strip()) + _by_axis(run.contrasts)


def _split(contrasts: Sequence[Stopped]) -> tuple[list[Stopped], list[Stopped], list[Stopped]]:
    """Narrow enough, still wide, failed."""
    narrow = [one for one in contrasts if one.reason == "target"]
    failed = [one for one in contrasts if one.reason == "failed"]
    return narrow, [one for one in contrasts if one.reason not in ("target", "failed")], failed


def _contrasts(contrasts: Sequence[Stopped]) -> str:
    if not contrasts:
        return ""
    narrow, wide, failed = _split(contrasts)
    said = f"Of {words.plural(len(contrasts), 'contrast')}, {len(narrow):,} became narrow enough"
    said += f" ({_blocks(narrow)})" if narrow else ""
    said += f", {len(wide):,} were still wider ({_blocks(wide)})" if wide else ", none was left wider"
    return f"{said}, {len(failed):,} had a side that only failed." if failed else f"{said}."


def _blocks(contrasts: Sequence[Stopped]) -> str:
    counts = [one.blocks for one in contrasts]
    return words.plural(counts[0], "block") if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} blocks"


def _by_axis(contrasts: Sequence[Stopped]) -> str:
    axes: defaultdict[str, list[Stopped]] = defaultdict(list)
    for one in contrasts:
        axes[one.axis].append(one)
    rows = []
    for axis, own in axes.items():
        narrow, wide, failed = (f"{len(part):,}" for part in _split(own))
        rows.append((markup.code(axis), f"{len(own):,}", narrow, wide, failed, _blocks(own)))
    columns = ("Axis", "Contrasts", "Narrow enough", "Still wider", "Failed", "After")
    return markup.table("Contrasts by axis", columns, rows, columns[1:], stack=True) if rows else ""


def spread(shown: RunView) -> str:
    """Write where the spread between trials comes from and what would lessen it; nothing where too few trials ran."""
    found = shown.spread
    if found is None or not words.known(found["total_sd"]):
        return ""
    rows = [
        (escape(PARTS_SPOKEN[part].capitalize()), f"{100 * found[f'{part}_sd']:.1f} %", _share(found, part))
        for part in PARTS
    ]
    rows.append(("<strong>All</strong>", f"{100 * found['total_sd']:.1f} %", ""))
    said = f"Trials of one setting vary by {100 * found['total_sd']:.1f}\u00a0% (standard deviation, average cell)"
    if found["largest"]:
        said += f", most of it {PARTS_SPOKEN[found['largest']]}."
    if found["advice"]:
        said += f" For intervals of ±{shown.manifest.protocol.ci_target_pct:g}\u00a0%: {found['advice']}."
    table = markup.table(
        "Where the spread comes from",
        ("Part", "Spread", "Share of the variance"),
        rows,
        ("Spread", "Share of the variance"),
    )
    link = markup.link(shown.page, "methodology.md#variance", "How the parts are told apart")
    return markup.paragraph(said) + table + f'<p class="fr-note">{link}.</p>\n'


def _share(found: Mapping[str, float], part: str) -> str:
    whole = sum(found[f"{name}_sd"] ** 2 for name in PARTS)
    return words.percent(found[f"{part}_sd"] ** 2 / whole) if whole else "–"


def added(shown: RunView) -> Iterator[tuple[str, str]]:
    """Name what the harness ran beside the cells that were asked for, as facts of the run."""
    run = shown.manifest
    if run.ceilings:
        text = f"{words.plural(run.ceilings, 'cell')}: stages of training cells, each alone"
        yield "Ceilings added", markup.link(shown.page, "methodology.md#ceilings", text)
    if run.control:
        own = shown.trials[shown.trials["cell_id"].eq(run.control).fillna(False)]
        name = descriptions.setting(own.iloc[0].to_dict()) if len(own) else run.control
        yield "Control cell", f"{escape(name)}: {words.plural(len(own), 'trial')}"


def flags(trials: pd.DataFrame) -> bool:
    """Say whether a run recorded roles and flags at all."""
    return bool(trials["role"].notna().any())
