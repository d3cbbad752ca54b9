"""How long everything takes in a made-up trial of the loader suite, and what its clocks say of that.

Loading against computing, whichever is slower, plus overheads. The numbers stand for no machine.
"""

from __future__ import annotations

from feedrate.schema.axes import Value
from feedrate.schema.columns import WORKER_STAGES

WORK = {"png": (0.2, 0.55, 0.15, 0.1), "lmdb": (0.1, 0.05, 0.55, 0.3)}
"""Share of a worker's time in each of its stages, by format."""


def _loading(cell: dict[str, Value]) -> float:
    """Seconds for which one process prepares a batch."""
    pixels = int(cell["patch_size"]) ** 2 / 64**2
    sample = 220e-6 * pixels + (60e-6 if cell.get("storage_format") == "png" else 12e-6)
    return int(cell["batch_size"]) * sample + 0.6e-3 + sum(_plants(cell)) / 1e9


def _plants(cell: dict[str, Value]) -> tuple[float, float, float, float]:
    """What is planted into each of a worker's stages, nanoseconds a batch."""
    read, decode, collate = (float(cell.get(f"{name}_us", 0)) * 1000 for name in ("read", "decode", "collate"))
    return int(cell["batch_size"]) * read, int(cell["batch_size"]) * decode, 0.0, collate


def phases(cell: dict[str, Value], device: str) -> dict[str, float]:
    """Seconds a batch in each phase."""
    batch, workers = int(cell["batch_size"]), int(cell.get("num_workers", 0))
    pixels = int(cell["patch_size"]) ** 2 / 64**2
    load = _loading(cell)
    if workers:
        load = load / min(workers, 2) + 0.3e-3
    speed = 40.0 if device == "cuda" else 1.0
    step = (
        float(cell["step_ms"]) / 1000
        if cell.get("step") == "emulated"
        else (3e-3 + batch * 1.1e-3 * pixels * 16) / speed
    )
    if cell["mode"] in ("load", "copy"):
        step = 0.0
    hidden = step if workers else 0.0
    times = {"fetch": max(load - hidden, 0.2e-3), "forward": step, "other": 0.05e-3}
    if cell["mode"] in ("compute", "copy"):
        times["fetch"] = 0.0
    if cell.get("step") != "emulated" and cell["mode"] in ("train", "compute"):
        times |= {"forward": step * 0.3, "backward": step * 0.62, "optimizer": step * 0.08}
    if device == "cuda" and cell["mode"] in ("train", "copy"):
        times["h2d"] = batch * 12e-6 * pixels * (0.6 if cell.get("pin_memory") else 1.0)
    return times


def main_cpu_pct(cell: dict[str, Value], times: dict[str, float], wall: float) -> float:
    """The training process computes in its own phases unless it sleeps, and loads where there are no workers."""
    idle: tuple[str, ...] = () if cell.get("num_workers") == 0 else ("fetch",)
    idle += ("forward",) if cell.get("step") == "emulated" else ()
    return 100 * sum(seconds for phase, seconds in times.items() if phase not in idle) / wall


def spans(cell: dict[str, Value], times: dict[str, float]) -> dict[str, int]:
    """What CUDA events say: the host's times, of copies that return early a quarter waited for."""
    found: dict[str, float] = {
        phase: times[phase] for phase in ("h2d", "forward", "backward", "optimizer") if phase in times
    }
    if "h2d" in found:
        found["h2d_exposed"] = found["h2d"] * (0.25 if cell.get("non_blocking") else 1.0)
    return {f"device_{span}_ns": int(seconds * 1e9) for span, seconds in found.items()}


def stamps(cell: dict[str, Value], steps: int) -> dict[str, int]:
    """What the workers stamp."""
    if cell["mode"] not in ("train", "load"):
        return {}
    planted = _plants(cell)
    busy = (_loading(cell) * 1e9 - sum(planted)) * 0.95
    shares = WORK.get(str(cell["storage_format"]), WORK["lmdb"])
    return {
        f"worker_{stage}_ns": int((share * busy + 1.004 * more) * steps)
        for stage, share, more in zip(WORKER_STAGES, shares, planted, strict=True)
    }
