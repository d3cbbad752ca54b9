"""Where the nodes of a cluster's sweep meet, so that a trial runs on several of them at the same moment.

A server in the process that submitted the sweep knows where each node is. Nodes come to it before every block and
trial (``Meeting.gate``), so that none prepares a trial while another is measured; and the processes of a trial when
they have warmed up (``meet``), so that their windows begin together. Which nodes take part in a trial moves on by one
from block to block: every node is among few and among many.

XML-RPC carries it: PyTorch's ``TCPStore`` needs torch in the process that submits, which loads none, and its waits know
nothing of nodes that left. What nodes send is data; the path is a secret that only they know.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import urlsplit
from xmlrpc.client import Error, ServerProxy, Transport
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

from feedrate.schema.errors import EnvironmentFault, InputError, TrialError

BLOCK = -1
"""The position of the gate before a block."""
LONG_S = 5.0
"""Whoever waits longer at a gate is said to wait; trials of the others take as long as that."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """A node's way to the others; of a trial, too, behind its gate. The sweep's end ends a wait as Ctrl-C does."""

    url: str  # of the server
    node: int
    nodes: int  # that sweep
    block: int = 0
    position: int = BLOCK
    address: str = ""  # of this node, as the others reach it
    endpoint: str = ""  # at which the first of the trial's nodes may listen

    @property
    def turn(self) -> int:
        """Which of the block's nodes this is, from 0; a trial of n nodes runs on the first n, and the first leads."""
        return (self.node - self.block) % self.nodes

    def gate(self, block: int, position: int = BLOCK, plan: str = "") -> Meeting | None:
        """Wait until all nodes are at a trial, or at a block with the same digest of their plan: the meeting there.

        None where the others went on to another trial, or the budget has no room; an InputError where plans differ.
        """
        with _server(self.url) as (server, address), socket.socket() as kept:  # a port that nobody else takes meanwhile
            kept.bind((address, 0))
            word = plan or f"{address}:{kept.getsockname()[1]}"
            answer = str(server.gate(self.node, block, position, word))
        if answer == "differs":
            advice = "expected nodes that are equipped alike. make plan on two of them says in what they differ"
            raise InputError(f"--together: the nodes do not plan the same cells; {advice}")
        if answer == "closed" or (answer == "budget" and position != BLOCK):  # with it others ended, without this node
            raise KeyboardInterrupt
        if answer == "budget" or (answer == "gone" and position != BLOCK):
            return None
        return replace(self, block=block, position=position, address=address, endpoint=answer)


def meet(meeting: Meeting, nodes: int) -> None:
    """Wait, in a trial's process, until all its nodes have warmed up; a TrialError says that one of them will not."""
    try:
        with _server(meeting.url) as (server, _):
            answer = str(server.start(meeting.node, meeting.block, meeting.position, nodes))
    except KeyboardInterrupt:
        answer = "the sweep ends"
    except EnvironmentFault:  # which names a machine: this message is a published row's
        answer = "the others cannot be reached"
    if answer != "begun":
        raise TrialError(f"the window did not begin on all {nodes} nodes: {answer}")


