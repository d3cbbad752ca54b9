"""A sweep on many nodes: submitted, watched until all have ended, cancelled by Ctrl-C.

Each node measures the same plan in the same order (one seed) and writes a run of its own into the same results. Nodes
that sweep together meet here before every trial (``trial.rendezvous``).
"""

from __future__ import annotations

import math
import secrets
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from feedrate.cluster import engines
from feedrate.cluster.engines import Engine
from feedrate.cluster.node import NodeSweep
from feedrate.plan import matrix
from feedrate.plan.options import SweepOptions
from feedrate.plan.request import NodePart
from feedrate.plan.suite import SCALING
from feedrate.schema import words
from feedrate.store import location, runs
from feedrate.store.clusters import ClusterFolder, NodeStatus
from feedrate.store.manifest import Membership
from feedrate.trial.rendezvous import Rendezvous

POLL_S, PLAIN_S = 1.0, 15.0
"""Seconds between two looks at the nodes, and between two lines where there is no terminal."""
GRACE_S = 45.0
"""How long nodes have to write what they measured when they are asked to end."""
NO_BUDGET_MIN, SPARE_MIN = 24 * 60, 15
"""Minutes that a job is granted without a budget, or beyond it: for packing, the last block, and starting."""
NAMED = 3
"""Nodes that are waited for by name; more are counted."""


@dataclass(slots=True)
class Watched:
    """A sweep that was submitted: nodes by number, their jobs, and what the last look told of them."""

    folder: ClusterFolder
    engine: Engine
    jobs: dict[int, str]
    statuses: list[NodeStatus] = field(default_factory=list)
    remarks: dict[int, str] = field(default_factory=dict)
    rendezvous: Rendezvous | None = None
    """Where the nodes meet, if they do."""
    _unseen: set[int] = field(default_factory=set)
    """Nodes whose job was missing at the last look: missing twice, it is lost."""

    def look(self) -> list[NodeStatus]:
        """Look at all nodes: those that will do more."""
        states = self.engine.states()
        self.statuses = self.folder.statuses()  # after the jobs: one that ended between has said so
        unseen = {status.node for status in self.statuses if not status.ended and self.jobs[status.node] not in states}
        lost, self._unseen = unseen & self._unseen, unseen
        going = [status for status in self.statuses if not status.ended and status.node not in lost]
        if self.rendezvous:
            for gone in self.jobs.keys() - {status.node for status in going}:
                self.rendezvous.leave(gone)
        behind = self.rendezvous.behind() if self.rendezvous else set[int]()
        late = [status.name for status in self.statuses if status.node in behind]
        for_whom = words.listed(late) if len(late) <= NAMED else words.plural(len(late), "node")
        pending = {job for job, state in states.items() if state == "PENDING"}
        self.remarks = {status.node: f"waits for {for_whom}" for status in going if late and status.node not in behind}
        for status in going:
            if status.state != "waits" and self.jobs[status.node] in pending:
                self.remarks[status.node] = "waits to go on: its node was lost or taken away"
        self.remarks |= dict.fromkeys(lost, "lost")
        return going

    def table(self) -> Table:
        """Show a line a node."""
        table = Table(box=None, padding=(0, 2), show_header=False)
        for status in self.statuses:
            table.add_row(status.name, status.state, words.plural(status.trials, "measurement"), self.line(status))
        return table

    def line(self, status: NodeStatus) -> str:
        """Say where a node stands."""
        if remark := self.remarks.get(status.node):
            return remark
        if status.state == "measures":
            return f"repetition {status.block} of ~{status.blocks}, {words.show(status.eta_s)} left"
        return status.note or status.state


