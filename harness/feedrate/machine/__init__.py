"""What this machine is, how quiet it is, and what Linux and NVML tell of it."""

__all__ = [
    "accelerators",
    "identity",
    "limits",
    "linux",
    "packages",
    "probes.gpu",
    "probes.host",
    "probes.noise",
    "probes.procfs",
    "quiet",
    "read_ahead",
]
