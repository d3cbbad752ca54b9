"""Storage on a suite's page: which effect is larger, which format to use, what each takes on disk.

"If your images are X and your disk is Y, use Z" comes from the run's own numbers. A suite with another question, and a
run that compares fewer than two formats, show nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from markupsafe import Markup

from feedrate.analysis.contrasts import contrasts
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.storage import BUSY_PCT, OWN, WAITING_PCT, credible, format_costs
from feedrate.analysis.summary import LOAD
from feedrate.machine.identity import Storage
from feedrate.pages import descriptions
from feedrate.pages.headlines import RULE, sized_name
from feedrate.pages.markup import code, two_lines
from feedrate.pages.runs import RunView
from feedrate.pages.template import render
from feedrate.questions.storage.analysis import CONTAINER, LOSSY, NEITHER, PIXELS, SPACE, SPEED, choices, larger
from feedrate.questions.storage.charts import STORES
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME, EMULATED_STEPS, PHOTOGRAPHS
from feedrate.schema.plugins import traits

SUITE = "storage"
"""The suite that asks about storage formats; others choose theirs for another question."""
_KNOBS = (*OWN, "access")
_DISKS = {
    "nvme": "an NVMe disk",
    "ssd": "a solid-state disk",
    "hdd": "a spinning disk",
    "virtual": "a virtual disk",
    "network": "network storage",
    "flash card": "a flash card",
    "memory": "memory",
}
_USE_COLUMNS = (
    *("If your images are", "and are read", "use", "Samples/s"),
    *("On disk", "If disk space matters", "With loss"),
)
_LARGER = {
    PIXELS: "the encoding matters more",
    CONTAINER: "the container matters more",
    NEITHER: "encoding and container are too close to call",
}
Row = Mapping[str, Any]


def sections(view: RunView, suite: str, path: str) -> tuple[str, str]:
    """Write what a run says of formats before and after the charts at ``path``; nothing where it compares none."""
    trials = view.trials_of(suite) if suite == SUITE else view.trials.iloc[:0]
    costs = format_costs(trials)
    if costs["storage_format"].nunique() < 2:
        return "", ""
    effects = _first_of_each_setting(larger(trials))
    uses = list(_uses(choices(trials), view.manifest.machine.storage))
    answers = render(
        "storage/answers.md",
        path=path,
        rule=RULE,
        mark=view.mark,
        answer=compare_effects(effects) if effects else "",
        busy=BUSY_PCT,
        waiting=WAITING_PCT,
        usual=_measured_columns([cells for is_usual, cells in uses if is_usual]),
        other=_measured_columns([cells for is_usual, cells in uses if not is_usual]),
    )
    sizes: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows_of(costs[costs["sample_bytes"].notna()]):
        sizes.setdefault(_rank(row)[1:4], []).append(row)
    details = render(
        "storage/details.md",
        mark=view.mark,
        sizes=[(words.sized(key[1], key[2] or None), _size_rows(rows)) for key, rows in sorted(sizes.items())],
        knobs=list(knob_effects(credible(trials))),
    )
    return answers, details


def _rank(row: Row) -> tuple[Any, ...]:
    """Loading alone first, photographs before others, small before large, any order before the disk's, warm first."""
    return (
        row["mode"] != LOAD,
        row["workload"] not in PHOTOGRAPHS,
        str(row["workload"]),
        int(row["patch_size"]) if words.is_number(row["patch_size"]) else 0,
        row["access"] != "random",
        row["page_cache"] != "warm",
    )


def _first_of_each_setting(effects: pd.DataFrame) -> list[Row]:
    """Keep the effects with the fewest workers and the smallest batch of each setting."""
    firsts: dict[tuple[Any, ...], Row] = {}
    for row in sorted(rows_of(effects), key=lambda row: (*_rank(row), row["num_workers"], row["batch_size"])):
        firsts.setdefault(_rank(row), row)
    return list(firsts.values())


def compare_effects(rows: Sequence[Row]) -> str:
    """Say over all settings which effect is larger, and how large both are."""
    counts = {name: sum(row["larger"] == name for row in rows) for name in _LARGER}
    most = max(counts, key=lambda name: counts[name])
    share = "In every setting" if counts[most] == len(rows) else f"In {counts[most]} of {len(rows)} settings"
    verdict = _LARGER[most] + {PIXELS: " than the container", CONTAINER: " than the encoding"}.get(most, "")
    others = [f"in {n} {_LARGER[name]}{_times(rows, name)}" for name, n in counts.items() if n and name != most]
    pixels, container = (_range(row[f"{name}_ratio"] for row in rows) for name in (PIXELS, CONTAINER))
    formats = {pair.partition(" ")[0] for row in rows for pair in str(row["pixels_pairs"]).split(", ")}
    encoded = sorted({STORES.get(kind, kind) for kind in (traits(name).stores for name in formats)})
    return (
        f"{share} {verdict}{_times(rows, most)}{'; ' if others else ''}{words.listed(others)}. In the same container, "
        f"decoded pixels load {pixels} as fast as {' or '.join(encoded)}. Of containers with the same bytes, the "
        f"fastest loads {container} as fast as the slowest (fewest workers measured)."
    )