def run(options: SweepOptions, console: Console) -> list[NodeStatus]:
    """Sweep on many nodes and wait for them: how each ended; of one whose job died the last that it told.

    After Ctrl-C nodes have written what they had measured, and no job is left.

    Raises:
        FeedrateError: the options cannot be used, the engine is not there or refuses.
        KeyboardInterrupt: Ctrl-C; nodes wrote what they had measured, and no job is left.
    """
    if options.together and options.profile == SweepOptions().profile and not options.suite:
        options = replace(options, suite=SCALING)  # unless another is asked for
    budget_s = matrix.load(options.matrix, options.profile, options.suite, options.budget, "cpu").budget_s
    minutes = NO_BUDGET_MIN if budget_s is None else math.ceil(budget_s / 60) + SPARE_MIN
    if options.time:
        minutes = math.ceil(words.parse(options.time, "--time") / 60)
    watched = _submit(options, minutes, budget_s, console)
    try:
        _watch(watched, console)
    except KeyboardInterrupt:
        _end(watched, console)
        raise
    finally:
        watched.engine.cancel()
        if watched.rendezvous:
            watched.rendezvous.close()
    _say_how(watched, console)
    what = "how many are fed at once" if options.together else "whether they are alike"
    console.print(f"Next: feedrate results nodes says {what}; make site shows the run of each.")
    return watched.statuses


def _submit(options: SweepOptions, minutes: int, budget_s: float | None, console: Console) -> Watched:
    everywhere = replace(
        options,
        matrix=options.matrix.absolute(),
        data=options.data and options.data.absolute(),
        data_root=options.data_root.absolute(),
        results=options.results if location.remote(options.results) else options.results.absolute(),
        seed=secrets.randbits(32) if options.seed is None else options.seed,
        archive=None,
    )
    folder = ClusterFolder(everywhere.results, runs.new_id(datetime.now(UTC)))
    engine = engines.make(options, minutes, folder.jobs)
    names = engine.nodes()
    folder.create()
    rendezvous = Rendezvous(len(names), budget_s, engine.host) if options.together else None
    jobs = {}
    for node, name in enumerate(names):
        member = Membership(sweep=folder.sweep, node=node, nodes=len(names), together=options.together)
        node_part = NodePart(member, folder.label(name), rendezvous.url if rendezvous else "")
        folder.tell(NodeStatus(node=node, name=name))
        jobs[node] = engine.submit(name, NodeSweep(everywhere, node_part, folder, name))
    console.print(
        f"Sweep {folder.sweep} on {words.plural(len(names), 'node')} ({', '.join(names)}); jobs "
        f"{', '.join(jobs.values())}. Ctrl-C ends them; what they print lies in {_near(folder.jobs)}.",
        highlight=False,
    )
    return Watched(folder, engine, jobs, rendezvous=rendezvous)


def _watch(watched: Watched, console: Console) -> None:
    """Show where the nodes stand until none will do more."""
    shown = 0.0
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while watched.look():
            if console.is_terminal:
                live.update(watched.table(), refresh=True)
            elif time.monotonic() - shown >= PLAIN_S:
                lines = (f"{status.name}: {watched.line(status)}" for status in watched.statuses)
                console.print(" | ".join(lines), soft_wrap=True, highlight=False)
                shown = time.monotonic()
            time.sleep(POLL_S)


def _end(watched: Watched, console: Console) -> None:
    """Have the nodes write what they measured; the engine ends those that do not, or have not begun."""
    console.print("Ending the nodes; each writes what it has measured ...")
    watched.folder.stop()
    if watched.rendezvous:
        watched.rendezvous.close()
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until and any(status.state != "waits" for status in watched.look()):
        time.sleep(POLL_S)
    _say_how(watched, console)


def _say_how(watched: Watched, console: Console) -> None:
    """Print how each node ended."""
    console.print(watched.table())
    if "lost" in watched.remarks.values():
        printed = f"{_near(watched.folder.jobs)} holds what it printed"
        console.print(f"A job that is lost ended without a word: {printed}. Its measurements are kept.")


def _near(path: Path) -> Path:
    """A path as it is typed here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
