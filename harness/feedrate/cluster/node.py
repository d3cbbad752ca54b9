"""What a node runs: a sweep like any other, whose screen is a file that the others can read."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

from feedrate.plan import request
from feedrate.plan.options import SweepOptions
from feedrate.plan.request import NodePart
from feedrate.plan.schedule import PlannedCell
from feedrate.schema.errors import FeedrateError
from feedrate.store import remote
from feedrate.store.clusters import ClusterFolder, NodeStatus
from feedrate.sweep import sweep
from feedrate.sweep.screen import Progress

TELL_S = 1.0
"""Least time between two looks at the folder, which may lie on a network."""
SETTLE_S = 1.0
"""How long a failure waits to be told: a scheduler that takes the node away ends all its processes, this one last."""


class NodeScreen:
    """Tells the cluster's folder how far a sweep is, and ends the sweep when the folder says so.

    It writes between trials alone: while one is measured it only looks whether to go on.
    """

    def __init__(self, folder: ClusterFolder, status: NodeStatus) -> None:
        self._folder = folder
        self.status = status
        self._looked = 0.0

    def tell(self, **changes: Any) -> None:
        """Change the status and write it."""
        self.status = self.status.model_copy(update=changes)
        self._folder.tell(self.status)

    def _look(self) -> bool:
        """Look whether to go on, at most once in ``TELL_S``: whether this was the time."""
        if time.monotonic() - self._looked < TELL_S:
            return False
        self._looked = time.monotonic()
        if self._folder.stopping():
            raise KeyboardInterrupt
        return True

    def say(self, text: str) -> None:
        """Keep the last thing that was said."""
        self.tell(note=text)

    def preparing(self, name: str, done: int, total: int) -> None:
        """Tell how far a set is packed."""
        if self._look():
            self.tell(state="prepares", note=f"packing {name}: {done} of {total} samples")

    def trial(self, cell: PlannedCell, progress: Progress) -> None:  # noqa: ARG002 - which cell it is, nobody asks
        """Tell which block a trial begins in."""
        where = {"block": progress.block + 1, "blocks": progress.blocks, "eta_s": progress.eta_s}
        self.tell(state="measures", note="", **where)

    def tick(self, sample: dict[str, Any]) -> None:  # noqa: ARG002 - only the time counts
        """See whether to go on."""
        self._look()

    def ended(self, trial: dict[str, Any]) -> None:
        """Count a trial."""
        self.tell(trials=self.status.trials + 1, machine_id=trial["machine_id"], run_id=trial["run_id"])


@dataclass(frozen=True, slots=True)
class NodeSweep:
    """A node's part of a sweep, as a job calls it: may be called again, and then goes on."""

    options: SweepOptions
    node_part: NodePart
    folder: ClusterFolder
    name: str

    def __call__(self) -> None:
        """Sweep, and tell the folder how it goes."""
        signal.signal(signal.SIGTERM, _die)
        status = next(status for status in self.folder.statuses() if status.name == self.name)
        screen = NodeScreen(self.folder, status)
        try:
            screen.tell(state="starts")
            run = sweep.run(request.make(self.options, self.node_part), screen)
            if run:
                remote.require_handed_in(run.folder, self.options.results)
        except KeyboardInterrupt:
            screen.tell(state="ended", note="ended before a measurement had")
        except FeedrateError as error:
            time.sleep(SETTLE_S)
            screen.tell(state="failed", note=str(error))
        else:
            why = f"{run.manifest.stop_reason}: {run.folder.name}" if run else "ended before a measurement had"
            screen.tell(state="ended", note=why)

    def checkpoint(self) -> object:
        """Have the scheduler, which takes the node away, start the job anew later."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _die(*_: object) -> None:
    """End at once where the node is taken away: the journal holds all that ended, and the job's next start goes on."""
    os.kill(os.getpid(), signal.SIGKILL)
