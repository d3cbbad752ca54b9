"""Storage on a suite's page: which effect is larger, what to use, what each format takes on disk, and what is missing.

"If your images are X and your disk is Y, use Z" is made from the run's numbers alone; a run whose suite compares fewer
than two formats shows nothing of it.

Knobs that single formats have, and the order of reading: what each changes, at the fewest workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from feedrate.analysis.contrasts import contrasts
from feedrate.analysis.estimates import rows_of
from feedrate.analysis.storage import OWN, count_doubtful, credible, format_costs
from feedrate.charts.embed import folded
from feedrate.charts.figure import EMULATED, LOAD, PHOTOGRAPHS
from feedrate.machine.identity import Storage
from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView
from feedrate.questions.storage.analysis import CONTAINER, LOSSY, NEITHER, PIXELS, SPACE, SPEED, choices, larger
from feedrate.questions.storage.panels import STORES
from feedrate.schema import words
from feedrate.schema.axes import BY_NAME
from feedrate.schema.plugins import names, traits

MOST_OPEN = 6
"""Rows that are shown without being asked for."""
_KNOBS = (*OWN, "access")


def knobs_section(trials: pd.DataFrame, mark: str) -> list[str]:
    """Compare every other value of a knob with its default, loading alone."""
    found = contrasts(trials[trials["mode"].eq(LOAD)]) if len(trials) else pd.DataFrame({"axis": []})
    pairs = rows_of(found)
    pairs = [turned(row) for row in pairs if row["axis"] in _KNOBS and row["n"]]
    pairs = [row for row in pairs if row["a_value"] == BY_NAME[row["axis"]].default]
    if not pairs:
        return []
    fewest: dict[str, int] = {}
    for row in pairs:
        fewest[row["axis"]] = min(int(row["num_workers"]), fewest.get(row["axis"], int(row["num_workers"])))
    rows = sorted((row for row in pairs if int(row["num_workers"]) == fewest[row["axis"]]), key=_knobs_rank)
    lines = [
        (
            f"{markup.code(row['axis'])} {escape(_value(row['a_value']))} → {escape(_value(row['b_value']))}",
            escape(str(row["storage_format"])),
            escape(_where(row)),
            f"{row['ratio']:.2f}",
            f"{row['lo']:.2f}\u00a0–\u00a0{row['hi']:.2f}" if words.known(row["lo"]) else "one block: none",
            str(row["n"]),
            escape(str(row["verdict"])),
        )
        for row in rows
    ]
    columns = ("From → to", "Format", "Where", "Times as fast", "95 % interval", "n", "Verdict")
    listing = markup.table("What knobs of single formats change", columns, lines, columns[3:6], stack=True)
    if len(lines) > MOST_OPEN:
        listing = folded(f"All {len(lines)} comparisons", listing)
    note = "Paired block by block; single intervals, not corrected for their number."
    return [markup.heading(3, "Knobs of single formats", f"knobs-{mark}"), listing, markup.paragraph(note, "fr-note")]


def turned(row: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a contrast round, where that makes its first side the default."""
    if row["b_value"] != BY_NAME[row["axis"]].default:
        return dict(row)
    verdict = {"faster": "slower", "slower": "faster"}.get(row["verdict"], row["verdict"])
    sides = {"a_value": row["b_value"], "b_value": row["a_value"], "verdict": verdict}
    return {**row, **sides, "ratio": 1 / row["ratio"], "lo": 1 / row["hi"], "hi": 1 / row["lo"]}


def _knobs_rank(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        _KNOBS.index(row["axis"]),
        str(row["workload"]),
        int(row["patch_size"]),
        str(row["storage_format"]),
        row["page_cache"] != "warm",
        _value(row["b_value"]),
    )


def _where(row: Mapping[str, Any]) -> str:
    workers = words.plural(int(row["num_workers"]), "worker")
    return f"{row['workload']}, {row['patch_size']} px, {row['page_cache']}, batch {row['batch_size']}, {workers}"


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