def _times(rows: Sequence[Row], effect: str) -> str:
    """How many times the other effect an effect is, where it is the larger one."""
    times = [row["times"] if effect == PIXELS else 1 / row["times"] for row in rows if row["larger"] == effect]
    return f" ({_range(times)} the other effect)" if times and effect != NEITHER else ""


def _range(ratios: Iterable[float]) -> str:
    values = list(ratios)
    low, high = words.number(min(values), 2), words.number(max(values), 2)
    return f"{high} times" if low == high else f"{low} to {high} times"


def _step(row: Row) -> str:
    return f"before an emulated step of {row['step_ms']:g} ms"


def _uses(chosen: pd.DataFrame, disk: Storage | None) -> Iterator[tuple[bool, list[str]]]:
    """Cells of a row a question with two formats or more, and whether it is the usual one: loading, in any order."""
    questions: dict[tuple[Any, ...], dict[str, list[Row]]] = {}
    for cell in rows_of(chosen):
        key = (*_rank(cell), str(cell["step_ms"]), str(cell["scale"]), int(cell["n_samples"]))
        questions.setdefault(key, {}).setdefault(cell["purpose"], []).append(cell)
    several = len({key[:-1] for key in questions}) < len(questions)
    batches = len(chosen) > 0 and chosen["batch_size"].nunique() > 1
    for _, purposes in sorted(questions.items(), key=lambda pair: pair[0]):
        best = purposes.get(SPEED)
        if best is None or (best[0]["formats"] < 2 and LOSSY not in purposes):
            continue
        row = best[0]
        name = sized_name(row)
        kind = [
            _step(row) if row["step"] in EMULATED_STEPS else "",
            f"{int(row['n_samples']):,} samples" if several else "",
        ]
        spread = Markup('<br><span class="fr-kind fr-whole">{},</span>').format(words.interval(row["lo"], row["hi"]))
        cells = [
            two_lines(name, ", ".join(filter(None, kind))),
            two_lines(*_where(row, disk)),
            _use(best, batches=batches),
            two_lines(words.number(float(row["samples_per_s"])) + spread, f"n\u00a0=\u00a0{row['n']}"),
            Markup("<br>").join(_size(row)),
            *(_compare(purposes.get(purpose), row, batches=batches) for purpose in (SPACE, LOSSY)),
        ]
        yield bool(row["mode"] == LOAD and row["access"] == "random"), cells


def _where(row: Row, disk: Storage | None) -> Iterator[str]:
    """Where samples come from; of a cold cache whether the disk is what limits, and what says so."""
    ordered = "in any order" if row["access"] == "random" else "in the order of the disk"
    if row["page_cache"] == "warm":
        yield from ("warm, from memory", ordered)
        return
    yield f"cold, from {disk_words(disk)}" if row["disk_limits"] else "cold cache"
    yield ordered
    if words.is_number(row["read_mb_s"]):
        yield f"{words.number(row['read_mb_s'])}\u00a0MB/s read"
    for name, what in (("busy_pct", "CPUs {} busy"), ("io_pressure_pct", "{} waiting for storage")):
        if words.is_number(row[name]):
            yield what.format(words.percent(row[name] / 100))


