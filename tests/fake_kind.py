"""What kinds of runs can be made up, and on what machines they are said to have been."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from feedrate.machine.identity import Machine, Storage
from feedrate.schema.columns import PROTOCOL_VERSION

HOSTILE = '<script>document.title="owned"</script><img src=x onerror="document.title=1"> [a](javascript:alert(1)) `x` |'


@dataclass(frozen=True)
class Fake:
    """What kind of run to make up."""

    run_id: str = "20260102T030405Z-fake"
    device: str = "cpu"
    blocks: int = 6
    fails: str = "some"
    """none, some or all trials."""
    batches: Sequence[int] = (8, 32, 128)
    workers: Sequence[int] = (0, 2)
    nulls: bool = False
    """Leave out every metric that a probe might not give."""
    hostile: bool = False
    """Put HOSTILE wherever free text can stand."""
    busy: bool = False
    """Other work on the machine: flags, a wide spread, and a machine that grows slower."""
    plants: bool = False
    """Plant costs instead, and read them back a little off."""
    formats: Sequence[str] = ()
    """Compare these storage formats instead, as ``fake_storage`` makes them up."""
    states: Sequence[str] = ("warm", "cold")
    """Of the page cache, where storage formats are compared."""
    claims: Sequence[str] = ()
    """Test the claims of these suites instead, as ``fake_claims`` makes them up."""
    protocol_version: int = PROTOCOL_VERSION
    data_hash: str = "0123456789abcdef"
    asked_only: bool = False
    """A run from before ceilings, controls and noise were recorded."""
    suites: Sequence[str] = field(default=("loader",))
    cores: int = 16
    """Tells one made-up machine from another."""
    gpu_idle: bool = False
    """The machine has a GPU which the run, on the CPU, did not use."""
    node: int | None = None
    """Its number among the eight nodes of a cluster, each of which has noise of its own."""
    together: bool = False
    """Whether the nodes ran each trial at the same moment."""
    pace: float = 1.0
    """How many times as fast as others of its kind."""


def machine(fake: Fake) -> Machine:
    """Make up a machine with or without a GPU."""
    gpu = fake.device == "cuda" or fake.gpu_idle
    return Machine(
        cpu_model=HOSTILE if fake.hostile else "Example 9000 8-Core",
        architecture="x86_64",
        cores_physical=8,
        cores_logical=fake.cores,
        cpu_quota_cores=None,
        memory_bytes=64 * 2**30,
        memory_limit_bytes=None,
        gpu_name="Example GPU 80" if gpu else None,
        gpu_count=int(gpu),
        gpu_memory_bytes=80 * 10**9 if gpu else None,
        virtualised=False,
        operating_system="Linux",
        kernel="6.1.0",
        distribution="Example Linux 12",
        node=None if fake.node is None else f"{fake.node:08x}",
        storage=Storage(file_system="ext4", device_class="nvme", rotational=False) if fake.formats else None,
    )