SUITE = "storage"
"""The suite that asks about storage formats; others choose theirs for another question."""
_TELLING = ("storage_format", "page_cache", "decoder", "shards", "access")
"""Words of a reason that makes a format, or a state of the page cache, unavailable."""
_DISKS = {
    "nvme": "an NVMe disk",
    "ssd": "a solid-state disk",
    "hdd": "a spinning disk",
    "virtual": "a virtual disk",
    "network": "network storage",
    "flash card": "a flash card",
    "memory": "memory",
}
_HOW_CHOSEN = (
    "Warm: the set fits into memory, from the second epoch on. Cold: it is larger than memory, or in its first epoch. "
    "Named first is the cheapest of the settings that cannot be told from the fastest: fewest workers, then fewest "
    "bytes on disk. Formats that lose information are never among them. × compares with the fastest without loss, "
    "paired block by block. The fastest of many is picked by its own estimate, which is therefore a little too good."
)
_COLUMNS = ("If your images are", "and are read", "use", "Samples/s", "On disk", "If disk space matters", "With loss")
Row = Mapping[str, Any]


class Stored:
    """The storage part of a suite's page for one run."""

    def __init__(self, shown: RunView, suite: str) -> None:
        self.shown = shown
        self.mark = shown.mark
        self.trials = shown.asked(suite) if suite == SUITE else shown.trials.iloc[:0]

    @property
    def table(self) -> pd.DataFrame:
        """Every cell with what its format costs."""
        return format_costs(self.trials)

    def __bool__(self) -> bool:
        return len(self.trials) > 0 and self.table["storage_format"].nunique() > 1

    def answers(self) -> list[str]:
        """What comes before the charts: which effect is larger, and the table of what to use."""
        if not self:
            return []
        body = _effects(larger(self.trials))
        rows = list(_uses(choices(self.trials), self.shown.manifest.machine.storage))
        usual = [cells for is_usual, cells in rows if is_usual]
        others = [cells for is_usual, cells in rows if not is_usual]
        if not rows:
            return body
        body.append(markup.heading(3, "What to use", f"use-{self.mark}"))
        body += [_use_table("Which format to use", usual)] if usual else []
        if others:
            what = "Read in the order of the disk, or before an emulated step"
            body.append(folded(what, _use_table(what, others), unfolded=not usual))
        return [*body, markup.paragraph(_HOW_CHOSEN, "fr-note")]

    def details(self) -> list[str]:
        """What comes after the charts: sizes and packing, then what is missing and why."""
        if not self:
            return []
        knobs = knobs_section(credible(self.trials), self.mark)
        return [*_sizes(self.table, self.mark), *knobs, *_missing(self.shown, self.trials, self.table, self.mark)]


def section(shown: RunView, suite: str) -> Stored:
    """Take what a storage suite's page says of a run beside its charts; false where it compared no formats.

    Args:
        shown: a run.
        suite: whose cells.
    """
    return Stored(shown, suite)


def _rank(row: Row) -> tuple[Any, ...]:
    """Loading alone first, photographs before others, small before large, any order before the disk's, warm first."""
    return (
        row["mode"] != LOAD,
        row["workload"] not in PHOTOGRAPHS,
        str(row["workload"]),
        int(row["patch_size"]),
        row["access"] != "random",
        row["page_cache"] != "warm",
    )


def _effects(found: pd.DataFrame) -> list[str]:
    """Say which effect is larger and by how much, in a sentence over all settings and in one for each."""
    firsts: dict[tuple[Any, ...], Row] = {}
    for row in sorted(rows_of(found), key=lambda row: (*_rank(row), row["num_workers"], row["batch_size"])):
        firsts.setdefault(_rank(row), row)
    if not firsts:
        return []
    rows = list(firsts.values())
    items = "".join(f"<li>{escape(_effect(row))}</li>" for row in rows)
    each = folded("The two effects in each setting", f"<ul>{items}</ul>")
    return [markup.paragraph(_larger(rows), "fr-answer"), each]


