"""What workers cost, on a page: what is left of them at the end, respawn, memory, shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
_ENDS = {
    "return": "it returns",
    "exception": "an exception",
    "sigint": "SIGINT",
    "sigterm": "SIGTERM",
    "sigkill": "SIGKILL",
}
Row = Mapping[str, Any]


def section(view: RunView, suite: str, mark: str = "", machine: str = "") -> str:
    """Write what trials of a suite say of the costs of workers; ``mark`` and ``machine`` tell it from other runs'."""
    trials = view.trials_of(suite)
    limit = view.manifest.machine.shared_memory_bytes
    ended, growth = rows_of(loader.terminations(trials)), rows_of(loader.growth(trials))
    respawn, shared = rows_of(loader.respawn(trials)), rows_of(loader.shared_memory(trials, limit))
    if not (ended or respawn or growth or shared):
        return ""
    return render(
        "workers/costs.md",
        mark=mark or view.mark,
        machine=machine,
        most_open=MOST_OPEN,
        ways=[
            (name, *way)
            for name, guarded in (("plain PyTorch", False), ("the guard", True))
            if (way := _ways([row for row in ended if row["guarded"] == guarded]))
        ],
        ended=list(map(_ended, ended)),
        longer=_longer(respawn),
        respawn=list(map(_respawn, respawn)),
        growth=list(map(_growth, growth)),
        shared=_shared(shared[0]) if shared else None,
        limit=descriptions.size(limit) if limit else "",
    )


def beside(verdicts: Verdicts) -> Iterator[str]:
    """Write the same for the Claims page: for each machine by the newest run that tested a claim about workers."""
    mine = [verdicts.results[name] for name, (suite, _) in verdicts.claims.items() if suite == SUITE]
    for at, platform in enumerate(verdicts.platforms):
        tested = [results[at].view for results in mine if results[at].tested]
        if tested:
            view = max(tested, key=lambda view: view.manifest.started_at)
            suite = SUITE if SUITE in view.suites else next(iter(view.suites))
            yield section(view, suite, f"{platform.manifest.device}-{markup.slug(view.machine_id)}", platform.name)


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


def _ways(checks: Sequence[Row]) -> tuple[bool, list[str], str] | None:
    """Whether workers were left behind, after which ways to end (all, where after none), and for how long at most."""
    if not checks:
        return None
    left = [row for row in checks if row["left"]]
    ways = [_ENDS[row["ends_by"]] for row in left or checks]
    return bool(left), ways, _seconds(max(row["gone_most_s"] for row in left or checks))


def _ended(row: Row) -> Sequence[str]:
    """How a training process ended × guard: whether workers were left, and for how long."""
    median, least, most = (_seconds(row[name]) for name in ("gone_s", "gone_least_s", "gone_most_s"))
    return (
        _ENDS[row["ends_by"]],
        "with the guard" if row["guarded"] else "plain PyTorch",
        f"{row['left']} of {row['n']}",
        markup.two_lines(median, f"{least} to {most}") if least != most else median,
        str(row["evidence"]),
    )


def _longer(rows: Sequence[Row]) -> tuple[str, ...] | None:
    """Whose start makes the shortest epochs longer, by how much, by which share, and of how many steps they are."""
    shortest = min(rows, key=lambda row: int(row["epoch_steps"]), default=None)
    if shortest is None or not words.is_number(shortest["respawn_ms_lo"]) or shortest["respawn_ms_lo"] <= 0:
        return None
    took = Estimate.of_row(shortest, columns_of("respawn_ms"))
    share = words.percent(took.value / shortest["anew_ms"])
    return who(shortest), took.with_n(" ms"), share, str(int(shortest["epoch_steps"]))


def _respawn(row: Row) -> Sequence[str]:
    """What an epoch takes longer where workers are started anew."""
    return (
        what(row, ("epoch_steps",)),
        who(row),
        words.plural(int(row["epoch_steps"]), "step"),
        words.number(row["anew_ms"]),
        words.number(row["kept_ms"]),
        _number(row, "respawn_ms", lambda value: words.number(value).replace("-", "−")),
        str(row["n"]),
    )


def _growth(row: Row) -> Sequence[str]:
    """Memory by what the dataset keeps of every sample."""
    count, ends = int(row["num_workers"]), ("", "_lo", "_hi")
    each = {f"each{end}": row[f"end_bytes{end}"] / count for end in ends}
    copies = {f"copies{end}": row[f"index_bytes{end}"] * count for end in ends}
    unsure = words.is_number(row["index_bytes_lo"]) and row["index_bytes_lo"] <= 0
    return (
        f"{row['index_kind']}, {int(row['index_entries']):,} entries",
        who(row),
        _number(row, "grew_bytes", _mib),
        words.number(row["samples"]),
        _number(row, "epoch_bytes", _mib),
        "–" if unsure else _number(copies, "copies", _mib),
        _number(each, "each", _mib),
        str(row["n"]),
    )


def _shared(row: Row) -> tuple[str, ...]:
    """The most that lay in /dev/shm, its share of the size, the setting, and what its workers prefetch at most."""
    share = words.percent(row["shm_share"]) if words.is_number(row["shm_share"]) else ""
    ahead = descriptions.size(int(row["ahead_bytes"])) if words.is_number(row["ahead_bytes"]) else ""
    return descriptions.size(int(row["shm_most_bytes"])), share, f"{who(row)}; {what(row)}", ahead
