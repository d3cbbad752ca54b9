"""Whether the nodes of a cluster are alike: one sweep of all of them."""

__all__ = ["page", "sweep"]
