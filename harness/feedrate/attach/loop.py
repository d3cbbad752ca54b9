"""What a training loop's records say: its pace, how long it waited for data, what held it back, what would help.

Pace is steps ÷ wall clock of the loops, from the making of each iterator to the end of its last whole step, once what
was prefetched at the beginning is consumed. Steps of one process depend on one another, so that the interval is that of
batch means (Law and Kelton, Simulation Modeling and Analysis, chapter 9): the steps are cut into equal stretches, fewer
and longer ones until neighbours no longer resemble each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from feedrate.analysis.estimate import Estimate, Kind, half_width
from feedrate.attach.records import DRAINED, NEXT, REUSED, Loader, Process, Records
from feedrate.schema.window import LEAST_WARM_UP, drained_after, warm_up_steps

MOST_STRETCHES, LEAST_STRETCHES = 32, 6


@dataclass(frozen=True, slots=True)
class Pacing:
    """A loop's pace and its waits."""

    steps: int
    stretches: int
    steps_per_s: Estimate
    wait_share: Estimate
    """Of the wall clock, waiting for the next batch; the start of iterators is part of it."""
    startup_share: float
    """Of the wall clock, from making an iterator to its first batch."""
    starved_share: Estimate | None
    """Of the wall clock, the device had nothing to do when a batch came; None without CUDA."""


def pacing(loader: Loader) -> Pacing | None:
    """Measure a loop; None where there are not two whole steps after the warm-up."""
    steps = whole_steps(loader)
    if len(steps) < 2:
        return None
    walls, parts = steps["wall_ns"].astype(float), stretches(steps, workers_of(loader))

    def ratio_of(values: pd.Series[float], by: pd.Series[float], kind: Kind = "share") -> Estimate:
        ratio = float(values.sum() / by.sum())
        sums = [(values.iloc[stretch].sum(), by.iloc[stretch].sum()) for stretch in parts]
        of_parts = np.array([value / base for value, base in sums if base])
        half = float(half_width(of_parts.std(ddof=1), len(of_parts))) if len(of_parts) >= LEAST_STRETCHES else np.nan
        low, high = np.clip([ratio - half, ratio + half], 0.0, 1.0 if kind == "share" else None)
        return Estimate(ratio, float(low), float(high), len(of_parts), kind)

    # A step that is seen stands for those up to the next one.
    stands_for = steps.groupby(steps["detailed"].cumsum())["detailed"].transform("size")
    seen, starved = (values.where(steps["cuda"]) * stands_for for values in (walls, steps["starved_ns"]))
    return Pacing(
        steps=len(steps),
        stretches=len(parts),
        steps_per_s=ratio_of(walls * 0 + 1e9, walls, "number"),
        wait_share=ratio_of(steps["wait_ns"].astype(float), walls),
        startup_share=float(steps.loc[steps["first"], "wait_ns"].sum() / walls.sum()),
        starved_share=ratio_of(starved.clip(upper=seen), seen) if steps["cuda"].any() else None,
    )


def whole_steps(loader: Loader, window: tuple[int, int] | None = None) -> pd.DataFrame:
    """The steps that count: ended, and after the warm-up; or those that lie in a window.

    Returns:
        Rows of ``loader.steps`` with ``wall_ns``, ``wait_ns`` and ``step_ns``, and of how their batch was prepared
        ``worker``, ``samples``, ``prepared_begun_ns``, ``prepared_ended_ns`` and ``collate_ns``, NaN where that was not
        seen.
    """
    every, warm = _with_batches(loader), warm_up_steps(*_workers_and_stock(loader))
    steps = every.iloc[warm:] if len(every) > 4 * warm else every.iloc[1:]
    if window is not None:
        steps = every[(every["begun_ns"] >= window[0]) & (every["ended_ns"] <= window[1])]
    steps = steps[steps["ended_ns"] > 0]
    began = steps["made_ns"].where(steps["first"], steps["begun_ns"])
    return steps.assign(
        wall_ns=steps["ended_ns"] - began, wait_ns=steps["got_ns"] - began, step_ns=steps["ended_ns"] - steps["got_ns"]
    )


def workers_of(loader: Loader) -> int:
    """Number of its worker processes; 0 where that is not known."""
    return int(loader.settings.get("num_workers") or 0)


def _workers_and_stock(loader: Loader) -> tuple[int, int]:
    return workers_of(loader), int(loader.settings.get("prefetch_factor") or 0)


def _with_batches(loader: Loader) -> pd.DataFrame:
    """Steps beside how their batches were prepared; a number comes once an epoch, the last batch of it counts."""
    columns = ["iterator", "batch", "worker", "samples", "begun_ns", "ended_ns", "collate_ns"]
    prepared = loader.batches[columns].rename(columns={f"{end}_ns": f"prepared_{end}_ns" for end in ("begun", "ended")})
    return pd.merge_asof(
        loader.steps.sort_values("got_ns"),
        prepared.sort_values("prepared_ended_ns"),
        left_on="got_ns",
        right_on="prepared_ended_ns",
        by=["iterator", "batch"],
    )


