"""The device's clock, with events that keep a clock of their own: what is recorded where, and what the spans are."""

from __future__ import annotations

from feedrate.trial.stages import Stage
from feedrate.trial.transfer import Timeline, serialize


class Clock:
    """A device whose time passes when work is issued to it."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.made = 0

    def event(self) -> Event:
        self.made += 1
        return Event(self)

    def work(self, ms: float) -> Stage:
        def run(state: object) -> object:
            self.ms += ms
            return state

        return Stage({2: "h2d", 3: "forward", 5: "backward"}[int(ms)], run)


class Event:
    """What torch.cuda.Event does, on a Clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at = -1.0

    def record(self) -> None:
        self._at = self._clock.ms

    def elapsed_time(self, end: Event) -> float:
        assert self._at >= 0, "an event was read that was never recorded"
        return end._at - self._at


def test_spans_and_gaps() -> None:
    """Each phase's span is what the device did in it; idle is the gap between steps, none before the first."""
    clock = Clock()
    row = [clock.work(2), clock.work(3), clock.work(5)]
    timeline = Timeline([stage.phase for stage in row], clock.event)
    timed = timeline.instrument(row)
    timeline.reset(4)
    for _ in range(3):
        for stage in timed:
            stage.run(None)
        clock.ms += 7
    assert timeline.spans() == {
        "h2d": [2_000_000] * 3,
        "forward": [3_000_000] * 3,
        "backward": [5_000_000] * 3,
        "idle": [0, 7_000_000, 7_000_000],
    }


def test_events_are_made_before_the_window_and_used_again() -> None:
    """Steps within the capacity make no event; the warm-up's are used again; one step too many still works."""
    clock = Clock()
    timeline = Timeline(["forward"], clock.event)
    (timed,) = timeline.instrument([clock.work(3)])
    timeline.reset(2)
    made = clock.made
    timed.run(None)
    timed.run(None)
    assert clock.made == made == 4
    timed.run(None)
    assert len(timeline.spans()["forward"]) == 3
    timeline.reset(3)
    assert clock.made == 6
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


def test_halves_are_told_by_the_device() -> None:
    """A host that runs ahead queues work at once and then waits: an even device is steady all the same."""
    clock = Clock()
    timeline = Timeline(["forward"], clock.event)
    (timed,) = timeline.instrument([clock.work(3)])
    timeline.reset(10)
    for _ in range(10):
        timed.run(None)
    assert timeline.half_ratio(1) == 1
    timeline.reset(10)
    for step in range(10):
        timed.run(None)
        clock.ms += 3 * (step >= 5)
    assert timeline.half_ratio(1) < 0.65


def test_a_copy_of_its_own_stream_has_its_own_clock() -> None:
    """Its span is read on its stream; what the compute stream waited for it is the exposed part of it."""
    compute, copies = Clock(), Clock()
    on: list[Clock] = [compute]
    timeline = Timeline(["h2d", "forward"], lambda: Anywhere(on))

    def move(batch: int) -> int:
        copies.ms += 4
        return batch

    def wait(batch: object) -> object:
        compute.ms += 2
        return batch

    timed_move = timeline.beside(move)
    row = timeline.instrument([Stage("h2d", wait), compute.work(3)])
    timeline.reset(1)  # the second step's events are made when it comes
    for batch in range(2):
        on.append(copies)
        timed_move(batch)
        on.pop()
        for stage in row:
            stage.run(None)
    spans = timeline.spans()
    assert spans["h2d"] == [4_000_000, 4_000_000]
    assert timeline.exposed() == [2_000_000, 2_000_000]
    assert spans["forward"] == [3_000_000, 3_000_000]
    timeline.reset(2)
    assert (timeline.spans()["h2d"], timeline.exposed()) == ([], [])


def test_on_one_stream_all_of_a_copy_is_exposed() -> None:
    """Without a stream of its own a copy is waited for; where nothing is copied, nothing is."""
    clock = Clock()
    timeline = Timeline(["h2d"], clock.event)
    (timed,) = timeline.instrument([clock.work(2)])
    timed.run(None)
    assert timeline.exposed() == timeline.spans()["h2d"] == [2_000_000]
    assert Timeline(["forward"], clock.event).exposed() is None


class Anywhere:
    """An event that is recorded on the stream that is current then."""

    def __init__(self, on: list[Clock]) -> None:
        self._on = on
        self._at = -1.0

    def record(self) -> None:
        self._at = self._on[-1].ms

    def elapsed_time(self, end: Anywhere) -> float:
        assert self._at >= 0, "an event was read that was never recorded"
        return end._at - self._at
