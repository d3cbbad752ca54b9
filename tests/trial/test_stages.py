"""What is put around stages; ``test_device.py`` has them measured, and what a prefetcher does to their row."""

from __future__ import annotations

import pytest
from fake_device import FakeDevice

from feedrate.trial import stages
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
