"""What workers cost, on a page: what is left of them at the end, respawn, memory, shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from feedrate.analysis import loader
from feedrate.analysis.estimate import Estimate, columns_of
from feedrate.analysis.estimates import rows_of
from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView
from feedrate.pages.template import render
from feedrate.pages.verdicts import Verdicts
from feedrate.questions.workers.charts import what, who
from feedrate.schema import words

SUITE = "workers"
"""The suite that asks what workers cost; a run of all claims has its cells too."""
MOST_OPEN = 8
"""Rows of a table that are shown without being asked for."""
MOST_SHARED = 6
"""Rows of the table of shared memory: the settings that take most of it."""
_ENDS = {
    "return": "it returns",
    "exception": "an exception",
    "sigint": "SIGINT",
    "sigterm": "SIGTERM",
    "sigkill": "SIGKILL",
}
_GUARD = "The guard is feedrate’s own: workers die with their parent, and SIGTERM ends the training process in order."
_COPIED_ONCE = (
    "Growth ends when each worker holds the whole index, as spawned ones do from the start: an epoch at that pace is "
    "an upper limit. The size of all copies is how much more the processes share than with the leanest index."
)
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cost:
    """A table of what workers cost."""

    title: str
    columns: Sequence[str]
    texts: int
    """How many of the first columns are not numbers."""
    rows: Sequence[Sequence[str]]
    sentence: str = ""
    """What the table shows."""
    note: str = ""


def section(view: RunView, suite: str, mark: str = "", machine: str = "") -> str:
    """Write what trials of a suite say of the costs of workers; ``mark`` and ``machine`` tell it from other runs'."""
    trials = view.trials_of(suite)
    limit = view.manifest.machine.shared_memory_bytes
    costs = (
        _termination(rows_of(loader.terminations(trials))),
        _respawn(rows_of(loader.respawn(trials))),
        _growth(rows_of(loader.growth(trials))),
        _shared(rows_of(loader.shared_memory(trials, limit)), limit),
    )
    shown = [cost for cost in costs if cost.rows]
    if not shown:
        return ""
    return render("workers/costs.md", costs=shown, mark=mark or view.mark, machine=machine, most_open=MOST_OPEN)


def beside(verdicts: Verdicts) -> Iterator[str]:
    """Write the same for the Claims page: for each machine by the newest run that tested a claim about workers."""
    mine = [verdicts.results[name] for name, (suite, _) in verdicts.claims.items() if suite == SUITE]
    for at, platform in enumerate(verdicts.platforms):
        tested = [results[at].view for results in mine if results[at].tested]
        if tested:
            view = max(tested, key=lambda view: view.manifest.started_at)
            suite = SUITE if SUITE in view.suites else next(iter(view.suites))
            yield section(view, suite, f"{platform.device}-{markup.slug(view.machine_id)}", platform.name)


def _number(row: Row, name: str, unit: Callable[[float], str] = words.number) -> str:
    """A number and, below it, its interval."""
    if not words.is_number(row[name]):
        return "–"
    ends = words.interval(row.get(f"{name}_lo"), row.get(f"{name}_hi"), write=unit)
    return markup.two_lines(unit(float(row[name])), ends)


def _mib(size: float) -> str:
    """Bytes, which may be negative, in MiB."""
    return f"{words.number(size / 2**20)}\u00a0MiB".replace("-", "−")


def _seconds(value: float) -> str:
    return "under 0.01 s" if 0 <= value < 0.005 else f"{words.number(value, 2)} s"


def _termination(rows: Sequence[Row]) -> Cost:
    """How a training process ended × guard: whether workers were left, and for how long."""
    lines, sentences = [], []
    for row in rows:
        median, least, most = (_seconds(row[name]) for name in ("gone_s", "gone_least_s", "gone_most_s"))
        lines.append(
            (
                _ENDS[row["ends_by"]],
                "with the guard" if row["guarded"] else "plain PyTorch",
                f"{row['left']} of {row['n']}",
                markup.two_lines(median, f"{least} to {most}") if least != most else median,
                str(row["evidence"]),
            )
        )
    for guarded, name in ((False, "plain PyTorch"), (True, "the guard")):
        checks = [row for row in rows if row["guarded"] == guarded]
        left = [row for row in checks if row["left"]]
        if not checks:
            continue
        ways = words.listed(_ENDS[row["ends_by"]] for row in left or checks)
        most = _seconds(max(row["gone_most_s"] for row in left or checks))
        text = f"workers were left behind after {ways}, for up to {most}"
        none = f"none were left behind after {ways}: the last was gone after {most}"
        sentences.append(words.sentence(f"with {name}, {text if left else none}"))
    columns = ("Ended by", "Guard", "Checks that saw workers left", "Last worker gone after", "Seen")
    return Cost("When the training process ends", columns, len(columns), lines, " ".join(sentences), _GUARD)


