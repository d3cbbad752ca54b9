"""Which loader delivers most, and at what cost: loaders beside one another on the same batches."""

__all__ = ["page"]
