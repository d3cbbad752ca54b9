"""Where the nodes of a cluster's sweep meet, so that a trial runs on several of them at the same moment.

A server in the process that submitted the sweep knows where each node is. Nodes come to it before every block and
trial (``Meeting.gate``), so that none prepares a trial while another is measured; and the processes of a trial once
more when they have warmed up (``meet``), so that their windows begin together. Which nodes take part in a trial moves
on by one from block to block: every node is among few and among many.

XML-RPC of the standard library carries it. PyTorch's ``TCPStore`` needs torch in the process that submits, which loads
none, and its waits know nothing of nodes that left. What nodes send is data; the path is a secret that only they know.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from socketserver import ThreadingMixIn
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from xmlrpc.client import Error, ServerProxy, Transport
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

from feedrate.schema.errors import EnvironmentFault, InputError, TrialError

Gate = tuple[int, int]
"""Block and position of a trial."""
BLOCK = -1
"""The position of the gate before a block."""
BEGUN = "begun"
_ENDS = ("budget", "differs", "closed")
"""Why no gate opens any more."""
ALIVE_S = 60
"""A connection that waits is tried so often: networks forget those that are silent, and a machine may be gone."""
LONG_S = 5.0
"""Whoever waits longer at a gate is said to wait; trials of the others take as long as that."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """A node's way to the others; of a trial, too, once the gate before it has opened.

    Its waits raise KeyboardInterrupt when the sweep ends, EnvironmentFault where the server cannot be reached.
    """

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
        """Wait until all nodes are at a block with the same digest of their plan: whether the budget has room for it.

        Raises an InputError where the plans differ.
        """
        with _server(self.url) as server:
            answer = server.gate(self.node, block, BLOCK, "", plan)
        if answer == "differs":
            raise InputError(
                "--together: the nodes do not plan the same cells; expected nodes that are equipped alike. make plan "
                "on two of them says in what they differ"
            )
        if answer == "closed":
            raise KeyboardInterrupt
        return answer != "budget"

    def gate(self, block: int, position: int) -> Meeting | None:
        """Wait until all nodes are at a trial: its meeting; None where the others went on without this node."""
        with _server(self.url) as server:
            address, port = _free_address(self.url)
            answer = str(server.gate(self.node, block, position, f"{address}:{port}", ""))
        if answer in _ENDS:  # where this node was thought lost, the others may have ended with the budget
            raise KeyboardInterrupt
        if answer == "gone":
            return None
        return replace(self, block=block, position=position, address=address, endpoint=answer)


def meet(meeting: Meeting, nodes: int) -> None:
    """Wait, in a trial's process, until all its nodes have warmed up; a TrialError says that one of them will not."""
    try:
        with _server(meeting.url) as server:
            answer = str(server.start(meeting.node, meeting.block, meeting.position, nodes))
    except KeyboardInterrupt:
        answer = "the sweep ends"
    except EnvironmentFault:  # which names a machine: this message is a published row's
        answer = "the others cannot be reached"
    if answer != BEGUN:
        raise TrialError(f"the window did not begin on all {nodes} nodes: {answer}")


class _Arrival(NamedTuple):
    """When a node came to a gate, and with what."""

    gate: Gate = (0, BLOCK - 1)
    since: float = 0.0
    endpoint: str = ""
    plan: str = ""


