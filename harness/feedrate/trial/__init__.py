"""What runs inside the measured process: template, child, loader, stages, loop."""

__all__ = ["rendezvous", "witness"]
