"""The kit with which charts are drawn: figures, panels, theme, rendering, citation."""

__all__ = ["citation", "embed", "figure", "paper", "plot", "raster", "render", "theme"]
