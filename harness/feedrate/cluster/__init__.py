"""Many machines: a sweep on every node of a cluster, by an engine that is there already."""

__all__ = ["sweep"]
