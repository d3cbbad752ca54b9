"""Files of others as data: validate, submit, receive."""

__all__ = [
    "proposal",
    "release",
    "terminal",
    "validation.admission",
    "validation.caps",
    "validation.findings",
    "validation.flags",
    "validation.guard",
    "validation.parquet",
    "validation.validator",
]
