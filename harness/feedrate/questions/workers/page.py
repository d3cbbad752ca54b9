"""What workers cost, on a page: what is left of them at the end, start-up, respawn, memory, shared memory, switches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from feedrate.analysis import worker_costs as costs
from feedrate.analysis.estimates import rows_of
from feedrate.charts import workers
from feedrate.charts.embed import folded
from feedrate.pages import descriptions, markup
from feedrate.pages.runs import RunView
from feedrate.pages.verdicts import Verdicts
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
_NOTE = (
    "Means over blocks, of start-up times geometric ones, with single 95\u00a0% intervals, not corrected for their "
    "number; those of counts are cut off at 0. Ends of a training process: medians over checks, from the least to the "
    "most."
)
_GUARD = (
    "The guard is what feedrate’s own processes have: workers die with their parent, and SIGTERM ends the training "
    "process in order."
)
Row = Mapping[str, Any]


def section(shown: RunView, suite: str, level: int = 3, mark: str = "") -> list[str]:
    """Write what a run says of the costs of workers.

    Args:
        shown: a run.
        suite: whose trials; those of other suites choose workers for another question.
        level: of the heading.
        mark: makes the heading's id differ from that of another run; the mark of its machine and device if not given.

    Returns:
        A heading and what follows it; nothing where the run has nothing to say of it.
    """
    trials = shown.trials_of(suite)
    limit = shown.manifest.machine.shared_memory_bytes
    parts: tuple[Callable[[], Iterator[str]], ...] = (
        lambda: _termination(rows_of(costs.terminations(trials))),
        lambda: _startup(rows_of(costs.startup(trials))),
        lambda: _respawn(rows_of(costs.respawn(trials))),
        lambda: _growth(rows_of(costs.growth(trials))),
        lambda: _shared(rows_of(costs.shared_memory(trials, limit)), limit),
        lambda: _switches(rows_of(costs.switches(trials))),
    )
    body = [text for part in parts for text in part()]
    if not body:
        return []
    name = f"worker-costs-{mark or shown.mark}"
    return [markup.heading(level, "What workers cost", name), *body, markup.paragraph(_NOTE, "fr-note")]


def beside(verdicts: Verdicts) -> Iterator[str]:
    """Write the same for the Claims page: for each machine by the newest run that tested a claim about workers.

    Args:
        verdicts: what the records of all runs say.
    """
    mine = [verdicts.told[name] for name, (suite, _) in verdicts.asked.items() if suite == SUITE]
    for at, place in enumerate(verdicts.places):
        tested = [part[at].shown for part in mine if part[at].tested]
        for shown in sorted(tested, key=lambda shown: shown.manifest.started_at, reverse=True)[:1]:
            suite = SUITE if SUITE in shown.suites else next(iter(shown.suites))
            body = section(shown, suite, 3, f"{place.device}-{markup.slug(shown.machine_id)}")
            if body:
                yield body[0]
                yield markup.paragraph(place.name, "fr-origin")
                yield from body[1:]


def _listing(title: str, said: str, columns: Sequence[str], rows: Sequence[Sequence[str]], numeric: int) -> str:
    """A table after what it shows; long ones are folded."""
    table = markup.table(title, columns, rows, columns[numeric:], stack=True)
    few = len(rows) <= MOST_OPEN
    count = "" if few else f", {len(rows)} settings"
    message = markup.paragraph(said, "fr-answer") if said else ""
    return message + folded(escape(title + count), table, unfolded=few)


def _number(row: Row, name: str, unit: Callable[[float], str] = words.number) -> str:
    """A number and, below it, its interval."""
    if not words.known(row[name]):
        return "–"
    low, high = row.get(f"{name}_lo"), row.get(f"{name}_hi")
    known = words.known(low) and words.known(high)
    ends = f"{unit(float(low or 0.0))} to {unit(float(high or 0.0))}" if known else "one block: no interval"
    return f'{unit(float(row[name]))}<br><span class="fr-kind">{escape(ends)}</span>'


def _mib(size: float) -> str:
    """Bytes, which may be negative, in MiB."""
    return f"{words.number(size / 2**20)}\u00a0MiB".replace("-", "−")


def _seconds(value: float) -> str:
    return "under 0.01 s" if 0 <= value < 0.005 else f"{words.number(value, 2)} s"


def _termination(rows: Sequence[Row]) -> Iterator[str]:
    """How a training process ended × guard: whether workers were left, and for how long."""
    if not rows:
        return
    lines = [
        (
            escape(_ENDS[row["ends_by"]]),
            "with the guard" if row["guarded"] else "plain PyTorch",
            f"{row['left']} of {row['n']}",
            _gone(row),
            escape(str(row["evidence"])),
        )
        for row in rows
    ]
    columns = ("Ended by", "Guard", "Checks that saw workers left", "Last worker gone after", "Seen")
    yield _listing("When the training process ends", _left(rows), columns, lines, len(columns))
    yield markup.paragraph(_GUARD, "fr-note")


def _gone(row: Row) -> str:
    least, most = _seconds(row["gone_least_s"]), _seconds(row["gone_most_s"])
    spread = f'<br><span class="fr-kind">{least} to {most}</span>' if least != most else ""
    return f"{_seconds(row['gone_s'])}{spread}"


def _left(rows: Sequence[Row]) -> str:
    """Say which ways of ending leave workers behind, and what the guard makes of it."""
    said = []
    for guarded, name in ((False, "plain PyTorch"), (True, "the guard")):
        part = [row for row in rows if row["guarded"] == guarded]
        left = [row for row in part if row["left"]]
        if left:
            ways = words.listed(_ENDS[row["ends_by"]] for row in left)
            most = _seconds(max(row["gone_most_s"] for row in left))
            said.append(f"with {name}, workers were left behind after {ways}, for up to {most}")
        elif part:
            ways = words.listed(_ENDS[row["ends_by"]] for row in part)
            most = _seconds(max(row["gone_most_s"] for row in part))
            said.append(f"with {name}, none were left behind after {ways}: the last was gone after {most}")
    return " ".join(words.sentence(text) for text in said)


def _startup(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    lines = [
        (
            escape(workers.what(row)),
            escape(workers.who(row)),
            _number(row, "startup_ms"),
            str(row["n"]),
        )
        for row in rows
    ]
    columns = ("What was loaded", "Workers", "First batch after, ms", "n")
    yield _listing("Starting workers", "", columns, lines, 2)


def _respawn(rows: Sequence[Row]) -> Iterator[str]:
    """What an epoch takes longer where workers are started anew."""
    if not rows:
        return
    lines = [
        (
            escape(workers.what(row, ("epoch_steps",))),
            escape(workers.who(row)),
            words.plural(int(row["epoch_steps"]), "step"),
            words.number(row["anew_ms"]),
            words.number(row["kept_ms"]),
            _number(row, "respawn_ms", _signed),
            str(row["n"]),
        )
        for row in rows
    ]
    columns = ("What was loaded", "Workers", "Epoch", "Started anew, ms", "Kept alive, ms", "Difference, ms", "n")
    shortest = min(rows, key=lambda row: int(row["epoch_steps"]))
    share = words.percent(shortest["respawn_ms"] / shortest["anew_ms"])
    said = (
        f"Starting workers anew ({workers.who(shortest)}) takes {words.number(shortest['respawn_ms'])} ms of an epoch "
        f"({words.interval(shortest['respawn_ms_lo'], shortest['respawn_ms_hi'], int(shortest['n']))}), "
        f"{share} of one of {int(shortest['epoch_steps'])} steps."
    )
    clear = words.known(shortest["respawn_ms_lo"]) and shortest["respawn_ms_lo"] > 0
    yield _listing("Starting workers anew every epoch", said if clear else "", columns, lines, 3)


def _signed(value: float) -> str:
    return words.number(value).replace("-", "−")


def _thousandfold(value: float) -> str:
    """For 1,000 samples; counts do not fall under none, though their interval may."""
    return words.number(1000 * max(0.0, value))


def _growth(rows: Sequence[Row]) -> Iterator[str]:
    """Memory by what the dataset keeps of every sample."""
    if not rows:
        return
    lines = [
        (
            f"{escape(str(row['index_kind']))}, {int(row['index_entries']):,} entries",
            escape(workers.who(row)),
            _number(row, "grew_bytes", _mib),
            words.number(row["samples"]),
            _number(row, "epoch_bytes", _mib),
            _copies(row),
            _number(_each(row), "each", _mib),
            str(row["n"]),
        )
        for row in rows
    ]
    columns = (
        "Index",
        "Workers",
        "All workers grew by",
        "Samples read",
        "An epoch at that pace",
        "All copies, over",
        "A worker holds then",
        "n",
    )
    yield _listing("Memory that only workers hold", "", columns, lines, 2)
    yield markup.paragraph(
        "A page is copied once, so that an epoch at that pace is an upper limit: growth ends when every worker holds a "
        "copy of all of the index, as spawned ones do from the start. What all copies take is told from how much more "
        "the processes share than with the leanest index, and is therefore over that.",
        "fr-note",
    )


def _each(row: Row) -> Row:
    """What one of the workers holds."""
    return {f"each{end}": row[f"end_bytes{end}"] / int(row["num_workers"]) for end in ("", "_lo", "_hi")}


def _copies(row: Row) -> str:
    """What all workers hold when each has a copy of the index, as far as it is larger than the leanest."""
    if words.known(row["index_bytes_lo"]) and row["index_bytes_lo"] <= 0:
        return "–"
    copies = {f"copies{end}": row[f"index_bytes{end}"] * int(row["num_workers"]) for end in ("", "_lo", "_hi")}
    return _number(copies, "copies", _mib)


def _shared(rows: Sequence[Row], limit: int | None) -> Iterator[str]:
    """What lies in /dev/shm, against its size."""
    if not rows:
        return
    lines = [
        (
            escape(workers.what(row)),
            escape(workers.who(row)),
            descriptions.size(int(row["ahead_bytes"])) if words.known(row["ahead_bytes"]) else "–",
            f'{descriptions.size(int(row["shm_bytes"]))}<br><span class="fr-kind">at most '
            f"{descriptions.size(int(row['shm_most_bytes']))}</span>",
            words.percent(row["shm_share"]) if words.known(row["shm_share"]) else "–",
            str(row["n"]),
        )
        for row in rows[:MOST_SHARED]
    ]
    columns = ("What was loaded", "Workers", "Prefetched at most", "In use", "Of its size", "Trials")
    most = descriptions.size(int(rows[0]["shm_most_bytes"]))
    size = f", of {descriptions.size(limit)}" if limit else "; its size was not recorded"
    said = f"At most {most} of /dev/shm were in use, by all that ran, when a window ended{size}."
    yield _listing("Shared memory (/dev/shm): the settings that take most", said, columns, lines, 2)


def _switches(rows: Sequence[Row]) -> Iterator[str]:
    """How often a core is taken away, and given up."""
    if not rows:
        return
    lines = [
        (
            escape(workers.what(row)),
            escape(workers.who(row)),
            _number(row, "involuntary_per_sample", _thousandfold),
            _number(row, "voluntary_per_sample", _thousandfold),
            str(row["n"]),
        )
        for row in rows
    ]
    columns = ("What was loaded", "Workers", "Taken away, per 1,000 samples", "Given up, per 1,000 samples", "n")
    yield _listing("Context switches: how often a core is taken away", "", columns, lines, 2)