def stretches(steps: pd.DataFrame, num_workers: int) -> list[npt.NDArray[np.intp]]:
    """Cut the steps that count into as many stretches as there can be without their means depending on one another.

    Returns:
        The places of each one's steps: rounds of the workers, as batches come in bursts. Two at least.
    """
    walls, places = steps["wall_ns"].to_numpy(np.float64), np.arange(len(steps))
    turn = num_workers if len(walls) >= 2 * LEAST_STRETCHES * num_workers > 0 else 1
    count = min(MOST_STRETCHES, len(walls) // turn // 2)

    def cut(count: int) -> list[npt.NDArray[np.intp]]:
        ends = [turn * stretch[-1] + turn for stretch in np.array_split(np.arange(len(walls) // turn), count)]
        return np.split(places, ends[:-1])

    while count > LEAST_STRETCHES:
        means = np.array([walls[stretch].mean() for stretch in cut(count)])
        left = means - means.mean()
        if not left.any() or (left[1:] @ left[:-1]) / (left @ left) < 2 / np.sqrt(count):
            break
        count //= 2
    return cut(max(2, count))


def all_threads_ns(batches: pd.DataFrame) -> pd.Series[float]:
    """CPU time that preparing each batch took, of all threads of its process."""
    return batches[["process_cpu_ns", "cpu_ns"]].max(axis=1).astype(float)


def preparing(batches: pd.DataFrame) -> pd.DataFrame:
    """Split the time that preparing each batch took: ``preparing`` in all, ``computing``, ``queued``, ``waiting``."""
    took = (batches["ended_ns"] - batches["begun_ns"]).astype(float)
    computing = np.minimum(all_threads_ns(batches), took)
    queued = np.minimum(batches["queued_ns"], took - computing)
    return pd.DataFrame(
        {"preparing": took, "computing": computing, "queued": queued, "waiting": took - computing - queued}
    )


def activity(loader: Loader, steps: pd.DataFrame, cores: float) -> dict[str, float]:
    """Say what those did who prepare batches, while some steps ran, as shares of their time.

    Beside these ``used``, of the cores' time, and ``threads``: a worker computed so many times what its first one did.
    """
    batches = loader.batches
    batches = batches[batches["ended_ns"].between(steps["begun_ns"].min(), steps["ended_ns"].max())]
    span = float(steps["wall_ns"].sum()) * max(1, workers_of(loader))
    whole = all_threads_ns(batches)
    sums = dict(preparing(batches).sum()) | {"collating": batches["collate_ns"].sum()}
    if not workers_of(loader) and len(batches):  # of short steps only some were recorded
        sums = {name: value * len(steps) / len(batches) for name, value in sums.items()}
    main = np.nan_to_num((steps["wait_cpu_ns"] + steps["step_cpu_ns"]).mean()) * len(steps)
    used = (main + whole.sum() * bool(workers_of(loader))) / (steps["wall_ns"].sum() * cores)
    return {name: float(value / span) if span else 0.0 for name, value in sums.items()} | {
        "used": float(used),
        "threads": float(whole.sum() / max(1.0, float(batches["cpu_ns"].sum()))),
    }


def exposed(loaders: Sequence[Loader]) -> float:
    """Share of the time of replicas' steps in which one of them at least waited for data; NaN of one alone.

    Replicas exchange gradients in each step, so that the longest wait of a step holds up all of them.
    """
    if len(loaders) < 2:
        return float("nan")
    steps = [whole_steps(loader) for loader in loaders]
    count = min(map(len, steps))
    waits = np.array([rank["wait_ns"].to_numpy()[:count] for rank in steps])
    walls = np.array([rank["wall_ns"].to_numpy()[:count] for rank in steps])
    return float(waits.max(axis=0).sum() / max(1, walls.sum(axis=1).max()))


def alone(loader: Loader, processes: Sequence[Process]) -> dict[str, Records]:
    """When each step without its loader began (``compute``), and each batch without a step came (``load``), in ns.

    Empty where the hook was not asked for it. What was prefetched before the loader ran by itself is left out.
    """
    process = next(candidate for candidate in processes if candidate.pid == loader.pid and candidate.of(NEXT).size)
    stock = drained_after(*_workers_and_stock(loader))
    by_kind = {"compute": process.of(REUSED)[LEAST_WARM_UP:, 1], "load": process.of(DRAINED)[stock:, 2]}
    return {mode: times for mode, times in by_kind.items() if len(times) > 2}


def rate(times: Records) -> float:
    """How often something happened, a second."""
    return 1e9 * (len(times) - 1) / float(times[-1] - times[0])
