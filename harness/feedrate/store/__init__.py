"""Results, in a folder or a store: written once, read, marked."""

__all__ = [
    "archive",
    "bench_record",
    "clusters",
    "compact",
    "location",
    "manifest",
    "marks",
    "remote",
    "runs",
    "tables",
]
