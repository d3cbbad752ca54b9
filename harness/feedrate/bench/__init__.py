"""What feedrate promises of itself, measured: ``runner`` takes the figures.

Nothing is imported here: ``packing`` runs in a process of its own, whose memory is measured.
"""

__all__ = ["runner"]
