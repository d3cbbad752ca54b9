"""What a machine is, in words: from the manifests of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from harness.charts import _words as words
from harness.machine import Machine
from harness.pages import described, run_facts
from harness.pages.gathered import Shown


def facts(own: Sequence[Shown]) -> list[tuple[str, str]]:
    """Name everything that tells a machine from another, and when it was measured.

    Args:
        own: its runs, newest first; at least one.

    Returns:
        Names and values, the values being HTML.
    """
    machine = own[0].manifest.machine
    days = dict.fromkeys(described.day(shown.manifest.started_at) for shown in (own[-1], own[0]))
    return [
        ("Processor", escape(f"{machine.cpu_model}, {_cores(machine)}")),
        ("Accelerator", escape(_accelerator(machine))),
        ("Memory", escape(_memory(machine))),
        ("Storage of the data", escape(storage(own))),
        ("Virtual machine", {True: "yes", False: "no", None: "unknown"}[machine.virtualised]),
        ("System", escape(f"{machine.distribution or machine.operating_system}, kernel {machine.kernel}")),
        ("PyTorch", escape(", ".join(dict.fromkeys(shown.manifest.software.torch or "unknown" for shown in own)))),
        ("Measured", escape(f"{words.plural(len(own), 'run')}, {' to '.join(days)}")),
        ("Tier", run_facts.tiers(own[0].machine_page, own)),
        ("Machine id", described.code(machine.machine_id)),
    ]


def devices(own: Sequence[Shown]) -> str:
    """Name the devices that runs were made on: ``CPU``, ``CPU, GPU``."""
    return ", ".join(sorted({described.device_name(shown.manifest.device) for shown in own}))


def by_device(own: Sequence[Shown]) -> bool:
    """Say whether numbers of a machine must name their device: runs were made on its CPU, and it has a GPU too."""
    return any(described.gpu_idle(shown.manifest.machine, shown.manifest.device) for shown in own)


def memory(machine: Machine) -> str:
    """Write the memory that a process may use."""
    limit = machine.memory_limit_bytes
    return described.size(min(machine.memory_bytes, limit or machine.memory_bytes)).replace(" ", "\u00a0")


def storage(own: Sequence[Shown]) -> str:
    """Name every kind of disk that packed data lay on, that of the newest run first."""
    disks = [shown.manifest.machine.storage for shown in own]
    said = [", ".join(filter(None, (disk.device_class, disk.file_system, disk.model))) for disk in disks if disk]
    return "; ".join(dict.fromkeys(said)) or "unknown"


def _cores(machine: Machine) -> str:
    said = words.plural(machine.cores_logical, "core")
    if machine.cores_physical and machine.cores_physical != machine.cores_logical:
        threads = words.plural(machine.cores_logical, "hardware thread")
        said = f"{threads} of {words.plural(machine.cores_physical, 'core')}"
    return f"{said}, limited to the time of {machine.cpu_quota_cores:g}" if machine.cpu_quota_cores else said


def _accelerator(machine: Machine) -> str:
    if not machine.gpu_name:
        return "none: questions about the loader are asked of the loader alone and of an emulated step"
    count = f"{machine.gpu_count} × " if machine.gpu_count > 1 else ""
    size = f", {described.size(machine.gpu_memory_bytes)}" if machine.gpu_memory_bytes else ""
    return f"{count}{machine.gpu_name}{size}"


def _memory(machine: Machine) -> str:
    limit, whole = machine.memory_limit_bytes, described.size(machine.memory_bytes)
    return f"{described.size(limit)} of {whole}, by a limit" if limit and limit < machine.memory_bytes else whole
