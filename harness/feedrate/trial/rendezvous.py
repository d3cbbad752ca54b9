"""Where the nodes of a cluster's sweep meet, so that a trial runs on several of them at the same moment.

A server in the process that submitted the sweep knows where each node is. Nodes come to it before every block and
trial (``Meeting.gate``), so that none prepares a trial while another is measured; and the processes of a trial once
more when they have warmed up (``meet``), so that their windows begin together. Which nodes take part in a trial moves
on by one from block to block: every node is among few and among many.

XML-RPC of the standard library carries it. What nodes send is data; the path is a secret that only they are told.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from socketserver import ThreadingMixIn
from typing import Any
from xmlrpc.client import Error, ServerProxy, Transport
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

from feedrate.schema.errors import EnvironmentFault, InputError, TrialError

BLOCK = -1
"""The position of the gate before a block."""
Place = tuple[int, int]
"""Block and position of a trial."""
_WHY = ("budget", "differs", "closed")
"""Why no gate opens any more."""
ALIVE_S = 60
"""A connection that waits is tried so often: networks forget those that are silent, and a machine may be gone."""
LONG_S = 5.0
"""Whoever waits longer at a gate is said to wait; trials of the others take as long as that."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """A node's way to the others; of a trial, too, once the gate before it has opened."""

    url: str
    """Of the server."""
    node: int
    nodes: int
    """How many sweep."""
    block: int = 0
    position: int = BLOCK
    address: str = ""
    """Of this node, as the others reach it."""
    endpoint: str = ""
    """Host and port at which the first of the trial's nodes may listen."""

    @property
    def turn(self) -> int:
        """Which of the block's nodes this is, from 0; a trial of n nodes runs on the first n."""
        return (self.node - self.block) % self.nodes

    @property
    def leads(self) -> bool:
        """Whether this node is the first of every trial of the block."""
        return self.turn == 0

    @property
    def name(self) -> str:
        """Names the trial among all that meet here."""
        return f"{self.block}-{self.position}"

    def begin(self, block: int, plan: str) -> bool:
        """Wait until all nodes have come to a block: whether the budget has room for it.

        Args:
            block: from 0.
            plan: a digest of what the node will run.

        Raises:
            KeyboardInterrupt: the sweep ends.
            EnvironmentFault: the server cannot be reached.
            InputError: the nodes do not plan the same.
        """
        answer = _call(self.url, "gate", self.node, block, BLOCK, "", plan)
        if answer == "differs":
            raise InputError(
                "--together: the nodes do not plan the same cells; expected nodes that are equipped alike. make plan "
                "on two of them says in what they differ"
            )
        return answer != "budget"

    def gate(self, block: int, position: int) -> Meeting | None:
        """Wait until all nodes have come to a trial.

        Returns:
            The meeting of the trial; None where the others went on without this node.

        Raises:
            KeyboardInterrupt: the sweep ends.
            EnvironmentFault: the server cannot be reached.
        """
        address = self.address or _own_address(self.url)
        answer = _call(self.url, "gate", self.node, block, position, f"{address}:{_free_port(address)}", "")
        if answer == "gone":
            return None
        if answer in _WHY:  # the others ended while this node was thought lost
            raise KeyboardInterrupt
        return replace(self, block=block, position=position, address=address, endpoint=answer)


def meet(meeting: Meeting, nodes: int) -> None:
    """Wait, in a trial's own process, until all its nodes have warmed up.

    Raises:
        TrialError: one of them will not.
    """
    try:
        why = _call(meeting.url, "start", meeting.node, meeting.block, meeting.position, nodes)
    except KeyboardInterrupt:
        why = "the sweep ends"
    except EnvironmentFault:  # which names a machine: this message is a published row's
        why = "the others cannot be reached"
    if why:
        raise TrialError(f"the window did not begin on all {nodes} nodes: {why}")