class Rendezvous(ThreadingMixIn, SimpleXMLRPCServer):
    """Knows where the nodes of a sweep are, which reach this machine as ``host``; any thread may ask."""

    daemon_threads = True
    request_queue_size = 128  # nodes come at the same moment

    def __init__(self, nodes: int, budget_s: float | None, host: str) -> None:
        path = f"/{secrets.token_hex(16)}"
        handler = type("Handler", (SimpleXMLRPCRequestHandler,), {"rpc_paths": (path,)})
        super().__init__(("", 0), handler, logRequests=False)
        self.url = f"http://{host}:{self.server_address[1]}{path}"
        self._changed = threading.Condition()
        self._nodes, self._budget_s = nodes, budget_s
        self._going = set(range(nodes))
        self._last = dict.fromkeys(range(nodes), _Arrival())
        self._opened = _Arrival().gate  # the last gate that has
        self._blocks: list[float] = []  # when each began; the first with its first trial, as packing comes once
        self._warm: defaultdict[Gate, set[int]] = defaultdict(set)  # trial to nodes
        self._begun: set[Gate] = set()  # trials whose windows have
        self._end = ""  # one of _ENDS, once the sweep ends
        self.register_function(self.gate)  # type: ignore[arg-type] # typeshed knows no five arguments
        self.register_function(self.start)  # type: ignore[arg-type]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def gate(self, node: int, block: int, position: int, endpoint: str, plan: str) -> str:
        """Wait at a gate: where the trial's first node listens, else why there is no trial."""
        gate = block, position
        with self._changed:
            self._last[node] = _Arrival(gate, time.monotonic(), endpoint, plan)
            self._warm[self._opened].discard(node)  # where it was lost, its process of the trial is, too
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_open(gate))
            missed = self._opened > gate or self._last[node].gate != gate
            return self._end or ("gone" if missed else self._last[block % self._nodes].endpoint)

    def _is_open(self, gate: Gate) -> bool:
        """Whether nobody need wait at a gate any more; who asks when all are there opens it."""
        if self._end or self._opened >= gate:
            return True
        arrivals = [self._last[node] for node in self._going]
        if any(arrival.gate != gate for arrival in arrivals):
            return False
        self._opened, now = gate, time.monotonic()
        if gate[1] == BLOCK:
            self._blocks.append(now)
            block_s = (now - self._blocks[0]) / max(1, len(self._blocks) - 1)
            if len({arrival.plan for arrival in arrivals}) > 1:
                self._end = "differs"
            elif self._budget_s and len(self._blocks) * block_s > self._budget_s:
                self._end = "budget"
        elif gate[1] == 0 and len(self._blocks) == 1:
            self._blocks[0] = now
        self._changed.notify_all()
        return True

    def start(self, node: int, block: int, position: int, nodes: int) -> str:
        """Wait until a trial has warmed up on all its nodes: ``BEGUN``, else why it will not begin."""
        trial = block, position
        team = {(block + turn) % self._nodes for turn in range(nodes)}
        with self._changed:
            if trial in self._begun:  # the node was lost in between
                return "the others began without it"
            self._warm[trial].add(node)
            self._changed.notify_all()
            return self._changed.wait_for(lambda: self._outcome(trial, team))

    def _outcome(self, trial: Gate, team: set[int]) -> str:
        """``BEGUN``, or why a trial will not begin; empty while that is open."""
        if trial in self._begun:
            return BEGUN
        if self._end:
            return "the sweep ends"
        # Others may have moved on because of one that left: name that one.
        if absent := team - self._going or {node for node in team if self._last[node].gate > trial}:
            return f"that of node {min(absent)} ended before"
        if not team <= self._warm[trial]:
            return ""
        self._begun.add(trial)
        return BEGUN

    def behind(self) -> set[int]:
        """Nodes for which another has waited at a gate for more than ``LONG_S``."""
        with self._changed:
            since = {node: last.since for node, last in self._last.items() if last.gate > self._opened}
            long = not self._end and any(time.monotonic() - moment > LONG_S for moment in since.values())
            return self._going - since.keys() if long else set()

    def leave(self, node: int) -> None:
        """Go on without a node."""
        with self._changed:
            self._going.discard(node)
            self._changed.notify_all()

    def close(self) -> None:
        """Open no gate any more, and end the server."""
        with self._changed:
            self._end = self._end or "closed"
            self._changed.notify_all()
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Say nothing of a node that was lost while it waited."""


class _Waiting(Transport):
    def make_connection(self, host: Any) -> HTTPConnection:
        """Open a connection that is kept alive."""
        connection = super().make_connection(host)
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
            connection.sock.setsockopt(socket.IPPROTO_TCP, option, ALIVE_S)
        return connection


@contextmanager
def _server(url: str) -> Iterator[ServerProxy]:
    """Ask the server, however long it takes; one that is gone ends the caller as Ctrl-C does."""
    try:
        with ServerProxy(url, _Waiting()) as server:
            yield server
    except (ConnectionRefusedError, ConnectionResetError, Error) as error:
        raise KeyboardInterrupt from error
    except OSError as error:
        raise EnvironmentFault(
            f"--together: {urlsplit(url).netloc} cannot be reached: {error}; expected that nodes can open connections "
            "to the machine where the sweep was typed"
        ) from error


def _free_address(url: str) -> tuple[str, int]:
    """This machine's address in the network through which it reaches the server, and a port that is free there."""
    server = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way, socket.socket() as free:
        way.connect((server.hostname, server.port))  # sends nothing
        free.bind((way.getsockname()[0], 0))
        address, port = free.getsockname()
        return address, port
