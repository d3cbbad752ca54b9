"""What the nodes of a cluster say while they sweep, in a folder that all of them and whoever watches can write.

``results/cluster/<sweep>/`` (of a store in its outbox, which all nodes must see) holds a file a node, ``jobs/`` of the
scheduler, and ``stop`` once the sweep is to end. Names of nodes stand here alone: a run carries 8 hex digits in their
place, made with a salt that stays in ``results/cluster``, so that nobody can try names.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from feedrate.store import runs


class NodeStatus(BaseModel):
    """Where a node stands, by its number in the sweep and the scheduler's name of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: int
    name: str
    state: Literal["waits", "starts", "prepares", "measures", "ended", "failed"] = "waits"
    machine_id: str = ""
    run_id: str = ""
    block: int = 0
    """That is being measured, from 1, of so many that are expected."""
    blocks: int = 0
    trials: int = 0
    """That ended, those of earlier attempts of the job included."""
    eta_s: float = 0
    note: str = ""
    """The last thing that the sweep said."""
    at: float = 0
    """When it was written, seconds of the epoch."""

    @property
    def ended(self) -> bool:
        """Whether the node will do no more."""
        return self.state in ("ended", "failed")


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    """The folder of one sweep of many nodes, ``results/cluster/<sweep>``."""

    results: Path
    sweep: str

    @property
    def path(self) -> Path:
        """Where it lies."""
        return runs.outbox(self.results) / "cluster" / self.sweep

    @property
    def jobs(self) -> Path:
        """Where the scheduler's jobs keep what they run and what they print."""
        return self.path / "jobs"

    def create(self) -> None:
        """Make the folder, and the salt of all sweeps where there is none.

        Raises:
            EnvironmentFault: it cannot be written.
        """
        runs.make_folder(self.jobs)
        self.path.chmod(0o700)  # names of nodes, and the secret by which they meet
        salt = self.path.with_name("salt")
        if not salt.exists():
            runs.write_whole(salt, secrets.token_hex(16).encode())

    def label(self, name: str) -> str:
        """Eight hex digits that stand for a node's name, the same in every sweep of these results."""
        salt = self.path.with_name("salt").read_bytes()
        return hashlib.sha256(salt + name.encode()).hexdigest()[:8]

    def tell(self, status: NodeStatus) -> None:
        """Write where a node stands."""
        text = status.model_copy(update={"at": time.time()}).model_dump_json()
        runs.write_whole(self.path / f"node-{status.node}.json", text.encode())

    def statuses(self) -> list[NodeStatus]:
        """Where every node stands, by number."""
        statuses = []
        for path in self.path.glob("node-*.json"):
            try:
                statuses.append(NodeStatus.model_validate_json(path.read_bytes()))
            except (OSError, ValidationError):  # of another version, or just replaced on a network file system
                continue
        return sorted(statuses, key=lambda status: status.node)

    def stop(self) -> None:
        """Ask all nodes to end with what they have."""
        (self.path / "stop").touch()

    def stopping(self) -> bool:
        """Whether the nodes are asked to end."""
        return (self.path / "stop").exists()


def names(results: Path) -> dict[str, str]:
    """The names of nodes that swept into these results: machine_id to the name, the newest sweep's."""
    by_machine = {}
    for path in sorted((runs.outbox(results) / "cluster").glob("*/")):
        for status in ClusterFolder(results, path.name).statuses():
            if status.machine_id:
                by_machine[status.machine_id] = status.name
    return by_machine
