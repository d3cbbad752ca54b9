"""Tables of machines: those of the runs that have pages, and of all runs of a store."""

__all__ = ["page", "store"]
