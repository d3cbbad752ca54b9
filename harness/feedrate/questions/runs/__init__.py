"""The page of a run: what it says of itself, how far to trust it, what its machine did; and runs in lists."""

__all__ = ["facts", "page", "telemetry"]
