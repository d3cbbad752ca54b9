"""Results on disk: written once, read, marked."""

__all__ = ["bench_record", "clusters", "manifest", "marks", "migration", "runs"]
