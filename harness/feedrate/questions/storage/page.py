"""Storage on a suite's page: which format to use, and what each takes on disk.

"If your images are X and your disk is Y, use Z" comes from the run's own numbers. A suite with another question, and a
run that compares fewer than two formats, show nothing of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from feedrate.analysis.crossfit import LEAST_BLOCKS
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.storage import BUSY_PCT, WAITING_PCT, format_costs, plainest
from feedrate.analysis.summary import LOAD
from feedrate.machine.identity import Storage
from feedrate.pages import descriptions
from feedrate.pages.headlines import RULE, sized_name
from feedrate.pages.markup import two_lines
from feedrate.pages.runs import RunView
from feedrate.pages.template import render
from feedrate.questions.storage.analysis import LOSSY, SMALL, SPACE, SPEED, choices
from feedrate.questions.storage.charts import STORES
from feedrate.schema import words
from feedrate.schema.axes import EMULATED_STEPS, PHOTOGRAPHS

SUITE = "storage"
"""The suite that asks about storage formats; others choose theirs for another question."""
_DISKS = {
    "nvme": "an NVMe disk",
    "ssd": "a solid-state disk",
    "hdd": "a spinning disk",
    "virtual": "a virtual disk",
    "network": "network storage",
    "flash card": "a flash card",
    "memory": "memory",
}
Row = Mapping[str, Any]
Choice = Mapping[str, Sequence[Row]]
"""Purpose to the settings that serve it, in the order of ``choices``."""


def sections(view: RunView, suite: str, path: str) -> tuple[str, str]:
    """Write what a run says of formats before and after the charts at ``path``; nothing where it compares none."""
    trials = view.trials_of(suite)
    if suite != SUITE or (costs := format_costs(trials))["storage_format"].nunique() < 2:
        return "", ""
    chosen = _questions(choices(trials))
    usual = [choice for choice in chosen if _is_usual(choice[SPEED][0])]
    # One repetition orders settings by chance.
    firm = [choice[SPEED] for choice in usual if choice[SPEED][0]["n"] >= LEAST_BLOCKS]
    ties = Counter(name for best in firm for name in dict.fromkeys(str(row["storage_format"]) for row in best))
    most = max(ties.values(), default=0)
    disk = view.manifest.machine.storage
    answers = render(
        "storage/answers.md",
        path=path,
        rule=RULE,
        mark=view.mark,
        best=[name for name, count in ties.items() if count == most],
        most=most,
        cases=len(firm),
        busy=BUSY_PCT,
        waiting=WAITING_PCT,
        small=100 * SMALL,
        usual=[_use_cells(choice, disk) for choice in usual],
        other=[_use_cells(choice, disk) for choice in chosen if not _is_usual(choice[SPEED][0])],
    )
    images: dict[str, list[Row]] = {}
    for row in sorted(rows_of(plainest(costs[costs["sample_bytes"].notna()])), key=_rank):
        images.setdefault(words.sized(row["workload"], row["patch_size"]), []).append(row)
    sizes = [(name, _size_rows(rows)) for name, rows in images.items()]
    return answers, render("storage/details.md", mark=view.mark, sizes=sizes)


def _rank(row: Row) -> tuple[Any, ...]:
    """Loading alone first, photographs before others, small ones, any order, warm and few workers first."""
    return (
        row["mode"] != LOAD,
        row["workload"] not in PHOTOGRAPHS,
        str(row["workload"]),
        int(row["patch_size"]) if words.is_number(row["patch_size"]) else 0,
        row["access"] != "random",
        row["page_cache"] != "warm",
        int(row["n_samples"]),
        int(row["num_workers"]),
    )


def _questions(chosen: pd.DataFrame) -> list[Choice]:
    """What serves each question that compares two formats, or one with a format that loses information."""
    questions: list[Choice] = []
    for _, cells in chosen.groupby("question"):
        choice = {str(purpose): rows_of(best) for purpose, best in cells.groupby("purpose")}
        if SPEED in choice and (choice[SPEED][0]["formats"] > 1 or LOSSY in choice):
            questions.append(choice)
    return sorted(questions, key=lambda choice: _rank(choice[SPEED][0]))


def _is_usual(row: Row) -> bool:
    return bool(row["mode"] == LOAD and row["access"] == "random")


def _use_cells(choice: Choice, disk: Storage | None) -> list[str]:
    """A row of the table of uses."""
    row = choice[SPEED][0]
    step = f"before an emulated step of {row['step_ms']:g} ms" if row["step"] in EMULATED_STEPS else ""
    return [
        two_lines(sized_name(row), f"{int(row['n_samples']):,} samples", step),
        two_lines(*_where(row, disk)),
        _use(choice[SPEED]),
        two_lines(
            words.number(row["samples_per_s"]), words.interval(row["lo"], row["hi"]), f"n\u00a0=\u00a0{row['n']}"
        ),
        _size(row) or "–",
        *(_compare(choice.get(purpose), row) for purpose in (SPACE, LOSSY)),
    ]


def _where(row: Row, disk: Storage | None) -> Iterator[str]:
    """Where samples come from; of a cold cache whether the disk is what limits."""
    ordered = "in any order" if row["access"] == "random" else "in the order of the disk"
    if row["page_cache"] == "warm":
        yield from ("warm, from memory", ordered)
        return
    other = "cold cache" if row["page_cache"] == "cold" else "full: memory holds a part"
    yield f"cold, from {disk_words(disk)}" if row["disk_limits"] else other
    yield ordered
    if words.is_number(row["read_mb_s"]):
        yield f"{words.number(row['read_mb_s'])}\u00a0MB/s read"


def disk_words(disk: Storage | None) -> str:
    """Name the kind of disk that a run's data lay on."""
    if disk is None:
        return "the disk"
    kind = _DISKS.get(disk.device_class, "a disk of unknown kind")
    return f"{kind} ({disk.file_system})" if disk.file_system else kind


