"""Charts of what workers bring and cost."""