def _larger(rows: Sequence[Row]) -> str:
    """The sentence over all settings."""
    counts = {name: sum(row["larger"] == name for row in rows) for name in (PIXELS, CONTAINER, NEITHER)}
    most = max(counts, key=lambda name: counts[name])
    share = "In every setting" if counts[most] == len(rows) else f"In {counts[most]} of {len(rows)} settings"
    verdict = {
        PIXELS: "what is stored matters more than the container that holds it",
        CONTAINER: "the container matters more than what is stored in it",
        NEITHER: "it cannot be told whether what is stored or its container matters more",
    }[most]
    pixels, container = (_range([row[f"{name}_ratio"] for row in rows]) for name in (PIXELS, CONTAINER))
    return (
        f"{share} {verdict}{_by(rows, most)}{_otherwise(rows, most)}. In the same container, decoded pixels load "
        f"{pixels} as fast as {_encoded(rows)}; of containers that hold the same bytes the fastest is {container} as "
        "fast as the slowest (with the fewest workers that were measured)."
    )


def _encoded(rows: Sequence[Row]) -> str:
    """What decoded pixels were compared with."""
    pairs = {pair for row in rows for pair in str(row["pixels_pairs"]).split(", ")}
    kinds = {traits(pair.partition(" ")[0]).stores for pair in pairs}
    return " or ".join(sorted({STORES.get(kind, kind) for kind in kinds}))


def _by(rows: Sequence[Row], larger: str) -> str:
    """How many times the one effect is the other, where it is the larger one."""
    times = [row["times"] if larger == PIXELS else 1 / row["times"] for row in rows if row["larger"] == larger]
    return f" ({_range(times)} the other effect)" if times and larger != NEITHER else ""


def _otherwise(rows: Sequence[Row], most: str) -> str:
    """What the other settings say."""
    other = {
        PIXELS: "what is stored matters more",
        CONTAINER: "the container matters more",
        NEITHER: "it cannot be told",
    }
    counts = {name: sum(row["larger"] == name for row in rows) for name in other if name != most}
    said = [f"in {count} {other[name]}{_by(rows, name)}" for name, count in counts.items() if count]
    return f"; {words.listed(said)}" if said else ""


def _range(ratios: Sequence[float]) -> str:
    low, high = words.number(min(ratios), 2), words.number(max(ratios), 2)
    return f"{high} times" if low == high else f"{low} to {high} times"


def _effect(row: Row) -> str:
    ordered = "" if row["access"] == "random" else ", in the order of the disk"
    kind = f", before an emulated step of {row['step_ms']:g} ms" if row["mode"] != LOAD else ""
    where = f"{row['workload']} at {row['patch_size']} px, {row['page_cache']}{ordered}{kind}"
    pixels = words.interval(row["pixels_lo"], row["pixels_hi"], row["pixels_n"])
    container = words.interval(row["container_lo"], row["container_hi"], row["container_n"])
    said = (
        f"{where}: decoded pixels × {words.number(row['pixels_ratio'])} ({row['pixels_pairs']}; {pixels}); another "
        f"container at most × {words.number(row['container_ratio'])} ({row['container_a']} → {row['container_b']}; "
        f"{container})."
    )
    if row["larger"] == NEITHER:
        return f"{said} Which is larger cannot be told ({words.interval(row['times_lo'], row['times_hi'], row['n'])})."
    times, low, high = (row[name] for name in ("times", "times_lo", "times_hi"))
    what = "What is stored"
    if row["larger"] == CONTAINER:
        what, times, low, high = "The container", 1 / times, 1 / high, 1 / low
    return (
        f"{said} {what} is the larger effect, {words.times(times)} the other ({words.interval(low, high, row['n'])})."
    )


def _use_table(caption: str, rows: Sequence[Sequence[str]]) -> str:
    """The table without the columns that nothing is known of."""
    kept = [place for place in range(len(_COLUMNS)) if any(row[place] for row in rows)]
    lines = [[row[place] or "–" for place in kept] for row in rows]
    return markup.table(caption, [_COLUMNS[place] for place in kept], lines, (), stack=True)