class Rendezvous:
    """Knows where the nodes of a sweep are; any thread may ask."""

    def __init__(self, nodes: int, budget_s: float | None) -> None:
        self._changed = threading.Condition()
        self._nodes, self._budget_s = nodes, budget_s
        self._going = set(range(nodes))
        self._at: dict[int, Place] = {}
        """The gate at which each node is, or was last."""
        self._opened: Place = (0, BLOCK - 1)
        """The last gate that has opened."""
        self._begun: list[float] = []
        """When each block began; the first with its first trial, as what comes before it comes once."""
        self._plans: dict[int, str] = {}
        self._endpoints: dict[int, str] = {}
        self._waits: dict[int, float] = {}
        """Since when each node has waited at a gate."""
        self._ready: defaultdict[Place, set[int]] = defaultdict(set)
        """Nodes whose process of a trial has warmed up."""
        self._met: set[Place] = set()
        """Trials whose windows have begun."""
        self._why = ""
        """One of ``_WHY``, once the sweep ends."""

    def gate(self, node: int, block: int, position: int, endpoint: str, plan: str) -> str:
        """Wait at a gate: where the trial's first node listens, else why there is no trial."""
        place = block, position
        with self._changed:
            self._at[node], self._endpoints[node] = place, endpoint
            self._ready[self._opened].discard(node)  # where it was lost, its process of the trial is, too
            if position == BLOCK:
                self._plans[node] = plan
            self._waits[node] = time.monotonic()
            self._changed.notify_all()
            while not (self._why or self._opened >= place):
                if all(self._at.get(each) == place for each in self._going):
                    self._open(place)
                else:
                    self._changed.wait()
            self._waits.pop(node, None)
            if self._why:
                return self._why
            if self._opened > place or self._at[node] != place:
                return "gone"
            return self._endpoints.get(block % self._nodes, "")

    def _open(self, place: Place) -> None:
        self._opened = place
        if place[1] == BLOCK:
            self._begun.append(time.monotonic())
            took = (self._begun[-1] - self._begun[0]) / max(1, len(self._begun) - 1)
            if len({self._plans.get(node) for node in self._going}) > 1:
                self._why = "differs"
            elif self._budget_s and len(self._begun) * took > self._budget_s:
                self._why = "budget"
        elif len(self._begun) == 1 and place[1] == 0:
            self._begun[0] = time.monotonic()
        self._changed.notify_all()

    def start(self, node: int, block: int, position: int, nodes: int) -> str:
        """Wait until a trial has warmed up on all its nodes: why it will not; empty where it has."""
        place = block, position
        wanted = {(block + turn) % self._nodes for turn in range(nodes)}
        with self._changed:
            if place in self._met:  # the node was lost in between
                return "the others began without it"
            self._ready[place].add(node)
            while place not in self._met:
                if why := self._hopeless(place, wanted):
                    return why
                if wanted <= self._ready[place]:
                    self._met.add(place)
                    self._changed.notify_all()
                else:
                    self._changed.wait()
        return ""

    def _hopeless(self, place: Place, wanted: set[int]) -> str:
        """Why a trial will not begin; empty where it still may."""
        if self._why:
            return "the sweep ends"
        moved_on = [node for node in wanted if self._at.get(node, place) > place]
        absent = (wanted - self._going) or moved_on  # others may have moved on because of one that left
        return f"that of node {min(absent)} ended before" if absent else ""

    def behind(self) -> set[int]:
        """Nodes for which another has waited at a gate for more than ``LONG_S``."""
        with self._changed:
            long = any(time.monotonic() - since > LONG_S for since in self._waits.values())
            return self._going - self._waits.keys() if long else set()

    def leave(self, node: int) -> None:
        """Go on without a node."""
        with self._changed:
            self._going.discard(node)
            self._changed.notify_all()

    def close(self) -> None:
        """Open no gate any more."""
        with self._changed:
            self._why = self._why or "closed"
            self._changed.notify_all()


class _Server(ThreadingMixIn, SimpleXMLRPCServer):
    daemon_threads = True
    request_queue_size = 128  # nodes come at the same moment

    def handle_error(self, *_: object) -> None:
        """Say nothing of a node that was lost while it waited."""


def serve(rendezvous: Rendezvous, host: str) -> tuple[str, Callable[[], None]]:
    """Let nodes come to a rendezvous over the network.

    Args:
        rendezvous: where they meet.
        host: under which they reach this machine.

    Returns:
        Its URL, which is a secret, and what ends it.
    """
    path = f"/{secrets.token_hex(16)}"

    class Handler(SimpleXMLRPCRequestHandler):
        rpc_paths = (path,)

    server = _Server(("", 0), Handler, logRequests=False)
    server.register_function(rendezvous.gate)  # type: ignore[arg-type] # typeshed knows no five arguments
    server.register_function(rendezvous.start)  # type: ignore[arg-type]
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def end() -> None:
        rendezvous.close()
        server.shutdown()
        server.server_close()

    return f"http://{host}:{server.server_address[1]}{path}", end


class _Waiting(Transport):
    def make_connection(self, host: Any) -> HTTPConnection:
        """Open a connection that is kept alive."""
        connection = super().make_connection(host)
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
            connection.sock.setsockopt(socket.IPPROTO_TCP, option, ALIVE_S)
        return connection


def _call(url: str, name: str, *arguments: Any) -> str:
    """Ask the server, however long it takes.

    Raises:
        KeyboardInterrupt: it is closed, or gone.
        EnvironmentFault: it cannot be reached from here.
    """
    try:
        with ServerProxy(url, _Waiting()) as server:
            answer = str(getattr(server, name)(*arguments))
    except (ConnectionRefusedError, ConnectionResetError, Error) as error:
        raise KeyboardInterrupt from error
    except OSError as error:
        raise _unreachable(url, error) from error
    if answer == "closed":
        raise KeyboardInterrupt
    return answer


def _where(url: str) -> str:
    return url.removeprefix("http://").partition("/")[0]


def _unreachable(url: str, error: OSError) -> EnvironmentFault:
    return EnvironmentFault(
        f"--together: {_where(url)} cannot be reached: {error}; expected that nodes can open connections to the "
        "machine where the sweep was typed"
    )


def _own_address(url: str) -> str:
    """The address of this machine in the network through which it reaches the server."""
    host, _, port = _where(url).partition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:  # sends nothing
        try:
            asked.connect((host, int(port)))
        except OSError as error:
            raise _unreachable(url, error) from error
        return str(asked.getsockname()[0])


def _free_port(address: str) -> int:
    with socket.socket() as free:
        free.bind((address, 0))
        return int(free.getsockname()[1])
