"""What this machine is, how quiet it is, and what Linux and NVML tell of it."""

__all__ = [
    "accelerators",
    "identity",
    "linux",
    "memory_limit",
    "packages",
    "probes.gpu",
    "probes.host",
    "probes.noise",
    "probes.procfs",
    "quiet",
    "read_ahead",
]