class Rendezvous(ThreadingMixIn, SimpleXMLRPCServer):
    """Knows where the nodes of a sweep are, which reach this machine as ``host``; any thread may ask."""

    daemon_threads = True
    request_queue_size = 128  # nodes come at the same moment

    def __init__(self, nodes: int, budget_s: float | None, host: str) -> None:
        path = f"/{secrets.token_hex(16)}"
        super().__init__(
            ("", 0), type("Handler", (SimpleXMLRPCRequestHandler,), {"rpc_paths": (path,)}), logRequests=False
        )
        self.url = f"http://{host}:{self.server_address[1]}{path}"
        self._changed = threading.Condition()
        self._nodes, self._budget_s = nodes, budget_s
        self._going = set(range(nodes))
        self._left: list[int] = []  # nodes that have, in that order
        self._opened = (0, BLOCK - 1)  # the last gate that has
        self._last = dict.fromkeys(range(nodes), self._opened)  # node to the gate that it came to last, and to when
        self._since = dict.fromkeys(range(nodes), 0.0)
        self._words = dict.fromkeys(range(nodes), "")  # what it said there: its plan at a block, or where it listens
        self._blocks: list[float] = []  # when each began; the first with its first trial, as packing comes once
        self._warm: set[int] = set()  # nodes where the trial behind the last gate has warmed up
        self._begun: tuple[int, int] | None = None  # the last trial whose windows have
        self._end = ""  # why no gate opens any more: budget, differs, closed
        for function in (self.gate, self.start):
            self.register_function(function)  # type: ignore[arg-type] # typeshed knows other arguments
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()  # how soon it notices its end

    def gate(self, node: int, block: int, position: int, word: str) -> str:
        """Wait at a gate: where the trial's first node listens, else why there is no trial."""
        gate = block, position
        with self._changed:
            self._last[node], self._since[node], self._words[node] = gate, time.monotonic(), word
            self._warm.discard(node)  # where it was lost, its process of the trial is, too
            self._open_where_all_are()
            self._changed.wait_for(lambda: self._end or self._opened >= gate)
            here = self._opened == gate == self._last[node]
            return self._end or (self._words[block % self._nodes] if here else "gone")

    def _open_where_all_are(self) -> None:
        """Open the gate at which all stand that still sweep, and wake whoever waits."""
        gates, now = {self._last[node] for node in self._going}, time.monotonic()
        if len(gates) == 1 and max(gates) > self._opened and not self._end:
            self._opened, self._warm = max(gates), set()
            if self._opened[1] == BLOCK:
                self._blocks.append(now)
                total_s = (now - self._blocks[0]) / max(1, len(self._blocks) - 1) * len(self._blocks)
                differ = len({self._words[node] for node in self._going}) > 1
                self._end = "differs" if differ else "budget" if self._budget_s and total_s > self._budget_s else ""
            elif self._opened[1] == 0 and len(self._blocks) == 1:
                self._blocks[0] = now
        self._changed.notify_all()

    def start(self, node: int, block: int, position: int, nodes: int) -> str:
        """Wait until a trial has warmed up on all its nodes: ``begun``, else why it will not begin."""
        trial, team = (block, position), {(block + turn) % self._nodes for turn in range(nodes)}

        def outcome() -> str:
            # Others move on, and leave at the sweep's end, because of the first that left: name that one.
            absent = [*filter(team.__contains__, self._left), *(other for other in team if self._last[other] > trial)]
            if self._begun != trial and (self._end or absent):
                return "the sweep ends" if self._end else f"that of node {absent[0]} ended before"
            if team <= self._warm:
                self._begun = trial
            return "begun" if self._begun == trial else ""

        with self._changed:
            if self._begun == trial:  # the node was lost in between
                return "the others began without it"
            self._warm.add(node)
            self._changed.notify_all()
            return self._changed.wait_for(outcome)

    def behind(self) -> set[int]:
        """Nodes for which another has waited at a gate for more than ``LONG_S``."""
        with self._changed:
            waiting = {node for node in self._going if self._last[node] > self._opened}
            long = not self._end and any(time.monotonic() - self._since[node] > LONG_S for node in waiting)
            return self._going - waiting if long else set()

    def leave(self, node: int) -> None:
        """Go on without a node."""
        with self._changed:
            self._going.discard(node)
            self._left.append(node)
            self._open_where_all_are()

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
    """Opens a connection that is kept alive: whoever waits may do so for hours, and networks forget the silent."""

    def make_connection(self, host: Any) -> Any:
        connection = super().make_connection(host)
        if connection.sock is None:
            connection.connect()
            opened: Any = connection.sock
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)  # seconds
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 60)
        return connection


@contextmanager
def _server(url: str) -> Iterator[tuple[ServerProxy, str]]:
    """Give the server, and this machine's address towards it; a server that is gone ends the caller as Ctrl-C does."""
    transport = _Waiting()
    try:
        with ServerProxy(url, transport) as server:
            yield server, transport.make_connection(urlsplit(url).netloc).sock.getsockname()[0]
    except (ConnectionRefusedError, ConnectionResetError, Error) as error:
        raise KeyboardInterrupt from error
    except OSError as error:
        advice = "expected that nodes can open connections to the machine where the sweep was typed"
        raise EnvironmentFault(f"--together: {urlsplit(url).netloc} cannot be reached: {error}; {advice}") from error
