"""Runs that are shared: validate, submit, release."""

__all__ = [
    "release",
    "terminal",
    "validation.admission",
    "validation.caps",
    "validation.findings",
    "validation.guard",
    "validation.parquet",
    "validation.validator",
]