def _uses(chosen: pd.DataFrame, disk: Storage | None) -> Iterator[tuple[bool, tuple[str, ...]]]:
    """A row a question with two formats or more, and whether it is the usual one: loading alone, in any order."""
    questions: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = {}
    for row in rows_of(chosen):
        key = (*_rank(row), str(row["step_ms"]), str(row["scale"]), int(row["n_samples"]))
        questions.setdefault(key, {}).setdefault(row["purpose"], []).append(row)
    several = len({key[:-1] for key in questions}) < len(questions)
    batches = chosen["batch_size"].nunique() > 1 if len(chosen) else False
    for _, purposes in sorted(questions.items(), key=lambda pair: pair[0]):
        best = purposes.get(SPEED)
        if best is None or (best[0]["formats"] < 2 and LOSSY not in purposes):
            continue
        usual = best[0]["mode"] == LOAD and best[0]["access"] == "random"
        yield (
            usual,
            (
                _images(best[0], several=several),
                _read(best[0], disk),
                _use(best, batches=batches),
                _rate(best[0]),
                _bytes(best[0]).replace(", ", "<br>"),
                _beside(purposes.get(SPACE), best, batches=batches),
                _beside(purposes.get(LOSSY), best, batches=batches),
            ),
        )


def _images(row: Row, *, several: bool) -> str:
    kind = f"before an emulated step of {row['step_ms']:g} ms" if row["step"] == EMULATED else ""
    more = ", ".join(filter(None, (kind, f"{int(row['n_samples']):,} samples" if several else "")))
    return f"<strong>{escape(str(row['workload']))}</strong>, {row['patch_size']}\u00a0px{_kinds([more])}"


def _read(row: Row, disk: Storage | None) -> str:
    """From where, and in which order."""
    where = "warm, from memory" if row["page_cache"] == "warm" else f"cold, from {disk_words(disk)}"
    return where + _kinds(["in any order" if row["access"] == "random" else "in the order of the disk"])


def disk_words(disk: Storage | None) -> str:
    """Name the kind of disk that a run's data lay on."""
    if disk is None:
        return "the disk"
    kind = _DISKS.get(disk.device_class, "a disk of unknown kind")
    return f"{kind} ({disk.file_system})" if disk.file_system else kind


def _use(best: Sequence[Row], *, batches: bool) -> str:
    first = best[0]
    formats = list(dict.fromkeys(str(row["storage_format"]) for row in best))
    lines = [_shuffled(first)]
    lines += [f"as near to the fastest: {words.listed(formats[1:])}"] if len(formats) > 1 else []
    lines.append(
        f"of {words.plural(int(first['formats']), 'format')}, {words.plural(int(first['candidates']), 'setting')}"
    )
    return f"<strong>{escape(formats[0])}</strong>, {escape(_settings(first, batches=batches))}{_kinds(lines)}"


def _settings(row: Row, *, batches: bool) -> str:
    """What can be chosen beside the format; the batch size only where several were measured."""
    said = descriptions.knobs(row).removeprefix(f"{row['storage_format']}, ")
    return said if batches else said.removeprefix(f"batch {row['batch_size']}, ")


def _kinds(lines: Sequence[str]) -> str:
    return "".join(f'<br><span class="fr-kind">{escape(line)}</span>' for line in lines if line)


def _shuffled(row: Row) -> str:
    if not row["streamed"]:
        return ""
    size = int(row["shuffle_buffer"]) if words.known(row["shuffle_buffer"]) else 0
    buffer = f"each worker shuffles within {size:,} samples" if size else "no shuffle buffer"
    return f"streamed: shards in random order, {buffer}"


def _rate(row: Row) -> str:
    spread = descriptions.spread(float(row["lo"]), float(row["hi"]))
    whole = f'<br><span class="fr-kind fr-whole">{escape(spread)},</span>'
    return words.number(float(row["samples_per_s"])) + whole + _kinds([f"n\u00a0=\u00a0{row['n']}"])


def _bytes(row: Row) -> str:
    size, share = row["sample_bytes"], row["raw_share"]
    if not words.known(size):
        return ""
    return f"{kilobytes(float(size))} a sample" + (
        f", {float(share):.2f}\u00a0×\u00a0raw" if words.known(share) else ""
    )


def kilobytes(size: float) -> str:
    """Write bytes of a sample in kB."""
    return f"{words.number(size / 1000)}\u00a0kB"


