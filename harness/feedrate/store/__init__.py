"""Results, in a folder or a store: written once, read, marked."""

__all__ = ["archive", "bench_record", "clusters", "compact", "location", "manifest"]
__all__ += ["marks", "remote", "runs", "tables"]