def _measured_columns(rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the table of uses, without the columns that nothing is known of."""
    kept = [index for index in range(len(_USE_COLUMNS)) if any(row[index] for row in rows)]
    return [_USE_COLUMNS[index] for index in kept], [[row[index] or "–" for index in kept] for row in rows]


def disk_words(disk: Storage | None) -> str:
    """Name the kind of disk that a run's data lay on."""
    if disk is None:
        return "the disk"
    kind = _DISKS.get(disk.device_class, "a disk of unknown kind")
    return f"{kind} ({disk.file_system})" if disk.file_system else kind


def _use(best: Sequence[Row], *, batches: bool) -> Markup:
    row = best[0]
    formats = list(dict.fromkeys(str(cell["storage_format"]) for cell in best))
    return two_lines(
        Markup("<strong>{}</strong>, {}").format(formats[0], _settings(row, batches=batches)),
        _shuffling(row),
        f"as near to the fastest: {words.listed(formats[1:])}" if len(formats) > 1 else "",
        f"of {words.plural(int(row['formats']), 'format')}, {words.plural(int(row['candidates']), 'setting')}",
    )


def _settings(row: Row, *, batches: bool) -> str:
    """What can be chosen beside the format; the batch size only where several were measured."""
    text = descriptions.knobs(row).removeprefix(f"{row['storage_format']}, ")
    return text if batches else text.removeprefix(f"batch {row['batch_size']}, ")


def _shuffling(row: Row) -> str:
    if not row["streamed"]:
        return ""
    size = int(row["shuffle_buffer"]) if words.is_number(row["shuffle_buffer"]) else 0
    buffer = f"each worker shuffles within {size:,} samples" if size else "no shuffle buffer"
    return f"streamed: shards in random order, {buffer}"


def _size(row: Row) -> Iterator[str]:
    if words.is_number(row["sample_bytes"]):
        yield f"{_kilobytes(row)} a sample"
        if words.is_number(row["raw_share"]):
            yield f"{float(row['raw_share']):.2f}\u00a0×\u00a0raw"


def _kilobytes(row: Row) -> str:
    return f"{words.number(float(row['sample_bytes']) / 1000)}\u00a0kB"


def _compare(candidates: Sequence[Row] | None, best: Row, *, batches: bool) -> str:
    """The cheapest of another set: its settings, rate, size, and how it compares with the fastest without loss."""
    if not candidates:
        return ""
    row = candidates[0]
    if row["cell_id"] == best["cell_id"]:
        return f"the same: {row['storage_format']}"
    rate = f"{words.number(float(row['samples_per_s']))}\u00a0samples/s"
    if words.is_number(row["ratio_to_best"]):
        ends = row["ratio_to_best"], row["ratio_lo"], row["ratio_hi"]
        rate += f", {words.estimate(ends, 'ratio', write='{:.2f}'.format)}"
    first = f"{row['storage_format']}{' (lossy)' if row['lossy'] else ''}, {_settings(row, batches=batches)}"
    return two_lines(first, rate, ", ".join(_size(row)), _shuffling(row))


def _size_rows(cells: Sequence[Row]) -> list[list[str]]:
    """What the largest set of each format takes, the smallest samples first; CPU and first batch from memory."""
    sets = {str(row["storage_format"]): row for row in sorted(cells, key=lambda row: int(row["n_samples"]))}
    warm = {str(row["storage_format"]): row for row in cells if row["page_cache"] == "warm" and row["mode"] == LOAD}
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


def knob_effects(trials: pd.DataFrame) -> Iterator[list[str]]:
    """Compare every other value of a knob with its default, loading alone, at the fewest workers: cells of a row."""
    loads = trials[trials["mode"].eq(LOAD)]
    every = rows_of(contrasts(loads)) if len(loads) else []
    pairs = [start_at_default(row) for row in every if row["axis"] in _KNOBS and row["n"]]
    pairs = [row for row in pairs if row["a_value"] == BY_NAME[row["axis"]].default]
    counts = {axis: [int(row["num_workers"]) for row in pairs if row["axis"] == axis] for axis in _KNOBS}

    def rank(row: Row) -> tuple[Any, ...]:
        names = ("workload", "patch_size", "storage_format")
        value = _value(row["b_value"])
        return _KNOBS.index(row["axis"]), *(row[name] for name in names), row["page_cache"] != "warm", value

    for row in sorted(pairs, key=rank):
        workers = int(row["num_workers"])
        if workers > min(counts[row["axis"]]):
            continue
        where = f"{words.sized(row['workload'], row['patch_size'])}, {row['page_cache']}, batch {row['batch_size']}"
        yield [
            code(row["axis"]) + f" {_value(row['a_value'])} → {_value(row['b_value'])}",
            str(row["storage_format"]),
            f"{where}, {words.plural(workers, 'worker')}",
            f"{row['ratio']:.2f}",
            words.interval(row["lo"], row["hi"], write="{:.2f}".format),
            str(row["n"]),
            str(row["verdict"]),
        ]


def start_at_default(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Swap the sides of a contrast where its second one is the default."""
    if row["b_value"] != BY_NAME[row["axis"]].default:
        return dict(row)
    verdict = {"faster": "slower", "slower": "faster"}.get(row["verdict"], row["verdict"])
    sides = {"a_value": row["b_value"], "b_value": row["a_value"], "verdict": verdict}
    return {**row, **sides, "ratio": 1 / row["ratio"], "lo": 1 / row["hi"], "hi": 1 / row["lo"]}


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