def _beside(part: Sequence[Row] | None, best: Sequence[Row], *, batches: bool) -> str:
    """The cheapest of another set: its settings, rate, size, and how it compares with the fastest without loss."""
    if not part:
        return ""
    row = part[0]
    if row["cell_id"] == best[0]["cell_id"]:
        return f"the same: {escape(str(row['storage_format']))}"
    label = " (lossy)" if row["lossy"] else ""
    ratio = f"×\u00a0{row['ratio_to_best']:.2f}" if words.known(row["ratio_to_best"]) else ""
    if words.known(row["ratio_lo"]):
        ratio += f" ({row['ratio_lo']:.2f}\u00a0–\u00a0{row['ratio_hi']:.2f})"
    rate = f"{words.number(float(row['samples_per_s']))}\u00a0samples/s"
    lines = [", ".join(filter(None, (rate, ratio))), _bytes(row), _shuffled(row)]
    return f"{escape(str(row['storage_format']))}{label}, {escape(_settings(row, batches=batches))}{_kinds(lines)}"


def _sizes(table: pd.DataFrame, mark: str) -> list[str]:
    """Bytes on disk and packing, a table for each kind of images; beyond the first they are folded."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows_of(table[table["sample_bytes"].notna()]):
        found.setdefault(_rank(row)[1:4], []).append(row)
    body: list[str] = []
    for (_, workload, size), rows in sorted(found.items()):
        listing = _size_table(f"{workload}, {size} px", rows)
        summary = escape(f"{workload}, {size} px")
        body.append(folded(summary, listing, unfolded=not body))
    if not body:
        return []
    note = (
        "Raw is a byte a channel of a pixel. Every set was packed once, so that what packing takes has no spread; "
        "below it the samples that were packed a second."
    )
    return [markup.heading(3, "On disk, and packing", f"sizes-{mark}"), *body, markup.paragraph(note, "fr-note")]


def _size_table(title: str, cells: Sequence[Row]) -> str:
    """The largest set of each format, smallest samples first."""
    sets = {str(row["storage_format"]): row for row in sorted(cells, key=lambda row: int(row["n_samples"]))}
    rows = [
        (
            f"<strong>{escape(name)}</strong>{_kinds([STORES.get(str(row['stores']), str(row['stores']))])}",
            kilobytes(float(row["sample_bytes"])),
            f"{float(row['raw_share']):.2f}" if words.known(row["raw_share"]) else "–",
            _packing(row),
        )
        for name, row in sorted(sets.items(), key=lambda pair: (float(pair[1]["sample_bytes"]), pair[0]))
    ]
    columns = ("Format", "A sample", "÷ raw", "Packed, n\u00a0=\u00a01")
    return markup.table(f"What each format takes on disk: {title}", columns, rows, columns[1:])


def _packing(row: Row) -> str:
    """Seconds, and samples a second."""
    if not words.known(row["pack_s"]):
        return "–"
    seconds = float(row["pack_s"])
    return f"{words.number(seconds)} s" + _kinds([f"{words.number(float(row['n_samples']) / seconds)}/s"])


def _missing(shown: RunView, trials: pd.DataFrame, table: pd.DataFrame, mark: str) -> list[str]:
    """What was left out, what failed, and which formats the run did not measure."""
    said = [
        f"{words.plural(part.count, 'combination')}: {part.reason}"
        for part in shown.manifest.excluded
        if any(word in part.reason for word in _TELLING)
    ]
    failed = table[table["n"].eq(0)]
    for (name, state), rows in failed.groupby(["storage_format", "page_cache"], sort=True):
        sizes = words.listed(f"{size} px" for size in sorted({int(size) for size in rows["patch_size"]}))
        said.append(f"{name}, {state}, {sizes}: every trial of {words.plural(len(rows), 'setting')} failed")
    said += [
        f"{words.plural(count, 'trial')} asked to be {state}: left out, as the count of cached pages said otherwise"
        for state, count in sorted(count_doubtful(trials).items())
    ]
    if absent := sorted(set(names("feedrate.formats")) - set(table["storage_format"])):
        said.append(f"not in this run: {words.listed(absent)}")
    items = "".join(f"<li>{markup.entities(words.sentence(text) if text[0].isupper() else text)}</li>" for text in said)
    return [markup.heading(3, "What is missing", f"missing-{mark}"), f"<ul>{items}</ul>\n"] if said else []
