"""Statistics of records: pure functions over pandas frames."""