def _respawn(rows: Sequence[Row]) -> Cost:
    """What an epoch takes longer where workers are started anew."""
    lines = [
        (
            what(row, ("epoch_steps",)),
            who(row),
            words.plural(int(row["epoch_steps"]), "step"),
            words.number(row["anew_ms"]),
            words.number(row["kept_ms"]),
            _number(row, "respawn_ms", lambda value: words.number(value).replace("-", "−")),
            str(row["n"]),
        )
        for row in rows
    ]
    columns = ("What was loaded", "Workers", "Epoch", "Started anew, ms", "Kept alive, ms", "Difference, ms", "n")
    sentence = ""
    shortest = min(rows, key=lambda row: int(row["epoch_steps"]), default=None)
    if shortest and words.is_number(shortest["respawn_ms_lo"]) and shortest["respawn_ms_lo"] > 0:
        took = Estimate.of_row(shortest, columns_of("respawn_ms"))
        share = words.percent(took.value / shortest["anew_ms"])
        sentence = (
            f"Starting workers anew ({who(shortest)}) takes {took.with_n(' ms')}: {share} of an epoch of "
            f"{int(shortest['epoch_steps'])} steps."
        )
    return Cost("Starting workers anew every epoch", columns, 3, lines, sentence)


def _growth(rows: Sequence[Row]) -> Cost:
    """Memory by what the dataset keeps of every sample."""
    lines = []
    for row in rows:
        count, ends = int(row["num_workers"]), ("", "_lo", "_hi")
        more = {
            **{f"each{end}": row[f"end_bytes{end}"] / count for end in ends},
            **{f"copies{end}": row[f"index_bytes{end}"] * count for end in ends},
        }
        unsure = words.is_number(row["index_bytes_lo"]) and row["index_bytes_lo"] <= 0
        lines.append(
            (
                f"{row['index_kind']}, {int(row['index_entries']):,} entries",
                who(row),
                _number(row, "grew_bytes", _mib),
                words.number(row["samples"]),
                _number(row, "epoch_bytes", _mib),
                "–" if unsure else _number(more, "copies", _mib),
                _number(more, "each", _mib),
                str(row["n"]),
            )
        )
    columns = (
        *("Index", "Workers", "All workers grew by", "Samples read"),
        *("An epoch at that pace", "All copies, over", "A worker holds then", "n"),
    )
    return Cost("Memory that only workers hold", columns, 2, lines, note=_COPIED_ONCE)


def _shared(rows: Sequence[Row], limit: int | None) -> Cost:
    """What lies in /dev/shm, against its size."""
    size = descriptions.size
    lines = [
        (
            what(row),
            who(row),
            size(int(row["ahead_bytes"])) if words.is_number(row["ahead_bytes"]) else "–",
            markup.two_lines(size(int(row["shm_bytes"])), f"at most {size(int(row['shm_most_bytes']))}"),
            words.percent(row["shm_share"]) if words.is_number(row["shm_share"]) else "–",
            str(row["n"]),
        )
        for row in rows[:MOST_SHARED]
    ]
    columns = ("What was loaded", "Workers", "Prefetched at most", "In use", "Of its size", "Measurements")
    sentence = ""
    if rows:
        of = f", of {size(limit)}" if limit else "; its size was not recorded"
        most = size(int(rows[0]["shm_most_bytes"]))
        sentence = f"All processes used at most {most} of /dev/shm when a window ended{of}."
    return Cost("Shared memory (/dev/shm): the settings that take most", columns, 2, lines, sentence)
