"""Which two runs are compared, on what machines, and what else differs between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from harness.charts import _words as words
from harness.comparing import Comparison, Side
from harness.pages import described
from harness.report_parts import Section, cells


def _cores(side: Side) -> str:
    machine = side.manifest.machine
    threads = words.plural(machine.cores_logical, "hardware thread")
    cores = f" of {words.plural(machine.cores_physical, 'core')}" if machine.cores_physical else ""
    quota = f", limited to the time of {machine.cpu_quota_cores:g}" if machine.cpu_quota_cores else ""
    return f"{threads}{cores}{quota}"


def _memory(side: Side) -> str:
    machine = side.manifest.machine
    return described.size(min(machine.memory_bytes, machine.memory_limit_bytes or machine.memory_bytes))


def _accelerator(side: Side) -> str:
    machine = side.manifest.machine
    if not machine.gpu_name:
        return "none"
    count = f"{machine.gpu_count} × " if machine.gpu_count > 1 else ""
    return f"{count}{machine.gpu_name}, {described.size(machine.gpu_memory_bytes)}"


def _disk(side: Side) -> str:
    disk = side.manifest.machine.storage
    if not disk:
        return "unknown"
    scheduler = f"I/O scheduler {disk.scheduler}" if disk.scheduler else None
    return ", ".join(filter(None, (disk.device_class, disk.file_system, disk.model, scheduler)))


def _system(side: Side) -> str:
    machine = side.manifest.machine
    return f"{machine.distribution or machine.operating_system}, kernel {machine.kernel}"


def _trials(side: Side) -> str:
    outcomes = side.manifest.outcomes
    failed = sum(count for outcome, count in outcomes.items() if outcome != "ok")
    return f"{sum(outcomes.values()):,} in {words.plural(side.manifest.blocks, 'whole block')}, {failed:,} failed"


_FACTS: Mapping[str, Callable[[Side], str]] = {
    "Machine": lambda side: side.manifest.machine.machine_id,
    "Processor": lambda side: side.manifest.machine.cpu_model,
    "Cores": _cores,
    "Memory": _memory,
    "Accelerator": _accelerator,
    "Data on": _disk,
    "Virtual machine": lambda side: {True: "yes", False: "no", None: "unknown"}[side.manifest.machine.virtualised],
    "System": _system,
    "Device": lambda side: side.manifest.device,
    "PyTorch": lambda side: side.manifest.software.torch or "unknown",
    "feedrate": lambda side: side.manifest.feedrate_version,
    "Run": lambda side: side.manifest.run_id,
    "Measured": lambda side: described.day(side.manifest.started_at),
    "Asked for": lambda side: f"{', '.join(sorted(side.manifest.suites))} ({side.manifest.profile})",
    "Trials": _trials,
    "Grade (A to D)": lambda side: side.grade,
    "Tier": lambda side: side.tier,
}


def section(found: Comparison) -> Section:
    """Write both machines beside each other, and where they differ.

    Args:
        found: what was compared.
    """
    rows = []
    for name, told in _FACTS.items():
        a, b = told(found.a), told(found.b)
        rows.append(cells(name, a, b, "" if a == b else "differs"))
    lines = [*found.a.notes, *found.b.notes]
    if one_machine(found):
        lines.append("These are two runs of one machine: how far they differ shows how well a run can be repeated.")
    if differ := _versions(found.a, found.b):
        lines.append(f"Versions differ too, which is in every ratio: {'; '.join(differ)}.")
    return Section("A and B", lines, ("", "A", "B", ""), rows)


def one_machine(found: Comparison) -> bool:
    """Whether both runs were made on one machine."""
    return found.a.manifest.machine.machine_id == found.b.manifest.machine.machine_id


def _versions(a: Side, b: Side) -> list[str]:
    """What ran on both machines in different versions or with other settings."""
    told = [{**side.manifest.software.model_dump(), **side.manifest.runtime} for side in (a, b)]
    found = []
    for name in dict.fromkeys((*told[0], *told[1])):
        first, second = ("none" if one.get(name) is None else str(one[name]) for one in told)
        if first != second:
            found.append(f"{name} {first} in A, {second} in B")
    return found
