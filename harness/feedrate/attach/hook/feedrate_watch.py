"""What ``import feedrate`` finds in a script below ``feedrate run`` whose Python has no feedrate of its own."""

import _feedrate_hook

watch = _feedrate_hook.Watched

__all__ = ["watch"]
