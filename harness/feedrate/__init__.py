"""feedrate: how fast can a machine feed its accelerator, and what holds it back?"""

__version__ = "0.2.0"
