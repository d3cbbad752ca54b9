"""Charts of storage formats."""
