"""From ``matrix.yaml`` to cells, blocks and the moment to stop."""

__all__ = ["claim", "claim_selection", "matrix", "report", "request", "schedule", "stopping", "suite"]
