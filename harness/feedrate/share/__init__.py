"""Runs that are shared: validate, submit, release."""

__all__ = ["findings", "release", "rules", "submission", "validator"]
