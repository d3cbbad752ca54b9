"""From pages to the website."""

__all__ = ["build", "readme", "serve"]
