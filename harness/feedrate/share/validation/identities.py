"""What a trial's numbers must fulfil together: whatever can be computed from the others is computed anew.

Every rule is an entry of ``RULES``: a name, a sentence, and a function over many rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from feedrate.schema.columns import DEVICE_SPANS, PHASES
from feedrate.schema.window import STEADY
from feedrate.share.validation.rows import Floats, Mask, Offence, RowRule, Rows, cells, held

RATE_WITHIN = 1e-6
"""Share by which a stored rate may miss what it is computed from: one of them is a float, one whole nanoseconds."""
OPEN_SHARE, OPEN_NS = 0.1, 5e6
"""What the phases may leave of the wall clock: ``other`` is stamped by itself, and the system may step in between."""
OVER_NS = 1e3
"""What the phases may be more than the wall clock by: nothing, but for rounding."""
_WINDOW = ("steps", "samples", "wall_ns", "samples_per_s")
_OF_A_DEVICE = ("host_h2d_ns", *(f"device_{span}_ns" for span in DEVICE_SPANS))
_PARTS = ("wall_ns", "warmup_ns", "startup_ns", "compile_ns")
"""What a trial does one after the other; a cache that it reads was filled by the first trial that read it."""


def _timed(rows: Rows) -> Mask:
    """Trials that ended well and timed a window: all that did but checks of facts."""
    return _ended_well(rows) & ~rows.text("mode").one_of(("check",), null=False)


def _ended_well(rows: Rows) -> Mask:
    return rows.text("outcome").one_of(("ok",), null=False)


def _of_run(rows: Rows) -> Iterator[Offence]:
    yield _unlike(rows, "run_id", rows.said("run_id", lambda run: run.run_id))
    yield _unlike(rows, "machine_id", rows.said("machine_id", lambda run: run.machine.machine_id))
    yield _unlike(rows, "device", rows.said("device", lambda run: run.device))
    protocol = rows.of_sources(lambda run: run.protocol_version)
    yield _unlike(rows, "protocol_version", rows.number("protocol_version") == protocol)


def _unlike(rows: Rows, name: str, alike: Mask) -> Offence:
    return Offence(name, ~alike, held(rows, name), "what the manifest says")


def _trial_ids(rows: Rows) -> Iterator[Offence]:
    run, found = (_plain(rows, name) for name in ("run_id", "trial_id"))
    block, position = (pc.cast(rows.table.column(name), pa.string()) for name in ("block", "position"))
    wanted = pc.binary_join_element_wise(
        run, pc.utf8_lpad(block, 3, padding="0"), pc.utf8_lpad(position, 4, padding="0"), "-"
    )
    wrong = pc.fill_null(pc.not_equal(found, wanted), True).to_numpy().astype(np.bool_)
    yield Offence("trial_id", wrong, held(rows, "trial_id"), "run_id, block and position, joined")


def _plain(rows: Rows, name: str) -> pa.ChunkedArray:
    return rows.table.column(name).cast(pa.string())


def _samples(rows: Rows) -> Iterator[Offence]:
    world = np.nan_to_num(rows.number("world_size"), nan=1.0)
    wanted = rows.number("steps") * rows.number("batch_size") * world
    wrong = _timed(rows) & ~(rows.number("samples") == wanted)
    yield Offence("samples", wrong, _number(rows.number("samples")), "steps × batch_size × world_size")


def _rate(rows: Rows) -> Iterator[Offence]:
    rate, samples = rows.number("samples_per_s"), rows.number("samples")
    meant = rate * rows.number("wall_ns") / 1e9
    wrong = _timed(rows) & ~(np.abs(meant - samples) <= RATE_WITHIN * samples)
    yield Offence("samples_per_s", wrong, _number(rate), "samples ÷ wall_ns")


def _phases(rows: Rows) -> Iterator[Offence]:
    total, wall = host_ns(rows), rows.number("wall_ns")
    closes = (total <= wall + OVER_NS) & (total >= wall - OPEN_SHARE * wall - OPEN_NS)
    expected = f"wall_ns, or less by {100 * OPEN_SHARE:g} % and {OPEN_NS / 1e6:g} ms at most"
    yield Offence("host_*_ns", _timed(rows) & ~closes, _number(total), expected)


def host_ns(rows: Rows) -> Floats:
    """Sum the host's phases of each row; what a trial does not do counts nothing."""
    total: Floats = np.sum([np.nan_to_num(rows.number(f"host_{phase}_ns")) for phase in PHASES], axis=0)
    return total


def _steady(rows: Rows) -> Iterator[Offence]:
    half = rows.number("half_ratio")
    wrong = rows.known("steady") & (rows.number("steady") != ((half > STEADY) & (half < 1 / STEADY)))
    yield Offence("steady", wrong, held(rows, "steady"), f"whether half_ratio lies within {STEADY:g} and its inverse")


def _outcomes(rows: Rows) -> Iterator[Offence]:
    timed, well = _timed(rows), _ended_well(rows)
    failed = rows.known("error_kind")
    yield Offence("error_kind", failed == well, held(rows, "error_kind"), "a kind where a trial failed, and only there")
    for name in _WINDOW:
        yield Offence(name, rows.known(name) != timed, held(rows, name), "a value where a window was timed")
    fact = rows.known("fact")
    yield Offence("fact", fact != (well & ~timed), held(rows, "fact"), "a value where a check ended well")


def _whole(rows: Rows) -> Iterator[Offence]:
    parts = np.sum([np.nan_to_num(rows.number(name)) for name in _PARTS], axis=0)
    wrong = _timed(rows) & ~(parts <= rows.number("trial_wall_ns") * (1 + RATE_WITHIN))
    yield Offence("trial_wall_ns", wrong, held(rows, "trial_wall_ns"), f"at least {' + '.join(_PARTS)}")


def _on_a_cpu(rows: Rows) -> Iterator[Offence]:
    cpu = rows.text("device").one_of(("cpu",), null=False)
    for name in _OF_A_DEVICE:
        yield Offence(name, cpu & rows.known(name), held(rows, name), "nothing, on a CPU")


def _number(values: Floats) -> Callable[[int], str]:
    return lambda row: f"{values[row]:.12g}"


RULES = (
    RowRule("of_run", "Every row names the manifest's run, machine, device and protocol version.", _of_run),
    RowRule("trial_id", "A trial's id is computed anew from its run, block and position.", _trial_ids),
    RowRule(
        "cell",
        "A cell's id is computed anew from its axes, all its rows have the same ones, and every axis has a value that "
        "it can have, away from its default only where it applies.",
        cells,
    ),
    RowRule(
        "outcome",
        "A trial that ended well timed a window (a check: saw a fact) and has no error; one that failed has an error "
        "and no window.",
        _outcomes,
    ),
    RowRule("samples", "Samples are steps × batch size × replicas.", _samples),
    RowRule("rate", "Throughput × wall clock is the number of samples, to one part in a million.", _rate),
    RowRule(
        "phases",
        "The host's phases sum to no more than the window's wall clock and to at least "
        f"{100 * (1 - OPEN_SHARE):g} % of it minus {OPEN_NS / 1e6:g} ms; the rest lies between stamps.",
        _phases,
    ),
    RowRule("device", "Where a trial ran on a CPU nothing was copied to a device and no device was timed.", _on_a_cpu),
    RowRule("steady", "Whether a window was steady is computed anew from the ratio of its halves.", _steady),
    RowRule(
        "whole",
        "Start-up, compiling, warm-up and window together take no longer than the whole trial.",
        _whole,
    ),
)
