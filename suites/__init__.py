"""Suites: one file a question, found by its name."""
