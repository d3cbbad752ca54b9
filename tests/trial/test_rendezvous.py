"""Where nodes meet: over the real server, with threads in the place of nodes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from xmlrpc.client import ProtocolError, ServerProxy

import pytest

from feedrate.schema.errors import EnvironmentFault, InputError, TrialError
from feedrate.trial import rendezvous
from feedrate.trial.rendezvous import BLOCK, Meeting, Rendezvous, meet

SOON_S, HELD_S = 10.0, 0.2
"""How long anything that is not held up may take, and how long something that is held up is looked at."""
TOGETHER_S = 0.25
"""Within what nodes begin together; the last to come is a second behind."""


class Nodes:
    """As many nodes as a sweep has, each with a thread for whatever it waits for."""

    def __init__(self, count: int, budget_s: float | None = None) -> None:
        self.server = Rendezvous(count, budget_s, "127.0.0.1")
        self.all = [Meeting(self.server.url, node, count) for node in range(count)]
        self._pool = ThreadPoolExecutor(4 * count)

    def call(self, what: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Have a thread call something."""
        return self._pool.submit(what, *arguments)

    def begin(self, block: int, *who: int, plan: str = "alike") -> list[Future[Meeting | None]]:
        """Have nodes come to a block."""
        return self.gate(block, BLOCK, *who, plan=plan)

    def gate(self, block: int, position: int, *who: int, plan: str = "") -> list[Future[Meeting | None]]:
        """Have nodes come to a trial."""
        return [self.call(self.all[node].gate, block, position, plan) for node in who or range(len(self.all))]

    def meetings(self, block: int = 0, position: int = 0) -> list[Meeting]:
        """Have all nodes come to a trial, and wait for them."""
        return [meeting for meeting in results(self.gate(block, position)) if meeting]

    def end(self) -> None:
        """End the server and all that wait."""
        self.server.close()
        self._pool.shutdown()


@pytest.fixture
def nodes() -> Iterator[Callable[..., Nodes]]:
    """Makes nodes that have met for block 0."""
    made = []

    def make(count: int, budget_s: float | None = None) -> Nodes:
        made.append(Nodes(count, budget_s))
        assert all(results(made[-1].begin(0)))
        return made[-1]

    yield make
    for group in made:
        group.end()


def results(futures: list[Future[Any]]) -> list[Any]:
    """What they give, soon."""
    return [future.result(SOON_S) for future in futures]


def held(*futures: Future[Any]) -> bool:
    """Whether they still wait after a while."""
    time.sleep(HELD_S)
    return not any(future.done() for future in futures)


def fails(error: type[BaseException], text: str | None, *futures: Future[Any]) -> None:
    """All of them end with an error, soon."""
    for future in futures:
        with pytest.raises(error, match=text):
            future.result(SOON_S)


def test_a_gate_opens_when_all_have_come(nodes: Callable[..., Nodes]) -> None:
    """And tells all of them where the first node of the block listens, another one in the next block."""
    three = nodes(3)
    first = three.gate(0, 0, 0, 1)
    assert held(*first)
    meetings = results(first + three.gate(0, 0, 2))
    assert [(meeting.block, meeting.position) for meeting in meetings] == [(0, 0)] * 3
    assert {meeting.endpoint.partition(":")[0] for meeting in meetings} == {"127.0.0.1"}
    results(three.begin(1))
    endpoints = {meeting.endpoint for meeting in meetings}, {meeting.endpoint for meeting in three.meetings(1, 0)}
    assert endpoints[1] == {three.server._words[1]} != {three.server._words[0]}
    assert len(endpoints[0]) == 1


