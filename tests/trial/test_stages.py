"""What is put around stages, and what a prefetcher does to their row; ``test_device.py`` has them measured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_device import FakeDevice

from feedrate.loaders import Batch
from feedrate.trial import stages
from feedrate.trial.job import Job
from feedrate.trial.stages import Stage, Timeline, serialize


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    device = FakeDevice()
    device.install(monkeypatch)
    return device


def working(device: FakeDevice, phase: str, ms: int) -> Stage:
    return Stage(phase, lambda _: device.launch(0, ms * 1_000_000))


def test_events_are_made_before_the_window_and_used_again(device: FakeDevice) -> None:
    """Steps within the capacity make no event; the warm-up's are used again; one step too many still works."""
    made = []

    def make() -> object:
        made.append(1)
        return stages.timed_event()

    timeline = Timeline(["forward"], make)
    (timed,) = timeline.instrument([working(device, "forward", 3)])
    timeline.reset(2)
    timed.run(None)
    timed.run(None)
    assert len(made) == 4
    timed.run(None)
    device.synchronize()
    assert len(timeline.spans()["forward"]) == 3
    timeline.reset(3)
    assert len(made) == 6
    assert timeline.spans() == {"forward": [], "idle": []}


def test_serialized_waits_after_every_stage() -> None:
    """With timing = serialized the host waits for the device after each stage, and passes its result on."""
    waits: list[int] = []
    row = serialize([Stage("forward", lambda s: s + 1), Stage("backward", lambda s: s * 2)], lambda: waits.append(1))
    state = 1
    for stage in row:
        state = stage.run(state)
    assert state == 4
    assert len(waits) == 2


def batches() -> Iterator[Batch]:
    return (Batch((f"b{k}",), b"") for k in range(1000))  # type: ignore[arg-type]


def trial(prefetcher: str) -> Job:
    return Job("trial", device="cuda", cell={"prefetcher": prefetcher})


def row(*phases: str) -> list[Stage]:
    return [Stage(phase, lambda state: state) for phase in phases]


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        (("h2d", "forward", "backward", "optimizer"), ["forward", "backward", "h2d", "optimizer"]),
        (("h2d", "forward"), ["forward", "h2d"]),
    ],
)
def test_the_next_batch_is_moved_when_the_passes_are_launched(phases: tuple[str, ...], expected: list[str]) -> None:
    """The next one's copy is issued before the weights are updated; an emulated step is one stage alone."""
    prefetched = stages.prefetch(trial("next_batch"), row(*phases), batches())
    assert [stage.phase for stage in prefetched.row] == expected
    assert (prefetched.held, prefetched.streamed) == (1, None)
