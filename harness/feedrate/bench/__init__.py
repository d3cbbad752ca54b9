"""What feedrate promises of itself, measured: ``runner`` takes the figures."""

__all__ = ["runner"]