def test_a_node_that_has_left_is_not_waited_for(nodes: Callable[..., Nodes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where the others stand, nor later. Who is waited for long is known: nobody at first, or who has left."""
    four = nodes(4)
    waiting = four.gate(0, 0, 0, 1)
    assert held(*waiting)
    assert four.server.behind() == set()
    monkeypatch.setattr(rendezvous, "LONG_S", HELD_S / 2)
    assert four.server.behind() == {2, 3}
    four.server.leave(3)
    assert four.server.behind() == {2}
    assert held(*waiting)
    four.server.leave(2)
    assert all(results(waiting))
    assert four.server.behind() == set()
    assert all(results(four.begin(1, 0, 1)))


def test_blocks_end_with_the_budget_for_all(nodes: Callable[..., Nodes], monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is begun where it will end in time, going by those before it; packing before the first does not count."""
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(rendezvous, "time", clock)
    two = nodes(2, 10.0)
    clock.now = 60.0
    two.meetings()
    for block, now, room in ((1, 63.0, True), (2, 66.0, True), (3, 69.0, False)):
        clock.now = now
        assert [meeting is not None for meeting in results(two.begin(block))] == [room] * 2
    assert results(two.begin(3)) == [None, None]
    fails(KeyboardInterrupt, None, *two.gate(3, 0))


def test_nodes_that_plan_differently_are_refused(nodes: Callable[..., Nodes]) -> None:
    """All of them, with what to do; a node that has left has no say."""
    three, alike = nodes(3), nodes(3)
    differing = three.begin(1, 0, plan="this") + three.begin(1, 1, 2, plan="that")
    fails(InputError, r"do not plan the same cells.*make plan", *differing)
    alike.begin(1, 0, plan="this")
    alike.server.leave(0)
    assert all(results(alike.begin(1, 1, 2, plan="that")))


def test_windows_begin_together(nodes: Callable[..., Nodes]) -> None:
    """When the last process has warmed up all begin, within a fraction of a second; nodes that take no part do not."""

    def timed_meet(meeting: Meeting, count: int) -> float:
        meet(meeting, count)
        return time.perf_counter()

    four = nodes(4)
    meetings = four.meetings()
    early = [four.call(timed_meet, meeting, 3) for meeting in meetings[:2]]
    (elsewhere,) = four.gate(0, 1, 3)
    time.sleep(1)
    assert held(*early)
    moments = results([*early, four.call(timed_meet, meetings[2], 3)])
    assert max(moments) - min(moments) < TOGETHER_S
    assert held(elsewhere)


@pytest.mark.parametrize("waits", [True, False])
def test_a_trial_of_which_a_node_is_gone_fails_at_once(nodes: Callable[..., Nodes], waits: bool) -> None:
    """Whether its process failed and it stands at the next gate or it was lost, before the others wait or after."""
    for lose in (lambda of: of.gate(0, 1, 1), lambda of: of.server.leave(1)):
        three = nodes(3)
        first, _, third = three.meetings()
        waiting = [three.call(meet, first, 3)]
        if waits:
            waiting.append(three.call(meet, third, 3))
        assert held(*waiting)
        lose(three)
        text = "did not begin on all 3 nodes: that of node 1 ended before"
        fails(TrialError, text, *waiting)
        fails(TrialError, text, three.call(meet, third, 3))
    three.server.leave(0)
    fails(TrialError, text, three.call(meet, third, 3))


def test_who_does_not_know_the_path_gets_nothing(nodes: Callable[..., Nodes]) -> None:
    """Another path is not there, the same at every server and no other function are: nobody else opens a gate."""
    two = nodes(2)
    base, secret = two.server.url.rsplit("/", 1)
    assert len(secret) >= 32
    assert secret != nodes(2).server.url.rsplit("/", 1)[1]
    for path in ("", "/", "/RPC2", f"/{secret[:-1]}", f"/{secret}/"):
        with ServerProxy(base + path) as stranger, pytest.raises(ProtocolError) as caught:
            stranger.gate(0, 0, 0, "")
        assert caught.value.errcode == 404
    with pytest.raises(KeyboardInterrupt):
        replace(two.all[0], url=f"{base}/{secret[:-1]}").gate(0, 0)
    assert two.server._last == {0: (0, BLOCK), 1: (0, BLOCK)}


def test_a_server_that_is_not_there_ends_the_node(nodes: Callable[..., Nodes]) -> None:
    """Where it is gone, as Ctrl-C does; where no way leads to it, with what was expected; so does a trial's process."""
    two = nodes(2)
    (waiting,) = two.gate(0, 0, 0)
    assert held(waiting)
    two.end()
    gone, nowhere = two.all[1], replace(two.all[1], url="http://nowhere.invalid:9/path")
    fails(KeyboardInterrupt, None, waiting)
    problem = r"nowhere\.invalid:9 cannot be reached: .*; expected that nodes can"
    for node, error, text in ((gone, KeyboardInterrupt, None), (nowhere, EnvironmentFault, problem)):
        for come in (lambda node=node: node.gate(0, plan="alike"), lambda node=node: node.gate(0, 0)):
            with pytest.raises(error, match=text):
                come()
    for node, text in ((gone, "the sweep ends"), (nowhere, r"on all 2 nodes: the others cannot be reached$")):
        with pytest.raises(TrialError, match=text):
            meet(node, 2)


def test_a_server_that_is_killed_ends_who_waits() -> None:
    """A node at its gate ends as by Ctrl-C, and a trial that has warmed up with its reason."""
    code = (
        "from feedrate.trial.rendezvous import Rendezvous as R; print(R(3, None, '127.0.0.1').url, flush=True); input()"
    )
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)
    with process, ThreadPoolExecutor() as pool:
        assert process.stdout
        url = process.stdout.readline().strip()
        first, *_ = pool.map(lambda node: Meeting(url, node, 3).gate(0, 0), range(3))
        warm, at_gate = pool.submit(meet, first, 2), pool.submit(Meeting(url, 2, 3).gate, 0, 1)
        waited = held(warm, at_gate)
        process.kill()
        assert waited
        fails(TrialError, "the sweep ends", warm)
        fails(KeyboardInterrupt, None, at_gate)