def _use(best: Sequence[Row]) -> Markup:
    name, _, rest = descriptions.knobs(best[0]).partition(", ")
    ties = list(dict.fromkeys(str(row["storage_format"]) for row in best))[1:]
    return two_lines(
        Markup("<strong>{}</strong>, {}").format(name, rest),
        f"ties with {words.listed(ties)}" if ties else "",
        f"of {words.plural(int(best[0]['formats']), 'format')}, {words.plural(int(best[0]['candidates']), 'setting')}",
    )


def _size(row: Row) -> str:
    """Bytes of a sample on disk, and what share of raw pixels that is; nothing where it was not recorded."""
    if not words.is_number(row["sample_bytes"]):
        return ""
    share = f", {float(row['raw_share']):.2f}\u00a0×\u00a0raw" if words.is_number(row["raw_share"]) else ""
    return f"{_kilobytes(row)} a sample{share}"


def _kilobytes(row: Row) -> str:
    return f"{words.number(float(row['sample_bytes']) / 1000)}\u00a0kB"


def _compare(candidates: Sequence[Row] | None, best: Row) -> str:
    """The first of another set: its settings, rate, size, and how it compares with the fastest without loss."""
    if not candidates:
        return "–"
    row = candidates[0]
    if row["cell_id"] == best["cell_id"]:
        return f"the same: {row['storage_format']}"
    rate = f"{words.number(float(row['samples_per_s']))}\u00a0samples/s"
    if words.is_number(row["ratio_to_best"]):
        ends = row["ratio_to_best"], row["ratio_lo"], row["ratio_hi"]
        ratio = words.estimate(ends, "ratio", " the fastest", row["pairs"], "{:.2f}".format)
        rate += f", {ratio}"
    name, _, rest = descriptions.knobs(row).partition(", ")
    return two_lines(f"{name}{' (lossy)' if row['lossy'] else ''}, {rest}", rate, _size(row))


def _size_rows(cells: Sequence[Row]) -> list[list[str]]:
    """What the largest set of each format takes, the smallest samples first; CPU and first batch from memory."""
    sets = {str(row["storage_format"]): row for row in sorted(cells, key=lambda row: int(row["n_samples"]))}
    loads = [row for row in reversed(cells) if row["page_cache"] == "warm" and row["mode"] == LOAD]
    warm = {str(row["storage_format"]): row for row in loads}
    rows = []
    for name, row in sorted(sets.items(), key=lambda pair: (float(pair[1]["sample_bytes"]), pair[0])):
        packing = "–"
        if words.is_number(row["pack_s"]):
            seconds = float(row["pack_s"])
            packing = two_lines(f"{words.number(seconds)} s", f"{words.number(float(row['n_samples']) / seconds)}/s")
        stores = STORES.get(str(row["stores"]), str(row["stores"]))
        share = f"{float(row['raw_share']):.2f}" if words.is_number(row["raw_share"]) else "–"
        costs = [_cost(warm.get(name, {}), *cost) for cost in (("cpu_us", "µs"), ("startup_ms", "ms"))]
        first = two_lines(Markup("<strong>{}</strong>").format(name), stores)
        rows.append([first, _kilobytes(row), share, *costs, packing])
    return rows


def _cost(row: Row, column: str, unit: str) -> str:
    """A cost with its interval."""
    if not words.is_number(row.get(column)):
        return "–"
    interval = words.interval(row[f"{column}_lo"], row[f"{column}_hi"])
    return two_lines(f"{words.number(float(row[column]))} {unit}", interval)
