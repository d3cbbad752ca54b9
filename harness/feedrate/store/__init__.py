"""Results on disk: written once, read, marked."""

__all__ = ["bench_record", "manifest", "marks", "migration", "runs", "summaries"]
